"""The LSTM of ELMo as a layer: whole windows at a time, the state given and returned.

The equations are those of `bilm.backend.lstm_cell`.
"""

from __future__ import annotations

from typing import Any

from bilm.backend.keras_backend import Tensor, backend, keras
from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights
from bilm.options import LSTMOptions


class ProjectedLSTM(keras.layers.Layer):
    """LSTM layer with clipped cell and clipped recurrent projection, its state given and returned.

    Args:
        options: sizes and clips.
        product_dtype: type of the factors of matrix products; all else is float32.
        name: of the layer.
    """

    def __init__(self, options: LSTMOptions, product_dtype: str = "float32", name: str | None = None) -> None:
        super().__init__(name=name, dtype="float32")
        self.dim, self.projection_dim = options.dim, options.projection_dim
        self.clips = Clips(options.cell_clip, options.proj_clip)
        self.product_dtype = product_dtype

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
            inputs: shape (steps, batch, input_dim).
            state: state before the window, zeros if None.
            lengths: int32 (batch,), the steps of each row that count; all of them if None.
            begins: bool (steps, batch), the steps before which the state is set to zero; none if None.
            training: whether to keep what the gradient needs; it can be taken without, more slowly.
            recurrent_mask: factors on the rows of the kernel that multiply the hidden state, of the shape
                `recurrent_shape`, at all steps the same; none if None. Those of DropConnect are 0 and
                1 / (1 - rate): Wan et al. 2013, for LSTMs Merity et al. 2018.

        Returns:
            Outputs (steps, batch, projection_dim), zero after the end of a row, and the state of each row
            at its end.
        """
        ops = keras.ops
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
        return backend.run_lstm(inputs, state, weights, self.clips, lengths, begins, training)
