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

    Kernel and projection have the type that products are taken in, the bias is float32.
    """

    kernel: Tensor  # (input_dim + projection_dim, 4 * dim)
    bias: Tensor  # (4 * dim,)
    projection: Tensor | None  # (dim, projection_dim)


class Clips(NamedTuple):
    """Bounds of the cell and of the projected output; None leaves them free."""

    cell: float | None = None
    projection: float | None = None


def clip(values: Tensor, bound: float | None) -> Tensor:
    """Values between plus and minus `bound`; None leaves them free."""
    return values if bound is None else keras.ops.clip(values, -bound, bound)


class SavedActivations(NamedTuple):
    """The activated gates of a step, which the backward pass needs, each of the cell's shape.

    The rest follows from them and the cell at little cost.
    """

    i: Tensor
    j: Tensor
    f: Tensor
    o: Tensor


def update_cell(
    gates: Sequence[Tensor], c: Tensor, bound: float | None
) -> tuple[Tensor, Tensor, SavedActivations]:
    """One step, from its gates to what is projected.

    Args:
        gates: i, j, f and o before their activation, biases included, each of the cell's shape.
        c: cell before the step.
        bound: of the cell.

    Returns:
        The cell after the step, the output before the projection, and what the backward pass needs.
    """
    ops = keras.ops
    i, j, f, o = gates
    kept = SavedActivations(ops.sigmoid(i), ops.tanh(j), ops.sigmoid(f + FORGET_BIAS), ops.sigmoid(o))
    c = clip(kept.f * c + kept.i * kept.j, bound)
    return c, kept.o * ops.tanh(c), kept


def lstm_step(
    gates: Tensor,
    before: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    goes_on: Tensor | None,
) -> tuple[Tensor, LSTMState]:
    """One step, from the sum of its gates to its output and the state after it.

    Args:
        gates: (batch, 4 * dim) before their activation, biases included, float32.
        before: the state before the step.
        weights: see `LSTMWeights`.
        clips: see `Clips`.
        goes_on: bool (batch, 1), False for rows that have ended, whose state stays; None if all go on.
    """
    ops = keras.ops
    c, m, _ = update_cell(ops.split(gates, 4, axis=1), before.c, clips.cell)
    if weights.projection is not None:
        m = clip(ops.matmul(ops.cast(m, weights.projection.dtype), weights.projection), clips.projection)
    h = output = ops.cast(m, before.h.dtype)
    if goes_on is not None:
        c, h = ops.where(goes_on, c, before.c), ops.where(goes_on, h, before.h)
        output = zero_where(ops.logical_not(goes_on), output)
    return output, LSTMState(c, h)


def zero_where(condition: Tensor | None, values: Tensor) -> Tensor:
    """Zero where a condition holds; with None nowhere."""
    return values if condition is None else keras.ops.where(condition, keras.ops.zeros_like(values), values)
