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


class SavedActivations(NamedTuple):
    """What the backward pass needs of a step: the activated gates, each of the cell's shape.

    The rest follows from them and the cell at little cost.
    """

    i: tf.Tensor
    j: tf.Tensor
    f: tf.Tensor
    o: tf.Tensor


def update_cell(
    gates: Sequence[tf.Tensor], c: tf.Tensor, bound: float | None
) -> tuple[tf.Tensor, tf.Tensor, SavedActivations]:
    """One step, from its gates to what is projected.

    Args:
        gates: i, j, f and o before their activation, biases included, each of the cell's shape.
        c: cell before the step.
        bound: of the cell.

    Returns:
        The cell after the step, the output before the projection, and what the backward pass needs.
    """
    i, j, f, o = gates
    kept = SavedActivations(tf.sigmoid(i), tf.tanh(j), tf.sigmoid(f + FORGET_BIAS), tf.sigmoid(o))
    c = clip(kept.f * c + kept.i * kept.j, bound)
    return c, kept.o * tf.tanh(c), kept
