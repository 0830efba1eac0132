"""A window of the LSTM and its gradient, each one loop over the steps that XLA compiles.

Compiled, the arithmetic of a step is a few passes over its gates instead of some thirty, and what
the backward pass needs is written in place. The gradient is written out so that each weight's is a
single product over all steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from bilm.layers.lstm_cell import Clips, Kept, LSTMState, LSTMWeights, gate_product, lstm_cell


def lstm_window(
    inputs: tf.Tensor, state: LSTMState, weights: LSTMWeights, clips: Clips
) -> tuple[tf.Tensor, LSTMState]:
    """Run one layer over a window of a length known when the graph is built.

    Args:
        inputs: shape (steps, batch, input_dim).
        state: state before the window.
        weights: see `LSTMWeights`.
        clips: see `Clips`.

    Returns:
        Outputs (steps, batch, projection_dim) and the state after the window, of the type of the
        state given.
    """

    @tf.custom_gradient
    def run(inputs: tf.Tensor, c: tf.Tensor, h: tf.Tensor, *tensors: tf.Tensor) -> tuple[Any, Any]:
        weights = LSTMWeights(*tensors, *[None] * (3 - len(tensors)))
        states, kept = _forward(inputs, LSTMState(c, h), weights, clips)

        def backward(*upstream: tf.Tensor) -> list[tf.Tensor]:
            d_inputs, d_state, steps = _backward(weights, clips, states, kept, upstream)
            return [
                tf.cast(d_inputs, inputs.dtype),
                *d_state,
                *_weight_gradients(inputs, states, steps),
            ]

        outputs = tf.cast(states.h[1:], h.dtype)
        return (outputs, states.c[-1], outputs[-1]), backward

    outputs, c, h = run(inputs, *state, *(weight for weight in weights if weight is not None))
    return outputs, LSTMState(c, h)


class Factors(NamedTuple):
    """Of the weights' gradients, stacked over the steps."""

    d_gates: tf.Tensor  # of the gates, (steps, batch, 4 * dim)
    m: tf.Tensor  # the output before the projection, (steps, batch, dim)
    d_projected: tf.Tensor  # of the projection's result, (steps, batch, projection_dim)


@tf.function(jit_compile=True, autograph=False)
def _forward(
    inputs: tf.Tensor, state: LSTMState, weights: LSTMWeights, clips: Clips
) -> tuple[LSTMState, Kept]:
    """State before the first step and after each, and what was kept of each, stacked over the steps."""
    n_steps, dtype = inputs.shape[0], weights.kernel.dtype
    state = LSTMState(state.c, tf.cast(state.h, dtype))
    states = LSTMState(
        *(tf.TensorArray(v.dtype, n_steps + 1, element_shape=v.shape).write(0, v) for v in state)
    )
    keeping = Kept(*(tf.TensorArray(dtype, n_steps, element_shape=state.c.shape) for _ in Kept._fields))

    def step(now: tf.Tensor, state: LSTMState, states: LSTMState, keeping: Kept) -> tuple:
        # Of input and hidden state together: the larger product pays where the batch is large.
        joined = tf.concat([tf.cast(inputs[now], dtype), state.h], axis=1)
        gates = gate_product(joined, weights.kernel, state.c.dtype) + weights.bias
        state, kept = lstm_cell(gates, state, weights.projection, clips)
        states = LSTMState(*(array.write(now + 1, value) for array, value in zip(states, state, strict=True)))
        keeping = Kept(*(array.write(now, value) for array, value in zip(keeping, kept, strict=True)))
        return now + 1, state, states, keeping

    *_, states, keeping = tf.while_loop(
        lambda now, *_: now < n_steps, step, (0, state, states, keeping), maximum_iterations=n_steps
    )
    c, h, *kept = (tf.stop_gradient(array.stack()) for array in (*states, *keeping))  # it is written out
    return LSTMState(c, h), Kept(*kept)


