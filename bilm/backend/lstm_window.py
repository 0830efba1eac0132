"""A window of the LSTM and its gradient, each one loop over the steps that XLA compiles where it can.

Compiled, the arithmetic of a step is a few passes over its gates instead of some thirty, and what
the backward pass needs is written in place. Within the loops the rows of the batch come last: large
weights are multiplied faster from the left, and the backward pass takes them as they are. The
gradient is written out so that each weight's is a single product over all steps.
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
        turned = tf.cast(_turn(inputs), weights.kernel.dtype)
        turned_weights = LSTMWeights(
            _turn(weights.kernel),
            weights.bias[:, None],
            None if weights.projection is None else _turn(weights.projection),
        )
        states, kept = _forward(turned, LSTMState(_turn(c), _turn(h)), turned_weights, clips)

        def backward(*upstream: tf.Tensor) -> list[tf.Tensor]:
            d_inputs, d_state, factors = _backward(weights, clips, states, kept, tuple(map(_turn, upstream)))
            joined = tf.concat([turned, states.h[:-1]], axis=1)
            return [
                tf.cast(_turn(d_inputs), inputs.dtype),
                *map(_turn, d_state),
                *_weight_gradients(tf.transpose(joined, [1, 0, 2]), factors),
            ]

        outputs = tf.cast(_turn(states.h[1:]), h.dtype)
        return (outputs, _turn(states.c[-1]), outputs[-1]), backward

    outputs, c, h = run(inputs, *state, *(weight for weight in weights if weight is not None))
    return outputs, LSTMState(c, h)


class Factors(NamedTuple):
    """Factors of the weights' gradients, each (width, steps, batch)."""

    d_gates: tf.Tensor  # 4 * dim wide
    m: tf.Tensor  # the output before the projection, dim
    d_projected: tf.Tensor  # of the projection's result, projection_dim


def _turn(tensor: tf.Tensor) -> tf.Tensor:
    """The last two axes exchanged."""
    return tf.linalg.matrix_transpose(tensor)


@compiled
def _forward(
    inputs: tf.Tensor, state: LSTMState, weights: LSTMWeights, clips: Clips
) -> tuple[LSTMState, SavedActivations]:
    """State before the first step and after each, and what was kept of each, stacked over the steps.

    All is turned, the weights too: inputs are (steps, input_dim, batch).
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
        # Of input and hidden state together: the larger product pays where the batch is large.
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
    c, h, *kept = (tf.stop_gradient(array.stack()) for array in (*states, *keeping))  # it is written out
    return LSTMState(c, h), SavedActivations(*kept)


@compiled
def _backward(
    weights: LSTMWeights,
    clips: Clips,
    states: LSTMState,
    kept: SavedActivations,
    upstream: tuple[tf.Tensor, ...],
) -> tuple[tf.Tensor, LSTMState, Factors]:
    """Gradients of the inputs and of the state before the window, and the factors of the weights'.

    All but the weights is turned.
    """
    d_outputs, dc, dh = upstream
    (n_steps, _, n_rows), dtype = d_outputs.shape, weights.kernel.dtype
    dim, projection_dim = dc.shape[0], dh.shape[0]
    input_dim = weights.kernel.shape[0] - projection_dim
    d_inputs = tf.TensorArray(dtype, n_steps, element_shape=[input_dim, n_rows])
    widths = 4 * dim, dim, projection_dim
    # Not in low precision: XLA would turn the whole of them into float32 and back at each step.
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
    d_inputs, dc, dh, *found = map(tf.stop_gradient, (d_inputs.stack(), dc, dh, *map(_whole, factors)))
    return d_inputs, LSTMState(dc, dh), Factors(*found)


def _empty(dtype: tf.DType, n_steps: int, shape: Sequence[int]) -> tf.Tensor | tf.TensorArray:
    """A factor to be written step by step: XLA does so in place, without it arrays of TensorFlow do."""
    if compiles():
        return tf.zeros([shape[0], n_steps, shape[1]], dtype)
    return tf.TensorArray(dtype, n_steps, element_shape=shape)


def _write(
    factor: tf.Tensor | tf.TensorArray, now: tf.Tensor, *parts: tf.Tensor
) -> tuple[tf.Tensor | tf.TensorArray, tf.Tensor]:
    """A factor with the values of one step in it, and these: the parts (width, batch) one below the other."""
    parts = tuple(tf.cast(part, factor.dtype) for part in parts)
    if isinstance(factor, tf.TensorArray):
        values = tf.concat(parts, axis=0)
        return factor.write(now, values), values
    start = 0
    for part in parts:  # each where it belongs; put together first they would be computed more slowly
        factor = keras.ops.slice_update(factor, [start, now, 0], part[:, None])
        start += part.shape[0]
    return factor, factor[:, now]


def _whole(factor: tf.Tensor | tf.TensorArray) -> tf.Tensor:
    """A factor with all steps in it, (width, steps, batch)."""
    return tf.transpose(factor.stack(), [1, 0, 2]) if isinstance(factor, tf.TensorArray) else factor


def _through_clip(gradient: tf.Tensor, clipped: tf.Tensor, bound: float | None) -> tf.Tensor:
    """Gradient before a clip, from the clipped values: nothing passes where the bound was reached."""
    if bound is None:
        return gradient
    return tf.where(tf.abs(clipped) < tf.cast(bound, clipped.dtype), gradient, tf.zeros_like(gradient))


def _weight_gradients(joined: tf.Tensor, factors: Factors) -> list[tf.Tensor]:
    """Gradients of kernel, bias and, if there is one, projection: a product over all steps each.

    Args:
        joined: inputs and hidden states before each step, (input_dim + projection_dim, steps, batch).
        factors: see `Factors`.
    """
    joined, d_gates, m, d_projected = (tf.reshape(part, [part.shape[0], -1]) for part in (joined, *factors))
    gradients = [_product_over_steps(joined, d_gates), tf.reduce_sum(d_gates, axis=1)]
    if d_projected.shape[0] != m.shape[0]:
        gradients.append(_product_over_steps(tf.cast(m, joined.dtype), d_projected))
    return gradients


def _product_over_steps(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Sum over steps and batch of the outer products, of the type of the left one."""
    return tf.matmul(left, tf.cast(right, left.dtype), transpose_b=True)
