"""The LSTM over windows and sentences of any length: a loop whose products are TensorFlow's.

What lies between them is one function that XLA compiles where it can, a few passes over the gates
instead of some fifteen; it is compiled for each number of rows, but not for each number of steps.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights, clip, update_cell, zero_where
from bilm.backend.settings import TOKENS_AT_ONCE
from bilm.backend.xla import compiled


def lstm_loop(
    inputs: tf.Tensor,
    state: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    lengths: tf.Tensor | None = None,
    begins: tf.Tensor | None = None,
) -> tuple[tf.Tensor, LSTMState]:
    """Run one layer over rows of a length known only at run time.

    The input's share of the gates is one product for many steps, so that memory beyond inputs and
    outputs does not grow with the length.

    Args:
        inputs: shape (steps, batch, input_dim).
        state: state before the first step.
        weights: see `LSTMWeights`.
        clips: see `Clips`.
        lengths: int32 (batch,), the steps of each row that count; all of them if None.
        begins: bool (steps, batch), the steps before which the state is set to zero; none if None.

    Returns:
        Outputs (steps, batch, projection_dim), zero after the end of a row, and the state of each row
        at its own end, as ``tf.nn.dynamic_rnn`` of TensorFlow 1 with ``sequence_length``.
    """
    n_steps, n_rows, input_dim = keras.ops.shape(inputs)  # what is known of them stays known
    dtype = state.c.dtype
    n_at_once = tf.maximum(1, TOKENS_AT_ONCE // tf.maximum(n_rows, 1))

    def window(
        start: tf.Tensor, state: LSTMState, outputs: tf.TensorArray
    ) -> tuple[tf.Tensor, LSTMState, tf.TensorArray]:
        end = tf.minimum(start + n_at_once, n_steps)
        # The bias goes to the cell; in low precision the gates are added up in full.
        tokens = tf.reshape(inputs[start:end], [-1, input_dim])  # multiplied faster than step by step
        input_gates = _gates(tokens, weights.kernel[:input_dim], dtype)
        input_gates = tf.reshape(input_gates, [end - start, n_rows, weights.kernel.shape[1]])

        def step(
            now: tf.Tensor, before: LSTMState, outputs: tf.TensorArray
        ) -> tuple[tf.Tensor, LSTMState, tf.TensorArray]:
            goes_on = None if lengths is None else (now < lengths)[:, None]
            is_new = None if begins is None else begins[now][:, None]
            before = LSTMState(before.c, zero_where(is_new, before.h))
            shares = (input_gates[now - start], _gates(before.h, weights.kernel[input_dim:], dtype))
            c, m = _update_cell(shares, before, weights, clips, goes_on, is_new)
            if weights.projection is not None:
                m = clip(tf.matmul(m, weights.projection), clips.projection)
            h = output = tf.cast(m, before.h.dtype)
            if goes_on is not None:
                h = tf.where(goes_on, h, before.h)
                output = tf.where(goes_on, output, tf.zeros_like(output))
            return now + 1, LSTMState(c, h), outputs.write(now, output)

        return tf.while_loop(lambda now, *_: now < end, step, (start, state, outputs))

    outputs = tf.TensorArray(state.h.dtype, n_steps, element_shape=state.h.shape)
    _, state, outputs = tf.while_loop(
        lambda start, *_: start < n_steps, window, (tf.constant(0), LSTMState(*state), outputs)
    )
    return outputs.stack(), state


@compiled
def _update_cell(
    shares: tuple[tf.Tensor, tf.Tensor],
    before: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    goes_on: tf.Tensor | None,
    is_new: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Cell after a step, changed where the row continues, and the output before the projection."""
    before_c = zero_where(is_new, before.c)
    gates = tf.split(shares[0] + shares[1] + weights.bias, 4, axis=1)
    c, m, _ = update_cell(gates, before_c, clips.cell)
    m = tf.cast(m, before.h.dtype if weights.projection is None else weights.projection.dtype)
    return (c if goes_on is None else tf.where(goes_on, c, before_c)), m


def _gates(inputs: tf.Tensor, kernel: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """A share of the gates, taken in the kernel's type and given in `dtype`."""
    return tf.cast(tf.matmul(tf.cast(inputs, kernel.dtype), kernel), dtype)