@tf.function(jit_compile=True, autograph=False)
def _backward(
    weights: LSTMWeights,
    clips: Clips,
    states: LSTMState,
    kept: Kept,
    upstream: tuple[tf.Tensor, ...],
) -> tuple[tf.Tensor, LSTMState, Factors]:
    """Gradients of the inputs and of the state before the window, and the factors of the weights'."""
    d_outputs, dc, dh = upstream
    n_steps, dtype = d_outputs.shape[0], weights.kernel.dtype
    # Turned once: a product with the transposed matrix is half as fast.
    kernel = tf.transpose(weights.kernel)
    projection = None if weights.projection is None else tf.transpose(weights.projection)
    input_dim = kernel.shape[1] - dh.shape[1]

    def array(width: int) -> tf.TensorArray:
        return tf.TensorArray(dtype, n_steps, element_shape=[dh.shape[0], width])

    arrays = (array(input_dim), *map(array, Factors(kernel.shape[0], dc.shape[1], dh.shape[1])))

    def step(now: tf.Tensor, dc: tf.Tensor, dh: tf.Tensor, arrays: tuple) -> tuple:
        i, j, f, o = (tf.cast(values[now], dc.dtype) for values in kept)
        before, after = (LSTMState(states.c[at], states.h[at]) for at in (now, now + 1))
        tanh_c = tf.tanh(after.c)
        dm = dh + d_outputs[now]
        d_projected = tf.cast(_through_clip(dm, after.h, clips.projection), dtype)
        if projection is not None:
            dm = tf.cast(tf.matmul(d_projected, projection), dc.dtype)
        dc = _through_clip(dc + dm * o * (1.0 - tanh_c * tanh_c), after.c, clips.cell)
        d_gates = tf.concat(
            [
                dc * j * i * (1.0 - i),
                dc * i * (1.0 - j * j),
                dc * before.c * f * (1.0 - f),
                dm * tanh_c * o * (1.0 - o),
            ],
            axis=1,
        )
        d_gates = tf.cast(d_gates, dtype)
        d_joined = tf.matmul(d_gates, kernel)
        values = (d_joined[:, :input_dim], d_gates, tf.cast(o * tanh_c, dtype), d_projected)
        arrays = tuple(array.write(now, value) for array, value in zip(arrays, values, strict=True))
        return now - 1, dc * f, tf.cast(d_joined[:, input_dim:], dh.dtype), arrays

    _, dc, dh, arrays = tf.while_loop(
        lambda now, *_: now >= 0, step, (n_steps - 1, dc, dh, arrays), maximum_iterations=n_steps
    )
    dc, dh, d_inputs, *factors = map(tf.stop_gradient, (dc, dh, *(array.stack() for array in arrays)))
    return d_inputs, LSTMState(dc, dh), Factors(*factors)


def _through_clip(gradient: tf.Tensor, clipped: tf.Tensor, bound: float | None) -> tf.Tensor:
    """Gradient before a clip, from the clipped values: nothing passes where the bound was reached."""
    if bound is None:
        return gradient
    return tf.where(tf.abs(clipped) < tf.cast(bound, clipped.dtype), gradient, tf.zeros_like(gradient))


def _weight_gradients(inputs: tf.Tensor, states: LSTMState, factors: Factors) -> list[tf.Tensor]:
    """Of kernel, bias and projection: a product over all steps each."""
    d_gates = factors.d_gates
    joined = tf.concat([tf.cast(inputs, d_gates.dtype), states.h[:-1]], axis=-1)
    ones = tf.ones([*d_gates.shape[:2], 1], d_gates.dtype)  # whose product is a faster sum
    gradients = [
        _product_over_steps(joined, d_gates),
        tf.cast(_product_over_steps(ones, d_gates)[0], states.c.dtype),
    ]
    if factors.d_projected.shape[-1] != factors.m.shape[-1]:
        gradients.append(_product_over_steps(factors.m, factors.d_projected))
    return gradients


def _product_over_steps(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Sum over steps and batch of the outer products."""
    flat = [tf.reshape(tensor, [-1, tensor.shape[-1]]) for tensor in (left, right)]
    return tf.matmul(flat[0], flat[1], transpose_a=True)
