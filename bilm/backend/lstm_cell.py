"""One step of ELMo's LSTM, and the tensors it works on.

Gates are in the order i, j, f, o along the last axis of the kernel over [input; hidden]:

.. code-block:: text

    i, j, f, o = split([x; h] W + b)
    c' = clip(sigmoid(f + 1) c + sigmoid(i) tanh(j), cell_clip)
    h' = clip((sigmoid(o) tanh(c')) P, proj_clip)

Source: Sak, Senior and Beaufays 2014 (projected LSTM). As in TensorFlow 1's ``tf.nn.rnn_cell.LSTMCell``,
the forget bias of 1.0 is added in the call, both states are clipped, and without a projection the
hidden state is not.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras

FORGET_BIAS = 1.0

Tensor = Any
"""A tensor of the backend."""


class LSTMState(NamedTuple):
    """State of one layer: cell ``c`` (batch, dim) and hidden ``h`` (batch, projection_dim)."""

    c: Tensor
    h: Tensor


class LSTMWeights(NamedTuple):
    """Tensors of one layer; ``projection`` is None where ``projection_dim == dim``.

    The kernel and the projection have the dtype of matrix products, the bias is float32.
    """

    kernel: Tensor  # (input_dim + projection_dim, 4 * dim)
    bias: Tensor  # (4 * dim,)
    projection: Tensor | None  # (dim, projection_dim)


class Clips(NamedTuple):
    """Bounds of the cell and of the projected output; None for no bound."""

    cell: float | None = None
    projection: float | None = None


def clip(values: Tensor, bound: float | None) -> Tensor:
    """Clip values to plus and minus `bound`; None for no bound."""
    return values if bound is None else keras.ops.clip(values, -bound, bound)


def update_cell(
    gates: Sequence[Tensor], c: Tensor, bound: float | None
) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
    """Compute one step from its gates up to the projection.

    Args:
        gates: i, j, f and o before their activation, biases included, each of the cell's shape.
        c: cell before the step.
        bound: bound of the cell, or None.

    Returns:
        The cell after the step, the output before the projection, and the activated gates i, j, f and o, each
        of the cell's shape. From these and the cell, the backward pass recomputes everything else at little
        cost.
    """
    ops = keras.ops
    i, j, f, o = gates
    i, j, f, o = ops.sigmoid(i), ops.tanh(j), ops.sigmoid(f + FORGET_BIAS), ops.sigmoid(o)
    c = clip(f * c + i * j, bound)
    return c, o * ops.tanh(c), (i, j, f, o)


def lstm_step(
    gates: Tensor, before: LSTMState, weights: LSTMWeights, clips: Clips, continues: Tensor | None
) -> tuple[Tensor, LSTMState]:
    """Compute one step from its gates to its output and the state after it.

    Args:
        gates: float32 (batch, 4 * dim), before their activation, biases included.
        before: state before the step.
        weights: see `LSTMWeights`.
        clips: see `Clips`.
        continues: bool (batch, 1), False for rows that have ended and keep their state; None if all continue.
    """
    ops = keras.ops
    c, m, _ = update_cell(ops.split(gates, 4, axis=1), before.c, clips.cell)
    if weights.projection is not None:
        m = clip(ops.matmul(ops.cast(m, weights.projection.dtype), weights.projection), clips.projection)
    h = output = ops.cast(m, before.h.dtype)
    if continues is not None:
        c, h = ops.where(continues, c, before.c), ops.where(continues, h, before.h)
        output = zero_where(ops.logical_not(continues), output)
    return output, LSTMState(c, h)


def zero_where(condition: Tensor | None, values: Tensor) -> Tensor:
    """Set values to zero where a condition is true; None changes nothing."""
    return values if condition is None else keras.ops.where(condition, keras.ops.zeros_like(values), values)
