"""The LSTM over windows and sentences of any length: a loop, compiled once for all of them."""

from __future__ import annotations

import tensorflow as tf

from bilm.layers.lstm_cell import Clips, LSTMState, LSTMWeights, gate_product, lstm_cell

_TOKENS_AT_ONCE = 8192  # whose share of the gates is held in memory: 4 * dim numbers each


def lstm_loop(
    inputs: tf.Tensor,
    state: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    lengths: tf.Tensor | None = None,
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

    Returns:
        Outputs (steps, batch, projection_dim), zero after the end of a row, and the state of each row
        at its own end, as ``tf.nn.dynamic_rnn`` of TensorFlow 1 with ``sequence_length``.
    """
    n_steps, n_rows = tf.unstack(tf.shape(inputs)[:2])
    input_dim, dtype = inputs.shape[-1], state.c.dtype
    n_at_once = tf.maximum(1, _TOKENS_AT_ONCE // tf.maximum(n_rows, 1))

    def window(
        start: tf.Tensor, state: LSTMState, outputs: tf.TensorArray
    ) -> tuple[tf.Tensor, LSTMState, tf.TensorArray]:
        end = tf.minimum(start + n_at_once, n_steps)
        input_gates = gate_product(inputs[start:end], weights.kernel[:input_dim], dtype) + weights.bias

        def step(
            now: tf.Tensor, before: LSTMState, outputs: tf.TensorArray
        ) -> tuple[tf.Tensor, LSTMState, tf.TensorArray]:
            gates = input_gates[now - start] + gate_product(before.h, weights.kernel[input_dim:], dtype)
            after, _ = lstm_cell(gates, before, weights.projection, clips)
            output = after.h
            if lengths is not None:
                goes_on = (now < lengths)[:, None]
                output = tf.where(goes_on, output, tf.zeros_like(output))
                after = LSTMState(
                    *(tf.where(goes_on, new, old) for new, old in zip(after, before, strict=True))
                )
            return now + 1, after, outputs.write(now, output)

        return tf.while_loop(lambda now, *_: now < end, step, (start, state, outputs))

    outputs = tf.TensorArray(state.h.dtype, n_steps, element_shape=state.h.shape)
    _, state, outputs = tf.while_loop(
        lambda start, *_: start < n_steps, window, (tf.constant(0), LSTMState(*state), outputs)
    )
    return outputs.stack(), state
