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
    """Tensors of one layer; ``projection`` is None where ``projection_dim == dim``.

    Kernel and projection have the type that products are taken in, the bias is float32.
    """

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


class Kept(NamedTuple):
    """What the backward pass needs of a step: the activated gates, each (batch, dim).

    The rest follows from them and the cell at little cost.
    """

    i: tf.Tensor
    j: tf.Tensor
    f: tf.Tensor
    o: tf.Tensor


def lstm_cell(
    gates: tf.Tensor, state: LSTMState, projection: tf.Tensor | None, clips: Clips
) -> tuple[LSTMState, Kept]:
    """One step, from its gates on.

    Args:
        gates: before their activation, biases included, shape (batch, 4 * dim), of the cell's type.
        state: state before the step.
        projection: shape (dim, projection_dim), or None.
        clips: bounds of cell and projection.

    Returns:
        The state after the step, its hidden of the type it was given in, and what the backward pass
        needs, of the type of the product with the projection.
    """
    c, m, kept = update_cell(gates, state, projection, clips)
    return LSTMState(c, hidden(m, state, projection, clips)), kept


def update_cell(
    gates: tf.Tensor, state: LSTMState, projection: tf.Tensor | None, clips: Clips
) -> tuple[tf.Tensor, tf.Tensor, Kept]:
    """What `lstm_cell` computes before its second product: cell, output to be projected, what is kept."""
    dtype = state.h.dtype if projection is None else projection.dtype
    i, j, f, o = tf.split(gates, 4, axis=1)
    i, j, f, o = tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f + FORGET_BIAS), tf.sigmoid(o)
    c = clip(f * state.c + i * j, clips.cell)
    return c, tf.cast(o * tf.tanh(c), dtype), Kept(*(tf.cast(gate, dtype) for gate in (i, j, f, o)))


def hidden(m: tf.Tensor, state: LSTMState, projection: tf.Tensor | None, clips: Clips) -> tf.Tensor:
    """Hidden state after a step from the output before the projection, of the type that it had."""
    return tf.cast(
        m if projection is None else clip(tf.matmul(m, projection), clips.projection), state.h.dtype
    )


def gate_product(inputs: tf.Tensor, kernel: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """A share of the gates, taken in the kernel's type and given in `dtype`."""
    return tf.cast(tf.matmul(tf.cast(inputs, kernel.dtype), kernel), dtype)
