"""One step of ELMo's LSTM, and the tensors it works on.

Gates are in the order i, j, f, o along the last axis of the kernel over [input; hidden]:

.. code-block:: text

    i, j, f, o = split([x; h] W + b)
    c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j), cell_clip)
    h' = clip((sigmoid(o) tanh(c')) P, proj_clip)

Source: Sak, Senior and Beaufays 2014 (projected LSTM); the clips and the forget bias of 1.0, added
in the call, are those of ``tf.nn.rnn_cell.LSTMCell`` in TensorFlow 1. Without a projection the
hidden state is not clipped, as there.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

FORGET_BIAS = 1.0


class LSTMState(NamedTuple):
    """State of one layer: cell ``c`` (batch, dim) and hidden ``h`` (batch, projection_dim)."""

    c: tf.Tensor
    h: tf.Tensor


class LSTMWeights(NamedTuple):
    """Tensors of one layer; ``projection`` is None where ``projection_dim == dim``."""

    kernel: tf.Tensor  # (input_dim + projection_dim, 4 * dim)
    bias: tf.Tensor  # (4 * dim,)
    projection: tf.Tensor | None  # (dim, projection_dim)


class Clips(NamedTuple):
    """Bounds of the cell and of the projected output; None leaves them free."""

    cell: float | None = None
    projection: float | None = None


def clip(values: tf.Tensor, bound: float | None) -> tf.Tensor:
    """Values between plus and minus `bound`; None leaves them free."""
    return values if bound is None else tf.clip_by_value(values, -bound, bound)


def lstm_cell(
    gate_inputs: tf.Tensor, state: LSTMState, recurrent: tf.Tensor, projection: tf.Tensor | None, clips: Clips
) -> tuple[LSTMState, tuple[tf.Tensor, ...]]:
    """One step.

    Args:
        gate_inputs: the input's share of the gates, biases included, shape (batch, 4 * dim).
        state: state before the step.
        recurrent: the hidden state's rows of the kernel, shape (projection_dim, 4 * dim).
        projection: shape (dim, projection_dim), or None.
        clips: bounds of cell and projection.

    Returns:
        The state after the step, and what the backward pass needs: the activated gates i, j, f, o,
        tanh of the cell and the output before the projection, each (batch, dim).
    """
    i, j, f, o = tf.split(gate_inputs + tf.matmul(state.h, recurrent), 4, axis=1)
    i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f), tf.sigmoid(o)
    c = clip(f * state.c + i * j, clips.cell)
    tanh_c = tf.tanh(c)
    m = o * tanh_c
    h = m if projection is None else clip(tf.matmul(m, projection), clips.projection)
    return LSTMState(c, h), (i, j, f, o, tanh_c, m)


def input_gates(inputs: tf.Tensor, weights: LSTMWeights) -> tuple[tf.Tensor, tf.Tensor]:
    """The input half of the gates, one product for the whole window, and the recurrent half of the kernel."""
    input_dim = inputs.shape[-1]
    forget = tf.one_hot(2, 4, on_value=tf.cast(FORGET_BIAS, inputs.dtype), dtype=inputs.dtype)
    bias = weights.bias + tf.repeat(forget, weights.bias.shape[0] // 4)
    return tf.matmul(inputs, weights.kernel[:input_dim]) + bias, weights.kernel[input_dim:]
