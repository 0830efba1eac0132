"""ELMo inside Keras models."""

from __future__ import annotations

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.batching import TokenBatcher, batch_to_ids
from bilm.elmo import BidirectionalLanguageModel
from bilm.elmo_layer import Elmo
from bilm.errors import OptionsError
from bilm.layers.character_ids import SentenceVectorizer, split_sentences
from bilm.text import WHITE_SPACE
from tests.helpers import GOLDEN, VOCAB
from tests.test_elmo import VARIANTS, golden, sentences_of, write_model

CHAR = (GOLDEN / "char" / "options.json", GOLDEN / "char" / "weights.hdf5")


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_initial_mix_is_the_mean_of_the_layers(variant):
    layer = Elmo(GOLDEN / variant / "options.json", GOLDEN / variant / "weights.hdf5")
    found = layer(batch_to_ids(sentences_of(variant)))
    for row, layers in zip(found, golden(variant, "stateless"), strict=True):
        np.testing.assert_allclose(row[: layers.shape[1]], layers.mean(axis=0), atol=1e-5)


def test_strings_give_the_ids_of_batch_to_ids():
    sentences = [["The", "naïve", "<S>", "x" * 60], [], ["日本語" * 17, "</S>", "a"]]
    ids = SentenceVectorizer()(tf.constant([" ".join(words) for words in sentences]))
    np.testing.assert_array_equal(ids, batch_to_ids(sentences))
    short = SentenceVectorizer(max_characters=5)(tf.constant(["abcdef a"]))
    assert short.numpy().tolist() == [[[259, 98, 99, 100, 260], [259, 98, 260, 261, 261]]]


def test_strings_are_split_as_python_splits_them():
    texts = [f"{c}the{c}{c}naïve{c}" for c in WHITE_SPACE] + ["", " ", "a\0b\ufeff\u200bc", WHITE_SPACE]
    found = SentenceVectorizer()(tf.constant(texts))
    np.testing.assert_array_equal(found, batch_to_ids([text.split() for text in texts]))
    words, lengths = split_sentences(tf.constant([b"\xff\x85 \xc2\xa0 \xc2"]))  # no text, and yet kept
    assert words.numpy().tolist() == [[b"\xff\x85", b"\xc2"]] and lengths.numpy().tolist() == [2]


def model_on_strings(**arguments):
    inputs = keras.Input((), dtype="string")
    vectors = Elmo(*CHAR, **arguments)(SentenceVectorizer()(inputs))
    return keras.Model(inputs, keras.layers.Dense(1)(keras.layers.GlobalAveragePooling1D()(vectors)))


TEXTS = tf.constant(["the cat sat", "a", "some more words than before"])


def test_the_mask_leaves_padding_out():
    model = model_on_strings()
    together = model(TEXTS)
    alone = tf.concat([model(TEXTS[i : i + 1]) for i in range(3)], axis=0)
    np.testing.assert_allclose(together, alone, atol=1e-6)


@pytest.mark.parametrize("trainable", [True, False])
def test_training_changes_the_language_model_only_if_asked(trainable):
    model = model_on_strings(trainable=trainable, l2_coef=0.01)
    layer = next(layer for layer in model.layers if isinstance(layer, Elmo))
    before = {variable.path: variable.numpy() for variable in layer.weights}
    model.compile(keras.optimizers.Adam(0.01), loss="mse")
    history = model.fit(TEXTS, tf.constant([[1.0], [0.0], [-1.0]]), epochs=4, verbose=0)
    assert history.history["loss"][-1] < history.history["loss"][0]
    changed = {path for path, value in before.items() if not np.array_equal(value, _value(layer, path))}
    mixes = {path for path in before if "mix_0" in path}
    assert changed == (set(before) if trainable else mixes)


@pytest.mark.parametrize("trainable", [True, False])
def test_no_gradient_is_computed_for_a_frozen_language_model(trainable):
    layer = Elmo(*CHAR, trainable=trainable)
    with tf.GradientTape() as tape:
        result = tf.reduce_sum(layer(SentenceVectorizer()(TEXTS)))
    variables = [weight.value for weight in [*layer.encoder.weights, *layer.mixes[0].weights]]
    gradients = [gradient is not None for gradient in tape.gradient(result, variables)]
    assert gradients == [trainable] * (len(variables) - 2) + [True] * 2


def _value(layer, path):
    return next(variable.numpy() for variable in layer.weights if variable.path == path)


@pytest.mark.parametrize("arguments", [{}, {"keep_sentence_boundaries": True, "do_layer_norm": True}])
def test_a_saved_model_needs_no_other_file(arguments, tmp_path):
    model = model_on_strings(**arguments)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(again(TEXTS), model(TEXTS), atol=1e-6)
    assert json.dumps(again.get_config()) == json.dumps(model.get_config())


def test_representations_and_dropout():
    layer = Elmo(*CHAR, num_output_representations=2, dropout=0.5)
    ids = batch_to_ids([["a", "b"], ["c"]])
    first, second = layer(ids)
    np.testing.assert_array_equal(first, second)
    layer.mixes[1].gamma.assign([2.0])
    np.testing.assert_allclose(layer(ids)[1], 2 * first, atol=1e-6)
    dropped = layer(ids, training=True)[0].numpy()[0]
    assert 0.2 < (dropped == 0).mean() < 0.8
    assert [mask.numpy().tolist() for mask in layer.compute_mask(ids)] == [[[True, True], [True, False]]] * 2


def test_sentence_boundaries():
    ids = batch_to_ids([["a", "b"], ["c"]])
    inner, outer = Elmo(*CHAR)(ids), Elmo(*CHAR, keep_sentence_boundaries=True)(ids)
    assert outer.shape == (2, 4, 24)
    np.testing.assert_allclose(outer[0, 1:3], inner[0], atol=1e-6)
    assert np.any(outer[1, 2]) and not np.any(outer[1, 3])


def test_word_level_models(tmp_path):
    options, weights = write_model(tmp_path, n_words=73, char_cnn=None)
    ids = TokenBatcher(VOCAB).batch_sentences([["the", "cat"], ["the"]])
    expected = BidirectionalLanguageModel(options, weights, use_character_inputs=False)(ids)
    inputs = keras.Input((None,), dtype="int32")
    model = keras.Model(inputs, Elmo(options, weights)(inputs))
    np.testing.assert_allclose(model(ids), tf.reduce_mean(expected.lm_embeddings, axis=1), atol=1e-6)
    model.save(tmp_path / "model.keras")
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "model.keras")(ids), model(ids), atol=1e-6)


def test_no_representation_is_refused():
    with pytest.raises(OptionsError, match="num_output_representations is 0"):
        Elmo(*CHAR, num_output_representations=0)
