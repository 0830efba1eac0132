"""The embedder as a library: what it takes, where it runs, copies of it."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle

import h5py
import numpy as np
import pytest

from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import BilmError, DataError, OptionsError, ProcessError
from tests.helpers import VOCAB
from tests.models.test_bidirectional_lm import write_model

SENTENCES = [["the", "cat"], [], ["a", "dog", "sat"], ["the"]]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("small"), lstm={"n_layers": 1})


@pytest.fixture(scope="module")
def embedder(files):
    return ElmoEmbedder(*files, cuda_device=-1)


@pytest.fixture(scope="module")
def stateful(files):
    return ElmoEmbedder(*files, stateful=True, batch_size=2)


@pytest.fixture(scope="module")
def expected(embedder):
    return embedder.embed_batch(SENTENCES)


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ([["a"], ["b", 3]], "sentence 1, word 1 is of type int, not a string: 3"),
        ([[b"a"]], "sentence 0, word 0 is of type bytes, not a string: b'a'"),
        ([["a"], None], "sentence 1 is of type NoneType, not a list of words"),
        ([["a"], "the cat"], "sentence 1 is a string, not a list of words: 'the cat'"),
        ("the cat", "sentences must be lists of words, in a list, got str"),
        (None, "sentences must be lists of words, in a list, got NoneType"),
    ],
)
def test_what_is_no_sentence(embedder, sentences, message):
    for call in (
        embedder.embed_batch,
        embedder.batch_to_embeddings,
        lambda s: [*embedder.embed_sentences(s)],
    ):
        with pytest.raises(DataError, match=message):
            call(sentences)


def test_sentences_of_any_kind(embedder, expected):
    assert_equal(embedder.embed_batch(iter(map(tuple, SENTENCES))), expected)
    assert_equal(embedder.embed_batch([np.array(words, str) for words in SENTENCES]), expected)
    assert_equal([*embedder.embed_sentences(map(iter, SENTENCES))], expected)


def test_a_batch_as_one_array(embedder, expected):
    embeddings, mask = embedder.batch_to_embeddings(SENTENCES)
    assert embeddings.shape == (4, embedder.n_layers, 3, embedder.get_output_dim())
    assert mask.tolist() == [[1, 1, 0], [0, 0, 0], [1, 1, 1], [1, 0, 0]]
    assert_equal([row[:, :n] for row, n in zip(embeddings, mask.sum(axis=1), strict=True)], expected)
    assert not embeddings[1].any()
    with pytest.raises(DataError, match="no sentences"):
        embedder.batch_to_embeddings([])


def test_the_batch_size_of_a_call(embedder, stateful, expected):
    assert_equal([*embedder.embed_sentences(SENTENCES, 1)], expected)
    for batch_size, batches in [(None, [SENTENCES[:2], SENTENCES[2:]]), (1, [[one] for one in SENTENCES])]:
        stateful.model.reset_states()
        wanted = [vectors for batch in batches for vectors in stateful.embed_batch(batch)]
        stateful.model.reset_states()
        found = ElmoEmbedder.embed_sentences(stateful, SENTENCES, batch_size)
        assert_equal([*found], wanted)
    with pytest.raises(OptionsError, match="batch_size is 0"):
        embedder.embed_sentences(SENTENCES, batch_size=0)
    with pytest.raises(OptionsError, match="batch_size is 3, and the state of 2 sentences is carried"):
        stateful.embed_sentences(SENTENCES, batch_size=3)


def test_files_as_allennlp_takes_them(embedder, expected, tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "out.hdf5"
    text.write_text("".join(f"{' '.join(words)}\n" for words in SENTENCES))
    with text.open() as lines, text.open("rb") as content:
        for file in (str(text), lines, content, io.StringIO(text.read_text())):
            embedder.embed_file(file, out, "top", 64, True, overwrite=True)
            with h5py.File(out) as found:
                assert_equal([found[str(i)][()] for i in range(4)], [vectors[-1] for vectors in expected])
    embedder.embed_file(text, output_file_path=out, output_format="average", overwrite=True)
    with h5py.File(out) as found:
        assert_equal([found["0"][()]], [expected[0].mean(axis=0)])
    with pytest.raises(OptionsError, match="output_format and layers are the same argument"):
        embedder.embed_file(text, out, output_format="top", layers="top")
    with pytest.raises(OptionsError, match="layers is 'bottom'; give all, top, average"):
        embedder.embed_file(text, out, "bottom", overwrite=True)
    with pytest.raises(DataError, match="input_file must be the name of a file"):
        embedder.embed_file(["the cat"], out, overwrite=True)


def test_devices(files):
    with pytest.raises(OptionsError, match="cuda_device is 99; TensorFlow finds"):
        ElmoEmbedder(*files, cuda_device=99)
    with pytest.raises(OptionsError, match="vocab_file is 0; to choose a device give cuda_device=0"):
        ElmoEmbedder(*files, 0)
    with pytest.raises(OptionsError, match="cuda_device: names no device"):
        ElmoEmbedder(*files, cuda_device=[])
    with pytest.raises(OptionsError, match="carried on one device"):
        ElmoEmbedder(*files, cuda_device=[-1, -1], stateful=True)


@pytest.mark.slow
def test_several_devices_share_a_text(tmp_path, embedder, files):
    several = ElmoEmbedder(*files, cuda_device=[-1, -1, -1], batch_tokens=8)
    words = VOCAB.read_text().split()
    sentences = [words[i : i + i % 5] for i in range(40)]
    expected = embedder.embed_batch(sentences)
    assert_equal(list(several.embed_sentences(sentences)), expected)
    assert_equal(pickle.loads(pickle.dumps(several)).embed_batch(sentences), expected)
    text = tmp_path / "text.txt"
    text.write_text("".join(" ".join(sentence) + "\n" for sentence in sentences))
    several.embed_file(text, tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert_equal([file[str(i)][()] for i in range(40)], expected)


def test_copies(embedder, expected, tmp_path):
    again = pickle.loads(pickle.dumps(embedder))
    assert_equal(again.embed_batch(SENTENCES), expected)
    assert again.fingerprint == copy.deepcopy(embedder).fingerprint == embedder.fingerprint
    options, weights = write_model(tmp_path, n_words=73, char_cnn=None, lstm={"n_layers": 1})
    by_word = ElmoEmbedder(options, weights, VOCAB, max_cached_words=7)
    assert_equal(pickle.loads(pickle.dumps(by_word)).embed_batch(SENTENCES), by_word.embed_batch(SENTENCES))


def test_a_copy_goes_on_from_the_same_state(stateful):
    stateful.embed_batch(SENTENCES[:2])
    again = copy.deepcopy(stateful)
    assert_equal(again.embed_batch(SENTENCES[2:]), stateful.embed_batch(SENTENCES[2:]))


def _embed_there(embedder, queue):
    try:
        queue.put(embedder.embed_sentence(["a"]))
    except BilmError as error:
        queue.put(error)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_says_that_it_is_one(embedder):
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=_embed_there, args=(embedder, queue))
    child.start()
    error = queue.get()
    child.join()
    assert isinstance(error, ProcessError) and 'get_context("spawn")' in str(error)
