"""The LSTM over windows and sentences of any length: a loop, compiled once for all of them."""

from __future__ import annotations

import tensorflow as tf

from bilm.layers.lstm_cell import Clips, LSTMState, LSTMWeights, lstm_cell


def lstm_loop(
    inputs: tf.Tensor,
    state: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    lengths: tf.Tensor | None = None,
) -> tuple[tf.Tensor, LSTMState]:
    """Run one layer over rows of a length known only at run time.

    Memory beyond inputs and outputs does not grow with the length.

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
    n_steps = tf.shape(inputs)[0]

    def step(
        now: tf.Tensor, before: LSTMState, outputs: tf.TensorArray
    ) -> tuple[tf.Tensor, LSTMState, tf.TensorArray]:
        after, _ = lstm_cell(inputs[now], before, weights, clips)
        after = LSTMState(after.c, tf.cast(after.h, before.h.dtype))
        output = after.h
        if lengths is not None:
            goes_on = (now < lengths)[:, None]
            output = tf.where(goes_on, output, tf.zeros_like(output))
            after = LSTMState(*(tf.where(goes_on, new, old) for new, old in zip(after, before, strict=True)))
        return now + 1, after, outputs.write(now, output)

    outputs = tf.TensorArray(state.h.dtype, n_steps, element_shape=state.h.shape)
    _, state, outputs = tf.while_loop(
        lambda now, *_: now < n_steps, step, (tf.constant(0), LSTMState(*state), outputs)
    )
    return outputs.stack(), state
