"""The embedder as a library: what it takes, where it runs, copies of it, long sentences, bilm-tf's dumps."""

import copy
import io
import json
import os
import pickle
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import h5py
import keras
import numpy as np
import pytest

from bilm import BidirectionalLanguageModel, WordPredictor
from bilm.data.batcher import Batcher, TokenBatcher
from bilm.data.packing import ALL_LAYERS, VectorForm
from bilm.embedding.embedder import ElmoEmbedder, dump_bilm_embeddings, dump_token_embeddings
from bilm.errors import BilmError, DataError, OptionsError, ProcessError, VocabularyError
from bilm.run_directory.directory import RunDirectory
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary
from tests.corpora import write
from tests.helpers import GOLDEN, VOCAB, raising, write_json
from tests.models.test_bidirectional_lm import write_model

RUN = GOLDEN / "word-shared" / "final"
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
def expected(embedder):
    return embedder.embed_batch(SENTENCES)


@pytest.fixture(scope="module")
def stateful(files):
    return ElmoEmbedder(*files, stateful=True, batch_size=2)


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.slow
def test_embedder_takes_iterables(embedder, expected):
    assert_equal(embedder.embed_batch(iter(map(tuple, SENTENCES))), expected)
    assert_equal(embedder.embed_batch([np.array(words, str) for words in SENTENCES]), expected)
    assert_equal([*embedder.embed_sentences(map(iter, SENTENCES))], expected)
    for call in (embedder.embed_batch, embedder.batch_to_embeddings, embedder.embed_sentences):
        with pytest.raises(DataError, match="sentence 1, word 1 is of type int, not a string: 3"):
            list(call([["a"], ["b", 3]]))


def test_words_are_encoded_once(embedder, expected, monkeypatch):
    embedder.embed_batch(SENTENCES)
    monkeypatch.setattr(type(embedder.model._words), "_encode", raising(AssertionError("encoded again")))
    assert_equal(embedder.embed_batch(SENTENCES), expected)


def test_full_cache_of_words_is_emptied(embedder, files, expected):
    small = ElmoEmbedder(*files, cuda_device=-1, max_cached_words=4)
    assert_equal([vectors for words in SENTENCES for vectors in small.embed_batch([words])], expected)


def test_batch_to_embeddings_pads(embedder, expected):
    embeddings, mask = embedder.batch_to_embeddings(SENTENCES)
    assert embeddings.shape == (4, embedder.n_layers, 3, embedder.get_output_dim())
    assert mask.tolist() == [[1, 1, 0], [0, 0, 0], [1, 1, 1], [1, 0, 0]]
    assert_equal([row[:, :n] for row, n in zip(embeddings, mask.sum(axis=1), strict=True)], expected)
    assert not embeddings[1].any()


def test_batch_size_of_call_sets_rows(embedder, stateful, expected):
    assert_equal([*embedder.embed_sentences(SENTENCES, 1)], expected)
    for batch_size, batches in [(None, [SENTENCES[:2], SENTENCES[2:]]), (1, [[one] for one in SENTENCES])]:
        stateful.model.reset_states()
        wanted = [vectors for batch in batches for vectors in stateful.embed_batch(batch)]
        stateful.model.reset_states()
        found = ElmoEmbedder.embed_sentences(stateful, SENTENCES, batch_size)
        assert_equal([*found], wanted)
    with pytest.raises(OptionsError, match="batch_size is 0"):
        embedder.embed_sentences(SENTENCES, batch_size=0)
    with pytest.raises(OptionsError, match="batch_size is 3, but the state of only 2 sentences is carried"):
        stateful.embed_sentences(SENTENCES, batch_size=3)


def test_stateful_chunks_are_whole_batches(stateful, monkeypatch):
    stateful.model.reset_states()
    whole = [*stateful.embed_sentences(SENTENCES * 3)]
    stateful.model.reset_states()
    monkeypatch.setattr("bilm.embedding.chunk_embedder._BATCH_TOKENS", 5)  # the third sentence has them
    assert_equal([*stateful.embed_sentences(SENTENCES * 3)], whole)
    stateful.model.reset_states()
    vectors = [vector for sentence in whole for vector in np.moveaxis(sentence, 1, 0)]
    assert_equal([word.vector for word in stateful.embed_words(SENTENCES * 3, layers="all")], vectors)


