import numpy as np
import pytest
import tensorflow as tf

from bilm.layers.softmax import VocabularySoftmax, full_cross_entropy
from bilm.training.negative_sampling import LogUniformSampler
from tests.checks import assert_gradients_match

N_TOKENS, DIM, N_WORDS = 30, 6, 50
RANDOM = np.random.default_rng(0)
HIDDEN = tf.constant(RANDOM.normal(size=(N_TOKENS, DIM)), tf.float32)
TARGETS = tf.constant(RANDOM.integers(0, N_WORDS, N_TOKENS), tf.int32)


@pytest.fixture
def layer():
    layer = VocabularySoftmax(N_WORDS, DIM)
    layer.build()
    layer.bias.assign(np.random.default_rng(3).normal(size=N_WORDS))
    return layer


@pytest.mark.parametrize("chunk", [1, 7, 50, 51])
def test_chunks_equal_the_whole_in_value_and_gradient(layer, chunk):
    kernel, bias = layer.kernel.value, layer.bias.value
    assert_gradients_match(
        tf.function(
            lambda: full_cross_entropy(HIDDEN, TARGETS, tf.identity(kernel), tf.identity(bias), chunk)
        ),
        lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(TARGETS, layer(HIDDEN)),
        [HIDDEN, kernel, bias],
    )


def test_large_logits_do_not_overflow(layer):
    layer.bias.assign(1000 * np.random.default_rng(3).normal(size=N_WORDS))
    exact = tf.nn.sparse_softmax_cross_entropy_with_logits(TARGETS, layer(HIDDEN))
    np.testing.assert_allclose(layer.full_losses(HIDDEN, TARGETS), exact, rtol=1e-5)


def reference_sampled_loss(layer, negatives):
    """TensorFlow's own, given the same sample and the expected counts in double precision."""

    def expected_count(ids):
        ids = np.asarray(ids, np.float64)
        p = np.log((ids + 2) / (ids + 1)) / np.log(N_WORDS + 1)
        return tf.constant(-np.expm1(float(negatives.n_draws) * np.log1p(-p)), tf.float32)

    ids, targets = np.int64(negatives.ids), np.int64(TARGETS)[:, None]
    sampled = (ids, expected_count(targets), expected_count(ids))
    weights = layer.kernel.value, layer.bias.value
    return tf.nn.sampled_softmax_loss(*weights, targets, HIDDEN, len(ids), N_WORDS, sampled_values=sampled)


@pytest.mark.parametrize("n_samples", [1, 20, 50])
def test_sampled_losses_equal_tensorflows(layer, n_samples):
    negatives = LogUniformSampler(n_samples, N_WORDS, seed=1).sample(1, 0)
    ids, n_draws = map(tf.constant, negatives)
    if n_samples == 20:  # both kinds of target occur
        assert 0 < np.isin(TARGETS, negatives.ids).sum() < N_TOKENS
    assert_gradients_match(
        tf.function(lambda: layer.sampled_losses(HIDDEN, TARGETS, ids, n_draws), autograph=False),
        lambda: reference_sampled_loss(layer, negatives),
        [HIDDEN, layer.kernel.value, layer.bias.value],
        atol=1e-4,
    )


def test_sampled_gradients_are_sparse(layer):
    ids, n_draws = map(tf.constant, LogUniformSampler(10, N_WORDS, seed=1).sample(1, 0))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer.sampled_losses(HIDDEN, TARGETS, ids, n_draws))
    for gradient in tape.gradient(loss, [layer.kernel.value, layer.bias.value]):
        assert isinstance(gradient, tf.IndexedSlices)
        assert set(gradient.indices.numpy()) == set(TARGETS.numpy()) | set(ids.numpy())
