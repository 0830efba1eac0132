import numpy as np
import pytest
import tensorflow as tf

from bilm.layers.char_cnn import CharCNN
from bilm.options import Activation, CharCNNOptions
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary
from tests.checks import assert_gradients_match

FILTERS = ((1, 4), (2, 5), (5, 6))
MAX_CHARACTERS = 20


def make(activation="relu", output_dim=7, n_highway=2, max_characters=MAX_CHARACTERS, filters=FILTERS):
    options = CharCNNOptions(filters, Activation(activation), 3, max_characters, n_highway)
    layer = CharCNN(options, output_dim)
    layer.build()
    return layer


def plain(layer, rows):
    """The equations as the reference computes them: whole rows, bias, maximum, activation, highways."""
    activation = np.tanh if layer.options.activation.value == "tanh" else lambda x: np.maximum(x, 0)
    characters = layer.char_embed.numpy()[rows]  # (words, columns, dim)
    pooled = []
    for (width, _), kernel, bias in zip(layer.options.filters, layer.kernels, layer.biases, strict=True):
        windows = [
            np.tensordot(characters[:, k : k + width], kernel.numpy()[0], axes=[(1, 2), (0, 1)])
            + bias.numpy()
            for k in range(rows.shape[1] - width + 1)
        ]
        pooled.append(activation(np.max(windows, axis=0)))
    words = np.concatenate(pooled, axis=1)
    for carry, carry_bias, transform, transform_bias in layer.highways:
        gate = 1 / (1 + np.exp(-(words @ carry.numpy() + carry_bias.numpy())))
        words = gate * np.maximum(words @ transform.numpy() + transform_bias.numpy(), 0) + (1 - gate) * words
    if layer.projection is not None:
        words = words @ layer.projection[0].numpy() + layer.projection[1].numpy()
    return words


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize(("output_dim", "n_highway"), [(7, 2), (7, 0), (15, 1)])
def test_equals_the_equations(activation, output_dim, n_highway):
    layer = make(activation, output_dim, n_highway)
    rows = np.random.default_rng(0).integers(0, 261, (6, MAX_CHARACTERS))
    np.testing.assert_allclose(layer(tf.constant(rows)), plain(layer, rows), atol=1e-5)


def words_of_every_length(vocabulary):
    words = ["x" * n for n in range(1, 30)] + ["Ā" * n for n in range(1, 14)] + ["<S>", "</S>"]
    return np.stack([vocabulary.word_to_char_ids(word) for word in words])


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("max_characters", [6, 20, 50])
def test_length_buckets_equal_whole_rows_in_value_and_gradient(activation, max_characters):
    vocabulary = UnicodeCharsVocabulary.from_words(["<S>", "</S>", "<UNK>"], max_characters)
    rows = words_of_every_length(vocabulary)
    layer = make(activation, max_characters=max_characters)
    # Large weights, so that a window of padding is often the maximum.
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    widths, max_width = layer.options.bucket_widths, layer.options.max_width
    lengths = (rows != 260).sum(1)
    bucket = np.searchsorted(widths, np.minimum(max_characters, lengths + max_width))
    order = np.argsort(bucket, kind="stable")
    cut = tuple(tf.constant(rows[bucket == k][:, :width]) for k, width in enumerate(widths))
    sources = [weight.value for weight in layer.weights]
    assert_gradients_match(
        lambda: layer(cut), lambda: tf.gather(layer(tf.constant(rows)), order), sources, atol=1e-3
    )


def test_initial_values():
    layer = make("relu", 64, 1, filters=((3, 2000),))
    assert np.abs(layer.kernels[0]).max() <= 0.05 and np.abs(layer.char_embed).max() > 0.9
    carry, carry_bias, transform, transform_bias = layer.highways[0]
    assert np.all(carry_bias.numpy() == -2) and not np.any(transform_bias)
    assert np.std(transform) == pytest.approx((1 / 2000) ** 0.5, rel=0.05)
    tanh = make("tanh", 64, 0, filters=((3, 2000),))
    assert np.std(tanh.kernels[0]) == pytest.approx((1 / 9) ** 0.5, rel=0.05)
