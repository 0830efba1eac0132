"""The LSTM of ELMo as a layer: whole windows at a time, the state given and returned.

The equations are those of `bilm.layers.lstm_cell`.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from bilm.layers.lstm_cell import Clips, LSTMState, LSTMWeights, input_gates, lstm_cell
from bilm.layers.lstm_loop import lstm_loop


def _through_clip(gradient: tf.Tensor, clipped: tf.Tensor, bound: float | None) -> tf.Tensor:
    """Gradient before a clip, from the clipped values: nothing passes where the bound was reached."""
    if bound is None:
        return gradient
    return tf.where(tf.abs(clipped) < tf.cast(bound, clipped.dtype), gradient, tf.zeros_like(gradient))


def lstm_window(
    inputs: tf.Tensor, state: LSTMState, weights: LSTMWeights, clips: Clips
) -> tuple[tf.Tensor, LSTMState]:
    """Run one layer over a window of a length known when the graph is built.

    The steps are unrolled; the gradient is written out so that each weight's is a single product
    over all steps and only activations, no intermediate products, are kept.

    Args:
        inputs: shape (steps, batch, input_dim).
        state: state before the window.
        weights: see `LSTMWeights`.
        clips: see `Clips`.

    Returns:
        Outputs (steps, batch, projection_dim) and the state after the window.
    """
    has_projection = weights.projection is not None
    arguments = [inputs, state.c, state.h, weights.kernel, weights.bias]
    if has_projection:
        arguments.append(weights.projection)

    @tf.custom_gradient
    def run(*tensors: tf.Tensor) -> tuple[tuple[tf.Tensor, ...], Any]:
        inputs, c, h, kernel, bias = tensors[:5]
        local = LSTMWeights(kernel, bias, tensors[5] if has_projection else None)
        gate_inputs, recurrent = input_gates(inputs, local)
        states, saved = [LSTMState(c, h)], []
        for step_inputs in tf.unstack(gate_inputs):
            after, kept = lstm_cell(step_inputs, states[-1], recurrent, local.projection, clips)
            states.append(after)
            saved.append(kept)

        def backward(*upstream: tf.Tensor) -> list[tf.Tensor]:
            return _window_gradient(inputs, states, saved, local, clips, upstream)

        return (tf.stack([after.h for after in states[1:]]), *states[-1]), backward

    outputs, c, h = run(*arguments)
    return outputs, LSTMState(c, h)


def _window_gradient(
    inputs: tf.Tensor,
    states: list[LSTMState],
    saved: list[tuple[tf.Tensor, ...]],
    weights: LSTMWeights,
    clips: Clips,
    upstream: tuple[tf.Tensor, ...],
) -> list[tf.Tensor]:
    """Back-propagation through one window; gradients of inputs, c, h, kernel, bias and projection."""
    d_outputs, dc, dh = upstream
    input_dim = inputs.shape[-1]
    recurrent = weights.kernel[input_dim:]
    d_gates_of, d_projected_of = [], []
    for before, after, kept, d_output in reversed(
        list(zip(states[:-1], states[1:], saved, tf.unstack(d_outputs), strict=True))
    ):
        i, j, f, o, tanh_c, _ = kept
        dm = dh + d_output
        if weights.projection is not None:
            d_projected = _through_clip(dm, after.h, clips.projection)
            d_projected_of.append(d_projected)
            dm = tf.matmul(d_projected, weights.projection, transpose_b=True)
        dc = _through_clip(dc + dm * o * (1.0 - tanh_c * tanh_c), after.c, clips.cell)
        d_gates = tf.concat(
            [
                dc * j * i * (1.0 - i),
                dc * i * (1.0 - j * j),
                dc * before.c * f * (1.0 - f),
                dm * tanh_c * o * (1.0 - o),
            ],
            axis=1,
        )
        d_gates_of.append(d_gates)
        dc = dc * f
        dh = tf.matmul(d_gates, recurrent, transpose_b=True)

    d_gates = tf.stack(d_gates_of[::-1])  # (steps, batch, 4 * dim)
    d_inputs = tf.matmul(d_gates, weights.kernel[:input_dim], transpose_b=True)
    hidden_before = tf.stack([before.h for before in states[:-1]])
    d_kernel = _product_over_steps(tf.concat([inputs, hidden_before], axis=-1), d_gates)
    gradients = [d_inputs, dc, dh, d_kernel, tf.reduce_sum(d_gates, axis=[0, 1])]
    if weights.projection is not None:
        unprojected = tf.stack([kept[-1] for kept in saved])
        gradients.append(_product_over_steps(unprojected, tf.stack(d_projected_of[::-1])))
    return gradients


def _product_over_steps(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Sum over steps and batch of the outer products: one matrix product for a weight's gradient."""
    flat = [tf.reshape(tensor, [-1, tensor.shape[-1]]) for tensor in (left, right)]
    return tf.matmul(flat[0], flat[1], transpose_a=True)


