"""Layers in value and gradient as their equations: the character CNN, the LSTM, the softmax."""

import numpy as np
import pytest
import tensorflow as tf

from bilm.backend import on_tensorflow
from bilm.backend.lstm_cell import FORGET_BIAS, Clips, LSTMState, LSTMWeights
from bilm.backend.lstm_window import lstm_window
from bilm.backend.on_tensorflow import run_lstm
from bilm.layers.char_cnn import CharCNN
from bilm.layers.softmax import VocabularySoftmax, full_cross_entropy
from bilm.options import Activation, CharCNNOptions
from bilm.training.negative_sampling import LogUniformSampler
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary


def assert_gradients_match(first, second, sources, atol=1e-5):
    """Two functions of no argument agree in value and in the gradient by every source."""
    results = []
    for function in (first, second):
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs = tf.nest.flatten(function())
        # Each output in a direction of its own, so that no two errors cancel.
        numbers = [np.arange(output.shape.num_elements()).reshape(output.shape) for output in outputs]
        upstream = [
            tf.cast(np.cos(each), output.dtype) for each, output in zip(numbers, outputs, strict=True)
        ]
        gradients = tape.gradient(outputs, sources, upstream, tf.UnconnectedGradients.ZERO)
        results.append([*outputs, *map(tf.convert_to_tensor, gradients)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, atol=atol, rtol=1e-5)


# --- the character CNN ----------------------------------------------------------------------------


FILTERS = ((1, 4), (2, 5), (5, 6))
MAX_CHARACTERS = 20


def make_cnn(activation="relu", output_dim=7, n_highway=2, max_characters=MAX_CHARACTERS, filters=FILTERS):
    options = CharCNNOptions(filters, Activation(activation), 3, max_characters, n_highway)
    layer = CharCNN(options, output_dim)
    layer.build()
    return layer


def plain_cnn(layer, rows):
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
def test_layers_equal_equations(activation, output_dim, n_highway):
    layer = make_cnn(activation, output_dim, n_highway)
    rows = np.random.default_rng(0).integers(0, 261, (6, MAX_CHARACTERS))
    np.testing.assert_allclose(layer(tf.constant(rows)), plain_cnn(layer, rows), atol=1e-5)


def words_of_every_length(vocabulary):
    words = ["x" * n for n in range(1, 30)] + ["Ā" * n for n in range(1, 14)] + ["<S>", "</S>"]
    return np.stack([vocabulary.word_to_char_ids(word) for word in words])


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("max_characters", [6, 20, 50])
def test_length_buckets_equal_whole_rows(activation, max_characters):
    vocabulary = UnicodeCharsVocabulary.from_words(["<S>", "</S>", "<UNK>"], max_characters)
    rows = words_of_every_length(vocabulary)
    layer = make_cnn(activation, max_characters=max_characters)
    # Large weights, so that a window of padding is often the maximum.
    for weight in layer.weights:
        weight.assign(np.random.default_rng(1).normal(size=weight.shape))
    widths, max_width = layer.options.bucket_widths, layer.options.max_width
    lengths = (rows != 260).sum(1)
    bucket = np.searchsorted(widths, np.minimum(max_characters, lengths + max_width))
    np.testing.assert_array_equal(layer.buckets_of(tf.constant(rows)), bucket)
    order = np.argsort(bucket, kind="stable")
    cut = tuple(tf.constant(rows[bucket == k][:, :width]) for k, width in enumerate(widths))
    sources = [weight.value for weight in layer.weights]
    assert_gradients_match(
        lambda: layer(cut), lambda: tf.gather(layer(tf.constant(rows)), order), sources, atol=1e-3
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_maxima_pass_gradient_to_first_of_equal_windows(dtype):
    values = tf.cast(np.random.default_rng(0).integers(0, 3, (9, 5, 4)), dtype)  # many are equal

    def pooled():
        return tf.nn.max_pool2d(values[:, None], [1, 5], 1, "VALID")[:, 0, 0]

    assert_gradients_match(lambda: on_tensorflow.max_over_windows(values), pooled, [values], atol=0)


def test_initial_values():
    layer = make_cnn("relu", 64, 1, filters=((3, 2000),))
    assert np.abs(layer.kernels[0]).max() <= 0.05 and np.abs(layer.char_embed).max() > 0.9
    carry, carry_bias, transform, transform_bias = layer.highways[0]
    projection, bias = layer.projection
    assert np.all(carry_bias.numpy() == -2) and not np.any(transform_bias) and not np.any(bias)
    assert [np.std(transform), np.std(projection)] == pytest.approx([(1 / 2000) ** 0.5] * 2, rel=0.05)
    tanh = make_cnn("tanh", 64, 0, filters=((3, 2000),))
    assert np.std(tanh.kernels[0]) == pytest.approx((1 / 9) ** 0.5, rel=0.05)


# --- the LSTM -------------------------------------------------------------------------------------


STEPS, BATCH, INPUT, DIM, PROJECTION = 5, 3, 4, 8, 4
FEW_STEPS = 3  # whose gradient compiles faster


def make(projection=True, scale=1.0, seed=0, steps=STEPS):
    random = np.random.default_rng(seed)

    def tensor(*shape):
        return tf.constant(random.normal(size=shape) * scale, tf.float32)

    hidden = PROJECTION if projection else DIM
    weights = LSTMWeights(
        tensor(INPUT + hidden, 4 * DIM), tensor(4 * DIM), tensor(DIM, PROJECTION) if projection else None
    )
    return tensor(steps, BATCH, INPUT), LSTMState(tensor(BATCH, DIM), tensor(BATCH, hidden)), weights


def plain(inputs, state, weights, clips):
    """The equations, step by step, left to automatic differentiation."""
    c, h = state
    outputs = []
    for x in tf.unstack(inputs):
        gates = tf.matmul(tf.concat([x, h], 1), weights.kernel) + weights.bias
        i, j, f, o = tf.split(gates, 4, axis=1)
        c = tf.sigmoid(f + FORGET_BIAS) * c + tf.sigmoid(i) * tf.tanh(j)
        if clips.cell is not None:
            c = tf.clip_by_value(c, -clips.cell, clips.cell)
        h = tf.sigmoid(o) * tf.tanh(c)
        if weights.projection is not None:
            h = tf.matmul(h, weights.projection)
            if clips.projection is not None:
                h = tf.clip_by_value(h, -clips.projection, clips.projection)
        outputs.append(h)
    return tf.stack(outputs), LSTMState(c, h)


def run_lstm_as_on_a_gpu(*arguments, **keywords):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(on_tensorflow.xla, "compiles_loops", lambda: True)
        return run_lstm(*arguments, **keywords)


@pytest.mark.parametrize(
    ("run", "projection"),
    [
        *((lstm_window, True), (lstm_window, False), (run_lstm, True)),
        *((run_lstm, False), (run_lstm_as_on_a_gpu, True)),
        pytest.param(run_lstm_as_on_a_gpu, False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "clips", [Clips(0.3, 0.2), pytest.param(Clips(), marks=pytest.mark.slow)], ids=["reached", "none"]
)
def test_window_equals_plain_cell(run, clips, projection):
    inputs, state, weights = make(projection, 1.5 if clips.cell else 0.5, steps=FEW_STEPS)
    sources = [inputs, *state, *(weight for weight in weights if weight is not None)]
    assert_gradients_match(
        tf.function(lambda: run(inputs, state, weights, clips), autograph=False),
        lambda: plain(inputs, state, weights, clips),
        sources,
    )


@pytest.mark.parametrize("loop", [run_lstm, pytest.param(run_lstm_as_on_a_gpu, marks=pytest.mark.slow)])
@pytest.mark.parametrize("n_at_once", [2, pytest.param(8192, marks=pytest.mark.slow)])
def test_rows_end_and_restart_where_told(n_at_once, loop, monkeypatch):
    monkeypatch.setattr(on_tensorflow.settings, "TOKENS_AT_ONCE", n_at_once * BATCH)
    (inputs, state, weights), clips = make(), Clips(3.0, 3.0)
    begins = np.zeros((STEPS, BATCH), bool)
    begins[0, 1] = begins[3, 1] = begins[2, 2] = True
    run = tf.function(loop, autograph=False)
    for lengths, all_starts in (([5, 2, 0], ([], [], [])), ([STEPS] * 3, ([], [0, 3], [2]))):
        how = {"begins": begins} if any(all_starts) else {"lengths": tf.constant(lengths)}
        outputs, after = run(inputs, state, weights, clips, **how)
        for row, (length, starts) in enumerate(zip(lengths, all_starts, strict=True)):
            own = LSTMState(*(values[row : row + 1] for values in state))
            for start, end in zip([0, *starts], [*starts, length], strict=True):
                if start in starts:
                    own = LSTMState(*map(tf.zeros_like, own))
                if start < end:
                    expected, own = plain(inputs[start:end, row : row + 1], own, weights, clips)
                    np.testing.assert_allclose(outputs[start:end, row], expected[:, 0], atol=1e-5)
            assert not np.any(outputs[length:, row])
            for found, wanted in zip(after, own, strict=True):
                np.testing.assert_allclose(found[row], wanted[0], atol=1e-5)


# --- the softmax ----------------------------------------------------------------------------------


N_TOKENS, WIDTH, N_WORDS = 30, 6, 50
RANDOM = np.random.default_rng(0)
HIDDEN = tf.constant(RANDOM.normal(size=(N_TOKENS, WIDTH)), tf.float32)
TARGETS = tf.constant(RANDOM.integers(0, N_WORDS, N_TOKENS), tf.int32)


@pytest.fixture
def layer():
    layer = VocabularySoftmax(N_WORDS, WIDTH)
    layer.build()
    layer.bias.assign(np.random.default_rng(3).normal(size=N_WORDS))
    return layer


@pytest.mark.parametrize("chunk", [pytest.param(1, marks=pytest.mark.slow), 7, 50, 51])
def test_softmax_chunks_equal_whole(layer, chunk):
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


@pytest.mark.parametrize("n_samples", [None, 20], ids=["full", "sampled"])
def test_bfloat16_is_near_float32(layer, n_samples):
    rounded = VocabularySoftmax(N_WORDS, WIDTH, product_dtype="bfloat16")
    rounded.build()
    rounded.set_weights(layer.get_weights())
    negatives = LogUniformSampler(n_samples or 1, N_WORDS, seed=1).sample(1, 0)
    results = []
    for softmax in (layer, rounded):
        with tf.GradientTape() as tape:
            tape.watch(HIDDEN)
            losses = (
                softmax.sampled_losses(HIDDEN, TARGETS, *map(tf.constant, negatives))
                if n_samples
                else softmax.full_losses(HIDDEN, TARGETS)
            )
        results.append(
            (losses, *map(tf.convert_to_tensor, tape.gradient(losses, [HIDDEN, softmax.kernel.value])))
        )
    for exact, near in zip(*results, strict=True):
        assert near.dtype == tf.float32
        assert 0 < np.abs(near - exact).max() < 0.02 * np.abs(exact).max()


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
