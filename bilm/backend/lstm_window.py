"""The forward and backward pass of an LSTM window, each one loop over the steps that XLA compiles if it can.

Compiled, a step makes a few passes over its gates instead of some thirty, and writes the activations
for the backward pass in place. Inside the loops the batch is the last axis: large weights are
multiplied faster from the left, and the backward pass needs no transposed copy of them. The gradient is
written by hand, so that the gradient of each weight is a single product over all steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights, SavedActivations, clip, update_cell
from bilm.backend.xla import compiled, compiles


def lstm_window(
    inputs: tf.Tensor, state: LSTMState, weights: LSTMWeights, clips: Clips
) -> tuple[tf.Tensor, LSTMState]:
    """Run one layer over a window whose length is known when the graph is built.

    Args:
        inputs: shape (steps, batch, input_dim).
        state: state before the window.
        weights: see `LSTMWeights`.
        clips: see `Clips`.

    Returns:
        Outputs (steps, batch, projection_dim) and the state after the window, in the dtype of `state`.
    """

    @tf.custom_gradient
    def run(inputs: tf.Tensor, c: tf.Tensor, h: tf.Tensor, *tensors: tf.Tensor) -> tuple[Any, Any]:
        weights = LSTMWeights(*tensors, *[None] * (3 - len(tensors)))
        inputs_t = tf.cast(_swap(inputs), weights.kernel.dtype)
        weights_t = LSTMWeights(
            _swap(weights.kernel),
            weights.bias[:, None],
            None if weights.projection is None else _swap(weights.projection),
        )
        states, kept = _forward(inputs_t, LSTMState(_swap(c), _swap(h)), weights_t, clips)

        def backward(*upstream: tf.Tensor) -> list[tf.Tensor]:
            d_inputs, d_state, factors = _backward(weights, clips, states, kept, tuple(map(_swap, upstream)))
            joined = tf.concat([inputs_t, states.h[:-1]], axis=1)
            return [
                tf.cast(_swap(d_inputs), inputs.dtype),
                *map(_swap, d_state),
                *_weight_gradients(tf.transpose(joined, [1, 0, 2]), factors),
            ]

        outputs = tf.cast(_swap(states.h[1:]), h.dtype)
        return (outputs, _swap(states.c[-1]), outputs[-1]), backward

    outputs, c, h = run(inputs, *state, *(weight for weight in weights if weight is not None))
    return outputs, LSTMState(c, h)


class Factors(NamedTuple):
    """Factors of the weights' gradients, each (width, steps, batch)."""

    d_gates: tf.Tensor  # gradient of the gates, width 4 * dim
    m: tf.Tensor  # output before the projection, width dim
    d_projected: tf.Tensor  # gradient of the projected output, width projection_dim


def _swap(tensor: tf.Tensor) -> tf.Tensor:
    """Exchange the last two axes."""
    return tf.linalg.matrix_transpose(tensor)


@compiled
def _forward(
    inputs: tf.Tensor, state: LSTMState, weights: LSTMWeights, clips: Clips
) -> tuple[LSTMState, SavedActivations]:
    """Return the states before and after each step and the activations, stacked over the steps.

    All tensors, the weights too, are transposed: inputs are (steps, input_dim, batch).
    """
    n_steps, dtype = inputs.shape[0], inputs.dtype
    state = LSTMState(state.c, tf.cast(state.h, dtype))
    states = LSTMState(
        *(tf.TensorArray(v.dtype, n_steps + 1, element_shape=v.shape).write(0, v) for v in state)
    )
    keeping = SavedActivations(
        *(tf.TensorArray(dtype, n_steps, element_shape=state.c.shape) for _ in SavedActivations._fields)
    )

    def step(now: tf.Tensor, state: LSTMState, states: LSTMState, keeping: SavedActivations) -> tuple:
        # One product for input and hidden state together is faster for a large batch.
        joined = tf.concat([inputs[now], state.h], axis=0)
        gates = tf.cast(tf.matmul(weights.kernel, joined), state.c.dtype) + weights.bias
        c, m, kept = update_cell(tf.split(gates, 4), state.c, clips.cell)
        h = tf.cast(m, dtype)
        if weights.projection is not None:
            h = clip(tf.matmul(weights.projection, h), clips.projection)
        state = LSTMState(c, h)
        states = LSTMState(*(array.write(now + 1, value) for array, value in zip(states, state, strict=True)))
        gates = (tf.cast(gate, dtype) for gate in kept)
        keeping = SavedActivations(
            *(array.write(now, gate) for array, gate in zip(keeping, gates, strict=True))
        )
        return now + 1, state, states, keeping

    *_, states, keeping = tf.while_loop(
        lambda now, *_: now < n_steps, step, (0, state, states, keeping), maximum_iterations=n_steps
    )
    c, h, *kept = (tf.stop_gradient(array.stack()) for array in (*states, *keeping))  # _backward has it
    return LSTMState(c, h), SavedActivations(*kept)


