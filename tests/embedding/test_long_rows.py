"""Long sentences in windows: the vectors are those of whole rows."""

from __future__ import annotations

import numpy as np
import pytest

from bilm.embedding import packed_embedder
from bilm.embedding import packed_embedder as long_rows
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.packing import pack
from tests.helpers import VOCAB
from tests.models.test_bidirectional_lm import write_model

WORDS = VOCAB.read_text().split()[3:]
SENTENCES = [WORDS[:11], [], ["the", "cat"], WORDS[20:23], WORDS[5:10]]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Of a model over words, which is compiled sooner than one over characters."""
    return (*write_model(tmp_path_factory.mktemp("words"), n_words=73, char_cnn=None), VOCAB)


@pytest.fixture(scope="module")
def embedder(files):
    return ElmoEmbedder(*files, cuda_device=-1)


@pytest.mark.parametrize(
    "layers",
    [
        "all",
        pytest.param("top", marks=pytest.mark.slow),
        "average",
        0,
        pytest.param(1, marks=pytest.mark.slow),
    ],
)
def test_windows_change_nothing(embedder, monkeypatch, layers):
    expected = embedder.embed_chunk(SENTENCES, layers)
    monkeypatch.setattr(packed_embedder, "is_long", lambda *_: True)
    monkeypatch.setattr(long_rows, "TOKENS_AT_ONCE", 6)
    found = embedder.embed_chunk(SENTENCES, layers)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape and one.dtype == other.dtype and one.flags.c_contiguous
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_windows_of_half_precision(embedder, monkeypatch):
    expected = embedder.embed_chunk(SENTENCES, "top", "float16")
    monkeypatch.setattr(packed_embedder, "is_long", lambda *_: True)
    for one, other in zip(embedder.embed_chunk(SENTENCES, "top", "float16"), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_which_rows_are_long_and_how_they_are_divided():
    assert not long_rows.is_long(pack([30, 20, 10] * 100), 16384)
    assert long_rows.is_long(pack([40_000]), 16384) and long_rows.is_long(pack([40_000]), 1 << 20)
    assert long_rows.is_long(pack([300]), 100) and not long_rows.is_long(pack([200]), 100)
    assert long_rows.windows(7000, 1) == [slice(0, 3072), slice(3072, 6144), slice(6144, 7000)]
    assert long_rows.windows(3, 5000) == [slice(0, 1), slice(1, 2), slice(2, 3)]


@pytest.mark.slow
def test_a_model_that_carries_its_state_has_no_windows(files, monkeypatch):
    monkeypatch.setattr(packed_embedder, "LongRows", None)
    stateful = ElmoEmbedder(*files, stateful=True, batch_size=2)
    assert stateful.embed_batch([WORDS[:4] * 10_000])[0].shape[1] == 40_000


@pytest.mark.slow
def test_a_long_sentence_has_the_bits_of_a_whole_row(embedder, monkeypatch):
    words = np.random.default_rng(0).choice(WORDS, 40_000).tolist()
    found = embedder.embed_sentence(words)
    monkeypatch.setattr(packed_embedder, "is_long", lambda *_: False)
    np.testing.assert_array_equal(found, embedder.embed_sentence(words))