@keras.saving.register_keras_serializable("bilm")
class ProjectedLSTM(keras.layers.Layer):
    """LSTM layer with clipped cell and clipped recurrent projection, its state given and returned.

    Args:
        dim: width of the cell.
        projection_dim: width of the output; equal to ``dim`` for no projection.
        cell_clip: bound of the cell's absolute value, or None.
        proj_clip: bound of the projected output's absolute value, or None.
        time_major: inputs are (steps, batch, input_dim) rather than (batch, steps, input_dim).
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        dim: int,
        projection_dim: int,
        cell_clip: float | None = None,
        proj_clip: float | None = None,
        time_major: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**kwargs)
        self.dim = dim
        self.projection_dim = projection_dim
        self.clips = Clips(cell_clip, proj_clip)
        self.time_major = time_major

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Create kernel, bias and, where it narrows, projection, glorot uniform as TF1's default."""
        self.kernel = self.add_weight(
            name="kernel",
            shape=(input_shape[-1] + self.projection_dim, 4 * self.dim),
            initializer="glorot_uniform",
        )
        self.bias = self.add_weight(name="bias", shape=(4 * self.dim,), initializer="zeros")
        self.projection = None
        if self.projection_dim < self.dim:
            self.projection = self.add_weight(
                name="projection", shape=(self.dim, self.projection_dim), initializer="glorot_uniform"
            )
        self.built = True

    def zero_state(self, batch_size: int | tf.Tensor) -> LSTMState:
        """State before the first token, zeros."""
        return LSTMState(
            tf.zeros([batch_size, self.dim], self.compute_dtype),
            tf.zeros([batch_size, self.projection_dim], self.compute_dtype),
        )

    def call(
        self, inputs: tf.Tensor, state: LSTMState | None = None, lengths: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, LSTMState]:
        """Run over a window, or over whole sentences.

        Args:
            inputs: shape (batch, steps, input_dim), or time-major.
            state: state before the window, zeros if None.
            lengths: int32 (batch,), the steps of each row that count; all of them if None.

        Returns:
            Outputs (batch, steps, projection_dim), or time-major, zero after the end of a row, and
            the state of each row at its end.
        """
        inputs = inputs if self.time_major else tf.transpose(inputs, [1, 0, 2])
        state = self.zero_state(tf.shape(inputs)[1]) if state is None else LSTMState(*state)
        weights = LSTMWeights(
            tf.convert_to_tensor(self.kernel),
            tf.convert_to_tensor(self.bias),
            None if self.projection is None else tf.convert_to_tensor(self.projection),
        )
        if lengths is not None or inputs.shape[0] is None:
            outputs, state = lstm_loop(inputs, state, weights, self.clips, lengths)
        else:
            outputs, state = lstm_window(inputs, state, weights, self.clips)
        return outputs if self.time_major else tf.transpose(outputs, [1, 0, 2]), state

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return super().get_config() | {
            "dim": self.dim,
            "projection_dim": self.projection_dim,
            "cell_clip": self.clips.cell,
            "proj_clip": self.clips.projection,
            "time_major": self.time_major,
        }
