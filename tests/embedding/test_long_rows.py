"""Long sentences in windows: the vectors are those of whole rows."""

from __future__ import annotations

import numpy as np
import pytest

from bilm.embedding.embedder import ElmoEmbedder
from tests.helpers import VOCAB
from tests.models.test_bidirectional_lm import write_model

WORDS = VOCAB.read_text().split()[3:]
SENTENCES = [WORDS[:11] * 300, [], ["the", "cat"], WORDS[20:23] * 100, WORDS[5:10]]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Of a model over words, which is compiled sooner than one over characters."""
    return (*write_model(tmp_path_factory.mktemp("words"), n_words=73, char_cnn=None), VOCAB)


@pytest.fixture(scope="module")
def embedders(files):
    """One that takes the rows whole, and one that takes them in windows."""
    return [ElmoEmbedder(*files, cuda_device=-1, batch_tokens=n) for n in (16384, 100)]


@pytest.mark.parametrize(
    ("layers", "dtype"),
    [
        ("all", "float32"),
        ("top", "float16"),
        pytest.param("average", "float32", marks=pytest.mark.slow),
        pytest.param(0, "float32", marks=pytest.mark.slow),
        pytest.param(1, "float32", marks=pytest.mark.slow),
    ],
)
def test_windows_change_nothing(embedders, layers, dtype):
    whole, in_windows = (embedder.embed_chunk(SENTENCES, layers, dtype) for embedder in embedders)
    for found, expected in zip(in_windows, whole, strict=True):
        assert found.dtype == dtype and found.flags.c_contiguous
        np.testing.assert_array_equal(found, expected)