def test_embed_file_takes_allennlp_arguments(embedder, expected, tmp_path):
    text, out = tmp_path / "text.txt", tmp_path / "out.hdf5"
    text.write_text("".join(f"{' '.join(words)}\n" for words in SENTENCES))
    with text.open() as lines, text.open("rb") as content, tempfile.NamedTemporaryFile("w+") as other:
        other.write(text.read_text())
        other.seek(0)
        for file in (
            str(text),
            lines,
            content,
            other,
            io.StringIO("\ufeff" + text.read_text().replace("\n", "\r")),
        ):
            embedder.embed_file(file, out, "top", 64, True, overwrite=True)
            with h5py.File(out) as found:
                assert_equal([found[str(i)][()] for i in range(4)], [vectors[-1] for vectors in expected])
    embedder.embed_file(text, output_file_path=out, output_format="average", overwrite=True)
    with h5py.File(out) as found:
        assert_equal([found["0"][()]], [expected[0].mean(axis=0)])
    for file, arguments, message in (
        (text, {"layers": "bottom"}, "layers is 'bottom'; give all, top, average"),
        (["the cat"], {}, "input_file must be the name of a file"),
        (text, {"forget_sentences": 0}, "`forget_sentences` is 0; it must be True or False"),
    ):
        with pytest.raises(BilmError, match=message):
            embedder.embed_file(file, out, **arguments, overwrite=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cuda_device": []}, "cuda_device: names no device"),
        ({"cuda_device": "cpu"}, "`cuda_device` is 'cpu'; TensorFlow finds"),
        ({"cuda_device": [-1, True]}, "`cuda_device` is True; TensorFlow finds"),
        ({"cuda_device": [-1, -1], "stateful": True}, "carried on one device"),
        ({"batch_tokens": 100, "stateful": True}, "batch_tokens: with stateful=True"),
        ({"batch_size": "3"}, "batch_size is '3'; it must be an integer"),
        ({"max_cached_words": 0}, "max_cached_words is 0"),
        ({"precision": "half"}, "`precision` is 'half', not one of"),
        ({"stateful": "no"}, "`stateful` is 'no'; it must be True or False"),
    ],
    ids=["none", "text", "flag", "several", "tokens", "kind", "cache", "precision", "switch"],
)
def test_settings_are_checked_before_a_model_is_read(settings, message):
    calls = (ElmoEmbedder.from_model, lambda none, **s: ElmoEmbedder(none, none, **s))
    for call in calls:
        with pytest.raises(OptionsError, match=message):
            call("no such file", **settings)


@pytest.mark.slow
def test_several_devices_give_equal_vectors(embedder, files):
    several = ElmoEmbedder(*files, cuda_device=[-1, -1, -1], batch_tokens=8)
    words = VOCAB.read_text().split()
    sentences = [words[i : i + i % 5] for i in range(40)]
    expected = embedder.embed_batch(sentences)
    assert_equal(list(several.embed_sentences(sentences)), expected)
    assert_equal(pickle.loads(pickle.dumps(several)).embed_batch(sentences), expected)


def test_models_refuse_to_run_in_a_fork(embedder, files, monkeypatch):
    ids = Batcher(None, 20).batch_sentences(SENTENCES)
    model = BidirectionalLanguageModel(*files)
    predictor = WordPredictor.from_model(RUN, RUN.parent / "vocab.txt")
    calls = [lambda: embedder.embed_batch(SENTENCES), lambda: model(ids)]
    calls += [lambda: list(predictor(SENTENCES)), lambda: list(predictor.predict(SENTENCES))]
    calls += [lambda: ElmoEmbedder(*files)]
    monkeypatch.setattr(embedder, "_free", None)  # a thread that is not in the fork has the model
    monkeypatch.setattr(os, "getpid", lambda: 1)
    for call in calls:
        with pytest.raises(ProcessError, match="cannot run in a fork: start processes with .*spawn"):
            call()


@pytest.mark.slow
def test_copies_give_equal_vectors(embedder, expected, stateful, word_files):
    again = pickle.loads(pickle.dumps(embedder))
    assert_equal(again.embed_batch(SENTENCES), expected)
    assert again.fingerprint == copy.deepcopy(embedder).fingerprint == embedder.fingerprint
    rounded = ElmoEmbedder(*word_files, precision="bfloat16")
    assert copy.deepcopy(rounded).fingerprint == rounded.fingerprint
    words = ElmoEmbedder(*word_files)
    assert ElmoEmbedder.from_bytes(words.to_bytes()).fingerprint == words.fingerprint
    stateful.embed_batch(SENTENCES[:2])
    # Each goes on from the same state.
    vectors = [each.embed_batch(SENTENCES[2:]) for each in (copy.copy(stateful), copy.deepcopy(stateful))]
    for found in vectors:
        assert_equal(found, vectors[0])
    assert_equal(stateful.embed_batch(SENTENCES[2:]), vectors[0])


