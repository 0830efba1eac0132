"""The embedder as a library: what it takes, where it runs, copies of it, long sentences, bilm-tf's dumps."""

from __future__ import annotations

import copy
import io
import multiprocessing
import os
import pickle

import h5py
import numpy as np
import pytest
import tensorflow as tf

from bilm import BidirectionalLanguageModel
from bilm.data.batcher import Batcher, TokenBatcher
from bilm.embedding.embedder import ElmoEmbedder, dump_bilm_embeddings, dump_token_embeddings
from bilm.errors import BilmError, DataError, OptionsError, ProcessError, VocabularyError
from tests.corpora import write
from tests.helpers import VOCAB, run
from tests.models.test_bidirectional_lm import write_model

SENTENCES = [["the", "cat"], [], ["a", "dog", "sat"], ["the"]]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("small"), lstm={"n_layers": 1})


@pytest.fixture(scope="module")
def word_files(tmp_path_factory):
    """Of a model over words, which is compiled sooner than one over characters."""
    return (*write_model(tmp_path_factory.mktemp("words"), n_words=73, char_cnn=None), VOCAB)


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cuda_device": 99}, "cuda_device is 99; TensorFlow finds"),
        ({"vocab_file": 0}, "vocab_file is 0; to choose a device give cuda_device=0"),
        ({"cuda_device": []}, "cuda_device: names no device"),
        ({"cuda_device": [-1, -1], "stateful": True}, "carried on one device"),
        ({"batch_tokens": 100, "stateful": True}, "batch_tokens: with stateful=True"),
        ({"max_cached_words": 0}, "max_cached_words is 0"),
    ],
    ids=["none such", "positional", "none", "several", "tokens", "cache"],
)
def test_arguments_that_are_refused(files, arguments, message):
    with pytest.raises(OptionsError, match=message):
        ElmoEmbedder(*files, **arguments)


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


def test_copies(embedder, expected, word_files):
    again = pickle.loads(pickle.dumps(embedder))
    assert_equal(again.embed_batch(SENTENCES), expected)
    assert again.fingerprint == copy.deepcopy(embedder).fingerprint == embedder.fingerprint
    by_word = ElmoEmbedder(*word_files, max_cached_words=7)
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


# --- long sentences -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole_and_in_windows(word_files):
    """One embedder that takes rows whole, and one that takes them in windows."""
    return [ElmoEmbedder(*word_files, cuda_device=-1, batch_tokens=n) for n in (16384, 100)]


@pytest.mark.parametrize(
    ("layers", "dtype"),
    [
        ("all", "float32"),
        ("top", "float16"),
        pytest.param("average", "float32", marks=pytest.mark.slow),
        pytest.param(1, "float32", marks=pytest.mark.slow),
    ],
)
def test_windows_change_nothing(whole_and_in_windows, layers, dtype):
    words = VOCAB.read_text().split()[3:]
    sentences = [words[:11] * 300, [], ["the", "cat"], words[20:23] * 100, words[5:10]]
    whole, in_windows = (one.embed_chunk(sentences, layers, dtype) for one in whole_and_in_windows)
    for found, wanted in zip(in_windows, whole, strict=True):
        assert found.dtype == dtype and found.flags.c_contiguous
        np.testing.assert_array_equal(found, wanted)


# --- bilm-tf's dumps, with a vocabulary as its usage_cached.py makes it: without <UNK> ------------------


def test_cached_vectors_without_unk(tmp_path):
    files = write_model(
        tmp_path, lstm={"n_layers": 1}, char_cnn={"max_characters_per_token": 50}
    )  # the width of bilm-tf's Batcher
    vocab_file = write(tmp_path / "vocab.txt", "<S>\n</S>\nthe\ncat\ncompute\n")
    sentences = [["the", "cat", "compute"], ["cat"]]
    dump_token_embeddings(vocab_file, *files, tmp_path / "tokens.hdf5")
    batcher = TokenBatcher(vocab_file)
    model = BidirectionalLanguageModel(
        *files, use_character_inputs=False, embedding_weight_file=tmp_path / "tokens.hdf5"
    )
    cached = model(batcher.batch_sentences(sentences)).lm_embeddings
    ids = Batcher(vocab_file, 50).batch_sentences(sentences)
    np.testing.assert_allclose(cached, BidirectionalLanguageModel(*files)(ids).lm_embeddings, atol=1e-5)
    text = write(tmp_path / "text", "the cat\nthe dog\n")  # characters need no vocabulary
    dump_bilm_embeddings(vocab_file, text, *files, tmp_path / "out.hdf5")
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert file["0"].shape == file["1"].shape == (2, 2, 8)


def test_a_model_over_words_without_unk(tmp_path):
    files = write_model(tmp_path, n_words=4, char_cnn=None, lstm={"n_layers": 1})
    vocab_file = write(tmp_path / "vocab", "<S>\n</S>\nthe\ncat\n")
    known = write(tmp_path / "known", "the cat\n")
    dump_bilm_embeddings(vocab_file, known, *files, tmp_path / "out.hdf5")
    embedder = ElmoEmbedder(*files, vocab_file)
    with h5py.File(tmp_path / "out.hdf5") as file:
        assert_equal([file["0"][()]], [embedder.embed_sentence(["the", "cat"])])
    for _ in range(2):
        with pytest.raises(VocabularyError, match="'dog' is not in the vocabulary, which has no <UNK>"):
            embedder.embed_sentence(["the", "dog"])


@pytest.mark.slow
def test_a_saved_model_without_unk_fails_at_an_unknown_word(tmp_path):
    options_file, weight_file = write_model(tmp_path, n_words=4, char_cnn=None)
    vocab_file = write(tmp_path / "vocab", "<S>\n</S>\nthe\ncat\n")
    run(
        *("export", "--saved-model", tmp_path / "elmo", "--vocab-file", vocab_file),
        *("--options-file", options_file, "--weight-file", weight_file),
    )
    default = tf.saved_model.load(str(tmp_path / "elmo")).signatures["default"]
    assert default(tf.constant(["the cat", "the"]))["elmo"].shape == (2, 2, 8)
    with pytest.raises(tf.errors.InvalidArgumentError, match="which has no <UNK>.*dog"):
        default(tf.constant(["the cat", "dog"]))
