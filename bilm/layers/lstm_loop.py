"""The LSTM over windows and sentences of any length: a loop whose products are TensorFlow's.

What lies between them is one function that XLA compiles, a few passes over the gates instead of
some fifteen; it is compiled for each number of rows, but not for each number of steps.
"""

from __future__ import annotations

import tensorflow as tf

from bilm.layers.lstm_cell import Clips, LSTMState, LSTMWeights, gate_product, hidden, update_cell

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
        # The bias goes to the cell; in low precision the gates are added up in full.
        input_gates = gate_product(inputs[start:end], weights.kernel[:input_dim], dtype)

        def step(
            now: tf.Tensor, before: LSTMState, outputs: tf.TensorArray
        ) -> tuple[tf.Tensor, LSTMState, tf.TensorArray]:
            shares = (input_gates[now - start], gate_product(before.h, weights.kernel[input_dim:], dtype))
            goes_on = None if lengths is None else (now < lengths)[:, None]
            c, m = _update_cell(shares, before, weights, clips, goes_on)
            h = output = hidden(m, before, weights.projection, clips)
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


@tf.function(jit_compile=True, autograph=False)
def _update_cell(
    shares: tuple[tf.Tensor, tf.Tensor],
    before: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    goes_on: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Cell after a step, changed where the row goes on, and the output before the projection."""
    c, m, _ = update_cell(shares[0] + shares[1] + weights.bias, before, weights.projection, clips)
    return (c if goes_on is None else tf.where(goes_on, c, before.c)), m
