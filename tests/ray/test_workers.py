"""`bilm.ray.Embed` and `Score`, which need no Ray to be called."""

from __future__ import annotations

import numpy as np
import pytest

from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import DataError
from bilm.run_directory.model_source import ModelArguments
from tests.helpers import GOLDEN, VOCAB

pa = pytest.importorskip("pyarrow")
from bilm.embedding.parquet_output import vectors_of  # noqa: E402
from bilm.ray import Embed, Score  # noqa: E402

CHAR = GOLDEN / "char"
MODEL = ModelArguments(options_file=CHAR / "options.json", weight_file=CHAR / "weights.hdf5")
LINES = ["the river and the sea", "", "Time flies"]


@pytest.fixture(scope="module")
def embed():
    return Embed(MODEL, column="line", dtype="float32")


@pytest.fixture(scope="module")
def expected():
    embedder = ElmoEmbedder(CHAR / "options.json", CHAR / "weights.hdf5")
    return list(embedder.embed_sentences(map(str.split, LINES)))


@pytest.mark.parametrize(
    "form", [lambda lines: {"line": np.array(lines)}, lambda lines: pa.table({"line": lines})]
)
def test_vectors_are_those_of_the_embedder(embed, form, expected):
    table = embed(form(LINES))
    assert table.column_names == ["line", "tokens", "vectors"]
    assert table["tokens"].to_pylist() == [line.split() for line in LINES]
    found = list(vectors_of(table["vectors"]))
    assert [one.shape for one in found] == [(3, 5, 24), (3, 0, 24), (3, 2, 24)]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6, rtol=0)


def test_one_layer_as_half_floats():
    table = Embed(MODEL, layers="top")({"text": np.array(["Time flies", " "])})
    assert table["vectors"].type == pa.list_(pa.list_(pa.float16(), 24))
    assert [one.shape for one in vectors_of(table["vectors"])] == [(2, 24), (0, 24)]


def test_a_batch_without_sentences_has_the_columns(embed):
    table = embed(pa.table({"line": pa.array([], pa.string())}))
    assert table.num_rows == 0 and table.schema == embed(pa.table({"line": ["a"]})).schema


def test_what_is_wrong_with_a_batch(embed):
    with pytest.raises(DataError, match="no column 'line', only text"):
        embed({"text": np.array(["a"])})
    with pytest.raises(DataError, match="row 0 of a batch is int, not text"):
        embed({"line": np.array([1])})
    with pytest.raises(DataError, match="batch_format"):
        embed([1])


def test_a_model_that_is_missing_is_said_by_the_first_call(tmp_path):
    embed = Embed(tmp_path / "none")
    with pytest.raises(DataError.__mro__[1], match="none"):
        embed({"text": np.array(["a"])})


def test_scores_of_a_batch():
    score = Score(CHAR / "final", VOCAB, column="line")
    table = score({"line": np.array(["the unseenword", ""])})
    assert table["known"].to_pylist() == [[True, False], None]
    forward, backward = (table[name].to_pylist() for name in ("forward", "backward"))
    assert [len(forward[0]), len(backward[0])] == [3, 3] and forward[1] is backward[1] is None