def test_archive_has_no_time(embedder, monkeypatch):
    before, now = embedder.to_bytes(), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 60)
    assert embedder.to_bytes() == before


def test_fingerprint_is_that_of_options_and_words_too(word_files, tmp_path):
    options = json.loads(word_files[0].read_text())
    options["lstm"]["cell_clip"] = 2
    clipped = write_json(tmp_path / "options.json", options)
    others = write(tmp_path / "other.txt", VOCAB.read_text().rstrip() + "s\n")
    learned = shutil.copy(word_files[1], tmp_path / "weights.hdf5")
    with h5py.File(learned, "r+") as file:
        file["embedding"][1] = file["embedding"][2]
    files = (word_files, (clipped, *word_files[1:]), (*word_files[:2], others))
    files = (*files, (word_files[0], learned, word_files[2]))
    assert len({ElmoEmbedder(*each).fingerprint for each in files}) == 4


def test_threads_take_turns_with_a_model(embedder, expected, monkeypatch):
    busy = []

    def one_at_a_time(model, sentences, form, max_rows):
        assert not busy
        busy.append(1)
        time.sleep(0.01)
        busy.pop()
        return [np.zeros((2, len(words), 24)) for words in sentences]

    monkeypatch.setattr(type(embedder.model), "__call__", one_at_a_time)
    with ThreadPoolExecutor(4) as threads:
        for result in [threads.submit(list, embedder.embed_sentences(SENTENCES, n)) for n in [1, 2] * 4]:
            result.result()


# --- layers and pooling -------------------------------------------------------------------------------


def test_layers_characters_is_output_of_convolutions(embedder):
    """As the character CNN of the same weights computes it without highways and projection."""
    cnn = embedder.model.encoder.char_cnn
    width = cnn.options.max_characters_per_token
    rows = UnicodeCharsVocabulary.from_words(["<S>", "</S>", "<UNK>"], width).encode_chars(["a", "dog"])[1:-1]
    kernel, biases = cnn._stacked_kernel(), np.concatenate(cnn.biases)
    expected = np.maximum(cnn._pool(keras.ops.convert_to_tensor(rows), kernel) + biases, 0.0)
    found = [*embedder.embed_sentences([["a", "dog"], []], layers="characters")]
    np.testing.assert_allclose(found[0], expected, atol=1e-6)
    assert found[1].shape == (0, cnn.options.n_filters)
    [pooled] = embedder.embed_sentences([["a", "dog"]], layers="characters", pooling="max")
    np.testing.assert_allclose(pooled, expected.max(axis=0), atol=1e-6)


