import numpy as np
import pytest
import tensorflow as tf

from bilm.layers.softmax import VocabularySoftmax, full_cross_entropy
from bilm.training.negative_sampling import LogUniformSampler
from tests.checks import assert_gradients_match

N_TOKENS, DIM, N_WORDS = 30, 6, 50


@pytest.fixture
def layer():
    layer = VocabularySoftmax(N_WORDS, DIM)
    layer.build()
    layer.bias.assign(np.random.default_rng(0).normal(size=N_WORDS))
    return layer


@pytest.fixture
def hidden():
    return tf.constant(np.random.default_rng(1).normal(size=(N_TOKENS, DIM)), tf.float32)


@pytest.fixture
def targets():
    return tf.constant(np.random.default_rng(2).integers(0, N_WORDS, N_TOKENS), tf.int32)


@pytest.mark.parametrize("chunk", [1, 7, 49, 50, 51, 1000])
def test_chunks_equal_the_whole_in_value_and_gradient(layer, hidden, targets, chunk):
    kernel, bias = layer.kernel.value, layer.bias.value
    assert_gradients_match(
        tf.function(
            lambda: full_cross_entropy(hidden, targets, tf.identity(kernel), tf.identity(bias), chunk)
        ),
        lambda: tf.nn.sparse_softmax_cross_entropy_with_logits(targets, layer(hidden)),
        [hidden, kernel, bias],
    )


def test_large_logits_do_not_overflow(layer, hidden, targets):
    layer.bias.assign(1000 * np.random.default_rng(0).normal(size=N_WORDS))
    exact = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, layer(hidden))
    np.testing.assert_allclose(layer.full_losses(hidden, targets), exact, rtol=1e-5)


def reference_sampled_loss(layer, hidden, targets, negatives):
    """TensorFlow's own, given the same sample and the expected counts in double precision."""

    def expected_count(ids):
        ids = np.asarray(ids, np.float64)
        p = np.log((ids + 2) / (ids + 1)) / np.log(N_WORDS + 1)
        return tf.constant(-np.expm1(float(negatives.n_draws) * np.log1p(-p)), tf.float32)

    sampled = (
        tf.constant(negatives.ids, tf.int64),
        expected_count(targets.numpy()[:, None]),
        expected_count(negatives.ids),
    )
    return tf.nn.sampled_softmax_loss(
        layer.kernel.value,
        layer.bias.value,
        tf.cast(targets, tf.int64)[:, None],
        hidden,
        len(negatives.ids),
        N_WORDS,
        sampled_values=sampled,
    )


@pytest.mark.parametrize("n_samples", [1, 20, 50])
def test_sampled_losses_equal_tensorflows(layer, hidden, targets, n_samples):
    negatives = LogUniformSampler(n_samples, N_WORDS, seed=1).sample(1, 0)
    ids, n_draws = map(tf.constant, negatives)
    if n_samples == 20:  # both kinds of target occur
        assert 0 < np.isin(targets, negatives.ids).sum() < N_TOKENS
    assert_gradients_match(
        tf.function(lambda: layer.sampled_losses(hidden, targets, ids, n_draws), autograph=False),
        lambda: reference_sampled_loss(layer, hidden, targets, negatives),
        [hidden, layer.kernel.value, layer.bias.value],
        atol=1e-4,
    )


def test_sampled_gradients_are_sparse(layer, hidden, targets):
    ids, n_draws = map(tf.constant, LogUniformSampler(10, N_WORDS, seed=1).sample(1, 0))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer.sampled_losses(hidden, targets, ids, n_draws))
    for gradient in tape.gradient(loss, [layer.kernel.value, layer.bias.value]):
        assert isinstance(gradient, tf.IndexedSlices)
        assert set(gradient.indices.numpy()) == set(targets.numpy()) | set(ids.numpy())
