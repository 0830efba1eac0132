"""The LSTM of ELMo as a layer: whole windows at a time, the state given and returned.

The equations are those of `bilm.backend.lstm_cell`.
"""

from __future__ import annotations

from typing import Any

from bilm.backend.keras_backend import Tensor, backend, keras
from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights


@keras.saving.register_keras_serializable("bilm")
class ProjectedLSTM(keras.layers.Layer):
    """LSTM layer with clipped cell and clipped recurrent projection, its state given and returned.

    Args:
        dim: width of the cell.
        projection_dim: width of the output; equal to ``dim`` for no projection.
        cell_clip: bound of the cell's absolute value, or None.
        proj_clip: bound of the projected output's absolute value, or None.
        time_major: inputs are (steps, batch, input_dim) rather than (batch, steps, input_dim).
        product_dtype: type of the factors of matrix products; all else is float32.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        dim: int,
        projection_dim: int,
        cell_clip: float | None = None,
        proj_clip: float | None = None,
        time_major: bool = False,
        product_dtype: str = "float32",
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**kwargs)
        self.product_dtype = product_dtype
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

    @property
    def recurrent_shape(self) -> tuple[int, int]:
        """Shape of the part of the kernel that multiplies the hidden state, its last rows."""
        return self.projection_dim, 4 * self.dim

    def zero_state(self, batch_size: int | Tensor) -> LSTMState:
        """State before the first token, zeros."""
        return LSTMState(
            keras.ops.zeros((batch_size, self.dim), self.variable_dtype),
            keras.ops.zeros((batch_size, self.projection_dim), self.variable_dtype),
        )

    def call(
        self,
        inputs: Tensor,
        state: LSTMState | None = None,
        lengths: Tensor | None = None,
        begins: Tensor | None = None,
        training: bool | None = None,
        recurrent_mask: Tensor | None = None,
    ) -> tuple[Tensor, LSTMState]:
        """Run over a window, or over whole sentences.

        Args:
            inputs: shape (batch, steps, input_dim), or time-major.
            state: state before the window, zeros if None.
            lengths: int32 (batch,), the steps of each row that count; all of them if None.
            begins: bool (steps, batch), the steps before which the state is set to zero; none if None.
            training: whether to keep what the gradient needs; it can be taken without, more slowly.
            recurrent_mask: factors on the rows of the kernel that multiply the hidden state, of the shape
                `recurrent_shape`, at all steps the same; none if None. Those of DropConnect are 0 and
                1 / (1 - rate): Wan et al. 2013, for LSTMs Merity et al. 2018.

        Returns:
            Outputs (batch, steps, projection_dim), or time-major, zero after the end of a row, and
            the state of each row at its end.
        """
        ops = keras.ops
        inputs = inputs if self.time_major else ops.transpose(inputs, (1, 0, 2))
        state = self.zero_state(ops.shape(inputs)[1]) if state is None else LSTMState(*state)
        kernel = ops.convert_to_tensor(self.kernel)
        if recurrent_mask is not None:
            of_inputs, recurrent = ops.split(kernel, [kernel.shape[0] - self.projection_dim], axis=0)
            kernel = ops.concatenate([of_inputs, recurrent * recurrent_mask], axis=0)
        weights = LSTMWeights(
            ops.cast(kernel, self.product_dtype),
            ops.cast(self.bias, self.variable_dtype),
            None if self.projection is None else ops.cast(self.projection, self.product_dtype),
        )
        outputs, state = backend.run_lstm(inputs, state, weights, self.clips, lengths, begins, training)
        return outputs if self.time_major else ops.transpose(outputs, (1, 0, 2)), state

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return super().get_config() | {
            "dim": self.dim,
            "projection_dim": self.projection_dim,
            "cell_clip": self.clips.cell,
            "proj_clip": self.clips.projection,
            "time_major": self.time_major,
            "product_dtype": self.product_dtype,
        }
