"""ELMo's LSTM as a Keras layer; `bilm.backend.lstm_cell` has the equations."""

from typing import Any

from bilm.backend.keras_backend import Tensor, backend, keras
from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights
from bilm.layers.network_layer import NetworkLayer
from bilm.options import LSTMOptions


class ProjectedLSTM(NetworkLayer):
    """LSTM layer with a clipped cell and a clipped recurrent projection, which takes and returns its state.

    Args:
        options: sizes and clips.
        product_dtype: dtype of the factors of matrix products; everything else is float32.
        name: name of the layer.
    """

    def __init__(self, options: LSTMOptions, product_dtype: str = "float32", name: str | None = None) -> None:
        super().__init__(name=name, dtype="float32")
        self.dim, self.projection_dim = options.dim, options.projection_dim
        self.clips = Clips(options.cell_clip, options.proj_clip)
        self.product_dtype = product_dtype

    def build(self, input_shape: tuple[Any, ...]) -> None:
        """Create the kernel, the bias and, if it narrows, the projection: glorot uniform, TF1's default."""
        shape = (input_shape[-1] + self.projection_dim, 4 * self.dim)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer="glorot_uniform")
        self.bias = self.add_weight(name="bias", shape=(4 * self.dim,), initializer="zeros")
        self.projection = None
        if self.projection_dim < self.dim:
            shape = (self.dim, self.projection_dim)
            self.projection = self.add_weight(name="projection", shape=shape, initializer="glorot_uniform")
        self.built = True

    def zero_state(self, batch_size: int | Tensor) -> LSTMState:
        """Return the state before the first token: zeros."""
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
        for_gradient: bool = False,
    ) -> tuple[Tensor, LSTMState]:
        """Run over a window, or over whole sentences.

        Args:
            inputs: shape (steps, batch, input_dim).
            state: state before the window; None for zeros.
            lengths: int32 (batch,), the length of each row in steps; None if all rows are full.
            begins: bool (steps, batch), True at steps that start from a zero state; None if no step does.
            for_gradient: keep the values that the gradient needs; without them the gradient is slower. Not
                Keras's `training`, which would hold for all layers that are called after this one.

        Returns:
            Outputs (steps, batch, projection_dim), zero after the end of a row, and the state of each row
            at its end.
        """
        ops = keras.ops
        state = self.zero_state(ops.shape(inputs)[1]) if state is None else LSTMState(*state)
        weights = LSTMWeights(
            ops.cast(self.kernel, self.product_dtype),
            ops.cast(self.bias, self.variable_dtype),
            None if self.projection is None else ops.cast(self.projection, self.product_dtype),
        )
        return backend.run_lstm(inputs, state, weights, self.clips, lengths, begins, for_gradient)
