import numpy as np
import pytest
import tensorflow as tf

from bilm.backend import on_tensorflow
from bilm.backend.lstm_cell import FORGET_BIAS, Clips, LSTMState, LSTMWeights
from bilm.backend.lstm_window import lstm_window
from bilm.backend.on_tensorflow import run_lstm
from bilm.layers.lstm import ProjectedLSTM
from bilm.options import LSTMOptions
from tests.checks import assert_gradients_match

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


@pytest.mark.parametrize("projection", [True, False], ids=["projected", "plain"])
@pytest.mark.parametrize(
    "clips",
    [Clips(0.3, 0.2), pytest.param(Clips(), marks=pytest.mark.slow)],
    ids=["reached", "none"],
)
@pytest.mark.parametrize("run", [lstm_window, run_lstm])
def test_window_equals_the_plain_cell_in_value_and_gradient(run, clips, projection):
    inputs, state, weights = make(projection, 1.5 if clips.cell else 0.5, steps=FEW_STEPS)
    sources = [inputs, *state, *(weight for weight in weights if weight is not None)]
    assert_gradients_match(
        tf.function(lambda: run(inputs, state, weights, clips), autograph=False),
        lambda: plain(inputs, state, weights, clips),
        sources,
    )


@pytest.mark.parametrize("training", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_mask_on_the_recurrent_kernel_in_value_and_gradient(training):
    inputs, state, _ = make(steps=FEW_STEPS)
    layer = ProjectedLSTM(LSTMOptions(DIM, PROJECTION, cell_clip=3.0, proj_clip=3.0))
    layer.build((None, None, INPUT))
    mask = tf.constant(np.random.default_rng(1).choice([0.0, 2.0], layer.recurrent_shape), tf.float32)

    def masked():
        tensors = [weight.value for weight in layer.weights]
        whole = tf.concat([tf.ones([INPUT, 4 * DIM]), mask], axis=0)
        return plain(inputs, state, LSTMWeights(tensors[0] * whole, *tensors[1:]), layer.clips)

    sources = [inputs, *state, *(weight.value for weight in layer.weights)]
    run = tf.function(lambda: layer(inputs, state, training=training, recurrent_mask=mask), autograph=False)
    assert_gradients_match(run, masked, sources)
    assert not np.allclose(run()[0], layer(inputs, state)[0], atol=1e-3)


@pytest.mark.parametrize("n_at_once", [2, 8192])
def test_each_row_of_the_loop_ends_at_its_own_length(n_at_once, monkeypatch):
    monkeypatch.setattr(on_tensorflow.settings, "TOKENS_AT_ONCE", n_at_once * BATCH)
    (inputs, state, weights), clips, lengths = make(), Clips(3.0, 3.0), [5, 2, 0]
    run = tf.function(run_lstm, autograph=False)
    outputs, after = run(inputs, state, weights, clips, tf.constant(lengths))
    for row, length in enumerate(lengths):
        own = LSTMState(*(values[row : row + 1] for values in state))
        if length:
            expected, own = plain(inputs[:length, row : row + 1], own, weights, clips)
            np.testing.assert_allclose(outputs[:length, row], expected[:, 0], atol=1e-5)
        assert not np.any(outputs[length:, row])
        for found, wanted in zip(after, own, strict=True):
            np.testing.assert_allclose(found[row], wanted[0], atol=1e-5)


def test_a_row_begins_anew_where_it_is_told():
    (inputs, state, weights), clips = make(), Clips(3.0, 3.0)
    begins = np.zeros((STEPS, BATCH), bool)
    begins[0, 1] = begins[3, 1] = begins[2, 2] = True
    run = tf.function(run_lstm, autograph=False)
    outputs, after = run(inputs, state, weights, clips, begins=tf.constant(begins))
    for row, starts in enumerate(([], [0, 3], [2])):
        own = LSTMState(*(values[row : row + 1] for values in state))
        for start, end in zip([0, *starts], [*starts, STEPS], strict=True):
            if start in starts:
                own = LSTMState(*map(tf.zeros_like, own))
            if start < end:
                expected, own = plain(inputs[start:end, row : row + 1], own, weights, clips)
                np.testing.assert_allclose(outputs[start:end, row], expected[:, 0], atol=1e-5)
        for found, wanted in zip(after, own, strict=True):
            np.testing.assert_allclose(found[row], wanted[0], atol=1e-5)