@compiled
def _backward(
    weights: LSTMWeights,
    clips: Clips,
    states: LSTMState,
    kept: SavedActivations,
    upstream: tuple[tf.Tensor, ...],
) -> tuple[tf.Tensor, LSTMState, Factors]:
    """Return the gradients of the inputs and of the state before the window, and the factors of the weights'.

    All tensors but the weights are transposed.
    """
    d_outputs, dc, dh = upstream
    (n_steps, _, n_rows), dtype = d_outputs.shape, weights.kernel.dtype
    dim, projection_dim = dc.shape[0], dh.shape[0]
    input_dim = weights.kernel.shape[0] - projection_dim
    d_inputs = tf.TensorArray(dtype, n_steps, element_shape=[input_dim, n_rows])
    widths = 4 * dim, dim, projection_dim
    # Not in low precision: at each step XLA would convert whole arrays to float32 and back.
    factors = Factors(*(_empty(dc.dtype, n_steps, [width, n_rows]) for width in widths))

    def step(
        now: tf.Tensor, dc: tf.Tensor, dh: tf.Tensor, d_inputs: tf.TensorArray, factors: Factors
    ) -> tuple:
        i, j, f, o = (tf.cast(values[now], dc.dtype) for values in kept)
        before, after = (LSTMState(states.c[at], states.h[at]) for at in (now, now + 1))
        tanh_c = tf.tanh(after.c)
        dm = dh + d_outputs[now]
        d_projected = tf.cast(_through_clip(dm, after.h, clips.projection), dtype)
        if weights.projection is not None:
            dm = tf.cast(tf.matmul(weights.projection, d_projected), dc.dtype)
        dc = _through_clip(dc + dm * o * (1.0 - tanh_c * tanh_c), after.c, clips.cell)
        d_gates, d_gates_now = _write(
            factors.d_gates,
            now,
            dc * j * i * (1.0 - i),
            dc * i * (1.0 - j * j),
            dc * before.c * f * (1.0 - f),
            dm * tanh_c * o * (1.0 - o),
        )
        d_joined = tf.matmul(weights.kernel, tf.cast(d_gates_now, dtype))
        m, _ = _write(factors.m, now, o * tanh_c)
        factors = Factors(d_gates, m, _write(factors.d_projected, now, d_projected)[0])
        d_inputs = d_inputs.write(now, d_joined[:input_dim])
        return now - 1, dc * f, tf.cast(d_joined[input_dim:], dh.dtype), d_inputs, factors

    _, dc, dh, d_inputs, factors = tf.while_loop(
        lambda now, *_: now >= 0,
        step,
        (n_steps - 1, dc, dh, d_inputs, factors),
        maximum_iterations=n_steps,
    )
    d_inputs, dc, dh, *stacked = map(tf.stop_gradient, (d_inputs.stack(), dc, dh, *map(_whole, factors)))
    return d_inputs, LSTMState(dc, dh), Factors(*stacked)


def _empty(dtype: tf.DType, n_steps: int, shape: Sequence[int]) -> tf.Tensor | tf.TensorArray:
    """Make a factor to write step by step: with XLA a tensor, updated in place, else a TensorArray."""
    if compiles():
        return tf.zeros([shape[0], n_steps, shape[1]], dtype)
    return tf.TensorArray(dtype, n_steps, element_shape=shape)


def _write(
    factor: tf.Tensor | tf.TensorArray, now: tf.Tensor, *parts: tf.Tensor
) -> tuple[tf.Tensor | tf.TensorArray, tf.Tensor]:
    """Write one step's parts (width, batch), stacked along the width; return the factor and those values."""
    parts = tuple(tf.cast(part, factor.dtype) for part in parts)
    if isinstance(factor, tf.TensorArray):
        values = tf.concat(parts, axis=0)
        return factor.write(now, values), values
    start = 0
    for part in parts:  # slower if concatenated first
        factor = keras.ops.slice_update(factor, [start, now, 0], part[:, None])
        start += part.shape[0]
    return factor, factor[:, now]


def _whole(factor: tf.Tensor | tf.TensorArray) -> tf.Tensor:
    """Return a factor as one tensor, (width, steps, batch)."""
    return tf.transpose(factor.stack(), [1, 0, 2]) if isinstance(factor, tf.TensorArray) else factor


def _through_clip(gradient: tf.Tensor, clipped: tf.Tensor, bound: float | None) -> tf.Tensor:
    """Return the gradient before a clip: zero where the clipped value reached the bound."""
    if bound is None:
        return gradient
    return tf.where(tf.abs(clipped) < tf.cast(bound, clipped.dtype), gradient, tf.zeros_like(gradient))


def _weight_gradients(joined: tf.Tensor, factors: Factors) -> list[tf.Tensor]:
    """Return the gradients of kernel, bias and projection, if any, each one product over all steps.

    Args:
        joined: (input_dim + projection_dim, steps, batch), inputs and the hidden states before each step.
        factors: see `Factors`.
    """
    joined, d_gates, m, d_projected = (tf.reshape(part, [part.shape[0], -1]) for part in (joined, *factors))
    gradients = [_product_over_steps(joined, d_gates), tf.reduce_sum(d_gates, axis=1)]
    if d_projected.shape[0] != m.shape[0]:
        gradients.append(_product_over_steps(tf.cast(m, joined.dtype), d_projected))
    return gradients


def _product_over_steps(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Sum the outer products over steps and batch, in the dtype of `left`.

    Eigen, TensorFlow's library on processors without AVX-512, multiplies twice as fast from the wider side.
    """
    return _swap(tf.matmul(tf.cast(right, left.dtype), left, transpose_b=True))