def test_layers_concat_is_layers_and_convolutions_end_to_end(embedder, word_files):
    sentences = [["a", "dog"], [], ["the", "cat", "sat"]]
    for each, has_characters in ((embedder, True), (ElmoEmbedder(*word_files), False)):
        found = [*each.embed_sentences(sentences, layers="concat")]
        parts = [[*layers] for layers in each.embed_batch(sentences)]
        if has_characters:
            convolutions = each.embed_sentences(sentences, layers="characters")
            parts = [[*layers, last] for layers, last in zip(parts, convolutions, strict=True)]
        assert_equal(found, [np.concatenate(sentence, axis=-1) for sentence in parts])
        assert each.no_vectors(VectorForm("concat")).shape == (0, found[0].shape[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["char-forward", "word-shared", "char"])
def test_layers_concat_with_softmax_adds_rows(name):
    run = RunDirectory.open(GOLDEN / name / "final")
    vocabulary = GOLDEN / name / "vocab.txt"
    plain = ElmoEmbedder.from_model(run.path, vocabulary if name == "word-shared" else None)
    whole = ElmoEmbedder.from_model(run.path, vocabulary, with_softmax=True)
    [expected], [found] = (
        list(embedder.embed_sentences([["the", "Zyzzyva"]], layers="concat"))
        for embedder in (plain, pickle.loads(pickle.dumps(whole)))  # noqa: S301
    )
    weights = run.weights()
    rows = weights.get("softmax/W", weights.get("encoder/embedding"))
    words = vocabulary.read_text().split("\n")
    added = rows[[words.index("the"), words.index("<UNK>")]]
    np.testing.assert_allclose(found, np.concatenate([expected, added], axis=1), atol=1e-6)
    assert whole.no_vectors(VectorForm("concat")).shape == (0, found.shape[-1])
    assert whole.fingerprint != plain.fingerprint


@pytest.mark.parametrize(("pooling", "pool"), [("mean", np.mean), ("max", np.max)])
def test_pooling_leaves_marks_out(embedder, expected, pooling, pool):
    found = [*embedder.embed_sentences(SENTENCES, pooling=pooling)]
    wanted = [pool(vectors, axis=1) if vectors.size else np.zeros((2, 8)) for vectors in expected]
    assert_equal(found, wanted)
    tops = [vectors[-1] for vectors in wanted]
    assert_equal([*embedder.embed_sentences(SENTENCES, layers="top", pooling=pooling)], tops)


def test_unknown_forms_are_refused(embedder, word_files):
    with pytest.raises(OptionsError, match="`pooling` is 'sum', not one of mean, max"):
        embedder.embed_sentences(SENTENCES, pooling="sum")
    for name, value in (("dtype", "int32"), ("dtype", np.float16), ("compression", "zip")):
        with pytest.raises(OptionsError, match=f"{name} is .*; give "):
            embedder.embed_file(VOCAB, "out.hdf5", **{name: value})
    with pytest.raises(OptionsError, match="no layer 7; the model has the layers 0 to 1"):
        next(embedder.embed_sentences(SENTENCES, layers=7))
    for layers in (1.0, True, np.array(1)):
        with pytest.raises(OptionsError, match="`layers` is .*; it must be a string or an integer"):
            next(embedder.embed_sentences(SENTENCES, layers=layers))
    with pytest.raises(OptionsError, match="the model reads words of its vocabulary, not characters"):
        ElmoEmbedder(*word_files).embed_sentences(SENTENCES, layers="characters")


# --- long sentences -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_windows_give_equal_vectors(word_files):
    words = VOCAB.read_text().split()[3:]
    sentences = [words[:11] * 40, [], ["the", "cat"], words[20:23] * 50, words[5:10]]
    embedders = [ElmoEmbedder(*word_files, cuda_device=-1, batch_tokens=n) for n in (16384, 100)]
    for form in (ALL_LAYERS, VectorForm("average", "float16"), VectorForm("top", "float16", "mean")):
        whole, in_windows = (embedder.embed_chunk(sentences, form) for embedder in embedders)
        for found, wanted in zip(in_windows, whole, strict=True):
            assert found.dtype == form.dtype and found.flags.c_contiguous
            np.testing.assert_array_equal(found, wanted)


def test_stored_word_vectors_need_words_in_the_models_form(tmp_path):
    files = write_model(tmp_path, lstm={"n_layers": 1}, unicode_form="NFC")
    vocab_file = write(tmp_path / "v.txt", "<S>\n</S>\n<UNK>\ncafe\u0301\n")
    with pytest.raises(VocabularyError, match="is not in NFC, which the option unicode_form requires"):
        dump_token_embeddings(vocab_file, *files, tmp_path / "v.hdf5")
    assert not (tmp_path / "v.hdf5").exists()


# --- bilm-tf's dumps, with a vocabulary as its usage_cached.py makes it: without <UNK> ------------------


@pytest.mark.slow
def test_dump_token_embeddings_needs_no_unk(tmp_path):
    width = {"max_characters_per_token": 50}  # of bilm-tf's Batcher
    files = write_model(tmp_path, lstm={"n_layers": 1}, char_cnn=width, bidirectional=False)
    vocab_file = write(tmp_path / "vocab.txt", "<S>\n</S>\nthe\ncat\ncompute\n")
    sentences = [["the", "cat", "compute"], ["cat"]]
    dump_token_embeddings(vocab_file, *files, tmp_path / "tokens.hdf5")
    batcher = TokenBatcher(vocab_file)
    model = BidirectionalLanguageModel(*files, False, tmp_path / "tokens.hdf5")
    cached = model(batcher.batch_sentences(sentences)).lm_embeddings
    ids = Batcher(vocab_file, 50).batch_sentences(sentences)
    np.testing.assert_allclose(cached, BidirectionalLanguageModel(*files)(ids).lm_embeddings, atol=1e-5)
    text = write(tmp_path / "text", "the cat\nthe dog\n")  # characters need no vocabulary
    for any_file in (vocab_file, write(tmp_path / "bare.txt", "the\n\nthe\n"), None):
        dump_bilm_embeddings(any_file, text, *files, tmp_path / "out.hdf5")
        with h5py.File(tmp_path / "out.hdf5") as file:
            assert file["0"].shape == file["1"].shape == (2, 2, 4)
