"""`bilm export`: a SavedModel that gives what Python gives, without this package."""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bilm.embedding.embedder import ElmoEmbedder
from bilm.models.encoder import Encoder
from bilm.models.saved_model import ServedElmo
from bilm.options import LSTMOptions, Options
from bilm.vocabulary.vocabulary import Vocabulary
from tests.helpers import MODEL, VOCAB, python, raising, refuse, run, snapshot
from tests.models.test_bidirectional_lm import golden, sentences_of, write_model


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The flags of a model that is exported soon."""
    changes = {"char_cnn": None, "lstm": {"n_layers": 1}}
    directory, vocabulary = tmp_path_factory.mktemp("small"), VOCAB.read_text().split("\n")
    options, weights = write_model(directory, n_words=73, **changes)
    vocabulary[70:72] = ["", "the"]  # a blank and a repeated line, as in some published vocabularies
    (directory / "vocab.txt").write_text("\n".join(vocabulary))
    return ("--options-file", options, "--weight-file", weights, "--vocab-file", directory / "vocab.txt")


@pytest.fixture(scope="module")
def exported(small, tmp_path_factory):
    directory = tmp_path_factory.mktemp("export") / "elmo"
    output = run("export", "--saved-model", directory, *small)
    assert "outputs word_emb, lstm_outputs1, elmo, default" in output
    return directory


@pytest.fixture(scope="module")
def loaded(exported):
    return tf.saved_model.load(str(exported))


def test_unknown_word_without_unk_is_refused():
    encoder = Encoder(Options(LSTMOptions(4, 4), n_tokens_vocab=3))
    encoder.build()
    served = ServedElmo(encoder, Vocabulary.from_words(["<S>", "</S>", "a"]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="which has no <UNK>"):
        served.default(tf.constant(["a b"]))


def check(outputs, expected, n_layers, dim):
    names = {"word_emb", "elmo", "default", *(f"lstm_outputs{i}" for i in range(1, n_layers))}
    assert set(outputs) == names
    for row, layers in enumerate(expected):
        n = layers.shape[1]
        np.testing.assert_allclose(outputs["word_emb"][row, :n], layers[0, :, :dim], atol=1e-5)
        for i in range(1, n_layers):
            np.testing.assert_allclose(outputs[f"lstm_outputs{i}"][row, :n], layers[i], atol=1e-5)
        np.testing.assert_allclose(outputs["elmo"][row, :n], layers.mean(axis=0), atol=1e-5)
        assert not np.any(outputs["elmo"][row, n:])
        np.testing.assert_allclose(outputs["default"][row], layers.mean(axis=(0, 1)), atol=1e-5)


def padded(sentences):
    longest = max(map(len, sentences))
    return {
        "tokens": tf.constant([words + [""] * (longest - len(words)) for words in sentences]),
        "sequence_len": tf.constant([len(words) for words in sentences]),
    }


def check_both_signatures(loaded, expected, n_layers, dim):
    sentences = sentences_of("char")
    check(loaded.signatures["tokens"](**padded(sentences)), expected, n_layers, dim)
    strings = tf.constant([" ".join(words) for words in sentences])
    for name in ("default", "serving_default"):  # the second is TensorFlow Serving's
        check(loaded.signatures[name](strings=strings), expected, n_layers, dim)


@pytest.mark.slow
def test_both_signatures_agree_with_bilm_tf(tmp_path):
    output = run("export", "--saved-model", tmp_path / "elmo", *MODEL)
    assert "outputs word_emb, lstm_outputs1, lstm_outputs2, elmo, default" in output
    loaded = tf.saved_model.load(str(tmp_path / "elmo"))
    check_both_signatures(loaded, golden("char", "stateless"), 3, 12)


def test_both_signatures_agree_with_the_embedder(loaded, small):
    expected = ElmoEmbedder(*small[1::2]).embed_batch(sentences_of("char"))
    check_both_signatures(loaded, expected, 2, 4)
    check(loaded.tokens(**padded(sentences_of("char"))), expected, 2, 4)
    assert not np.any(loaded.signatures["default"](strings=tf.constant(["", "a"]))["default"][0])  # nor NaN


@pytest.mark.slow
@pytest.mark.parametrize("is_signature", [True, False])
def test_the_mix_is_trained_and_saved_again(exported, small, tmp_path, is_signature):
    model, batch = tf.saved_model.load(str(exported)), padded(sentences_of("char"))
    tokens = model.signatures["tokens"] if is_signature else model.tokens
    mix = [model.layer_weights, model.gamma]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tokens(**batch)["elmo"] ** 2)
    of_mix, of_encoder = tape.gradient(loss, [mix, [*model.tensors]])
    assert {*of_encoder} == {None}
    for variable, gradient in zip(mix, of_mix, strict=True):
        assert np.all(np.abs(gradient) > 0)
        variable.assign_sub(0.01 * gradient)
    tf.saved_model.save(model, str(tmp_path / "tuned"), signatures=model.signatures)
    tuned = tf.saved_model.load(str(tmp_path / "tuned")).signatures["tokens"](**batch)["elmo"]
    shares = np.asarray(tf.nn.softmax(mix[0]) * mix[1])
    for row, layers in zip(tuned, ElmoEmbedder(*small[1::2]).embed_batch(sentences_of("char")), strict=True):
        expected = np.einsum("k,kwd->wd", shares, layers)
        np.testing.assert_allclose(row[: len(expected)], expected, atol=1e-5)


def test_lengths_that_are_wrong(loaded):
    batch = padded(sentences_of("char"))
    lengths = batch["sequence_len"]
    too_long = lengths + tf.shape(batch["tokens"])[1]
    for wrong in (too_long, -lengths - 1, lengths[:1]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="sequence_len must have a number for each"):
            loaded.signatures["tokens"](tokens=batch["tokens"], sequence_len=wrong)


@pytest.mark.slow
def test_it_needs_tensorflow_alone(exported):
    code = (
        "import sys, tensorflow as tf\n"
        f"model = tf.saved_model.load({str(exported)!r})\n"
        "print(model.signatures['default'](tf.constant(['a b', '']))['default'].shape)\n"
        "assert 'bilm' not in sys.modules and 'keras' not in sys.modules"
    )
    done = python("-c", code, cwd=exported.parent)
    assert done.stdout == "(2, 8)\n", done.stderr


def test_it_needs_no_compiler(exported):
    """Servers may have none."""
    graph = saved_model_pb2.SavedModel()
    graph.ParseFromString((exported / "saved_model.pb").read_bytes())
    functions = graph.meta_graphs[0].graph_def.library.function
    assert functions and not any(function.attr["_XlaMustCompile"].b for function in functions)


@pytest.mark.slow
def test_what_exists_is_kept(exported, small, tmp_path):
    before = snapshot(exported)
    assert "--overwrite replaces it" in refuse("export", "--saved-model", exported, *MODEL)
    assert snapshot(exported) == before
    target = shutil.copytree(exported, tmp_path / "sm" / "elmo")
    shutil.rmtree(target / "variables")
    run("export", "--saved-model", target, *small, "--overwrite")
    assert snapshot(target).keys() == before.keys() and [*target.parent.iterdir()] == [target]


def test_a_directory_with_more_in_it_is_not_replaced(exported, tmp_path, monkeypatch):
    monkeypatch.setattr("bilm.embedding.embedder.ElmoEmbedder", raising(AssertionError("it was begun")))
    target = shutil.copytree(exported, tmp_path / "sm")
    command = ("export", "--saved-model", target, "--overwrite")
    (target / "notes.txt").write_text("mine")
    before = snapshot(target)
    assert "is not a SavedModel that bilm wrote, with nothing else in it" in refuse(*command, *MODEL)
    assert snapshot(target) == before
