"""The network from ids to every layer of both directions, for training and inference.

Tensors are time-major, (steps, rows, dim): the recurrence runs over the first axis.
"""

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np

from bilm.backend import lstm_cell, settings
from bilm.backend.keras_backend import Tensor, backend, keras, require_ready
from bilm.layers.char_cnn import CharCNN
from bilm.layers.lstm import ProjectedLSTM
from bilm.layers.network_layer import NetworkLayer
from bilm.options import Options, Precision

_LOG = logging.getLogger(__name__)

DIRECTIONS = ("forward", "backward")

States = tuple[tuple[lstm_cell.LSTMState, ...], ...]
"""LSTM states by direction, then by layer."""


class Encoder(NetworkLayer):
    """Word encoder and one LSTM stack per direction.

    Args:
        options: hyper-parameters.
        precision: see `bilm.options.Precision`.
        arrays: initial values by bilm's names, see `NetworkLayer`.

    Raises:
        OptionsError: there is no such precision.
        ProcessError: TensorFlow is in its version 1 mode, or the process was forked.
    """

    def __init__(
        self,
        options: Options,
        precision: Precision | str = Precision.FLOAT32,
        arrays: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        require_ready()
        super().__init__(name="encoder", dtype="float32")
        self.precision = Precision(precision)
        if self.precision is Precision.BFLOAT16 and not (settings.multiplies_bfloat16() or backend.n_gpus()):
            _LOG.warning("bfloat16 is slower than float32 here: this processor has no instructions for it")
        self.options = options
        lstm, cnn = self.options.lstm, self.options.char_cnn
        dtype = self.precision.product_dtype
        self.char_cnn = None if cnn is None else CharCNN(cnn, lstm.projection_dim, dtype)
        # One list: Keras before 3.15 leaves the layers of nested lists out of a saved model.
        self.lstms = [
            ProjectedLSTM(lstm, dtype, f"{direction}_{i}")
            for direction in DIRECTIONS[: self.options.n_directions]
            for i in range(lstm.n_layers)
        ]
        if arrays is not None:
            for part in (self, *self._parts()):
                part.start_from(arrays)

    def build(self, input_shape: Any = None) -> None:  # noqa: ANN401
        """Create all weights; their shapes follow from the options alone."""
        dim = self.options.lstm.projection_dim
        self.embedding: Any = None
        if self.char_cnn is not None:
            self.char_cnn.build()
        else:
            shape = (self.options.n_tokens_vocab, dim)
            self.embedding = self.add_weight(name="embedding", shape=shape, initializer="glorot_uniform")
        for layer in self.lstms:
            layer.build((None, None, dim))
        self.built = True

    @property
    def stacks(self) -> list[list[ProjectedLSTM]]:
        """The layers of each direction."""
        n_layers = self.options.lstm.n_layers
        return [self.lstms[k : k + n_layers] for k in range(0, len(self.lstms), n_layers)]

    def named_weights(self) -> dict[str, keras.Variable]:
        """Return the variables by bilm's names (see `bilm.weights.names`), wherever the encoder was made."""
        own = {} if self.embedding is None else {"encoder/embedding": self.embedding}
        parts = self._parts()
        return own | {f"encoder/{part.name}/{leaf.name}": leaf for part in parts for leaf in part.weights}

    def _parts(self) -> list[NetworkLayer]:
        return [*([] if self.char_cnn is None else [self.char_cnn]), *self.lstms]

    def zero_states(self, n_rows: int | Tensor) -> States:
        """Return the states before the first token: zeros."""
        return tuple(tuple(layer.zero_state(n_rows) for layer in stack) for stack in self.stacks)

    def state_specs(self) -> Any:  # noqa: ANN401
        """Return the shapes and types of `zero_states` for any number of rows, for `backend.compiled`."""
        return keras.tree.map_structure(
            lambda state: keras.KerasTensor((None, *state.shape[1:]), "float32"), self.zero_states(1)
        )

    def encode_types(self, type_characters: tuple[Tensor, ...] = ()) -> Tensor:
        """Return the vectors of distinct words, before the first LSTM layer: (words, projection_dim).

        Args:
            type_characters: character ids by length bucket, each (words, columns). A word-level model needs
                none, and returns the vectors of all words of its vocabulary.
        """
        return self.embedding.value if self.char_cnn is None else self.char_cnn(type_characters)

    def run_direction(
        self,
        direction: int,
        inputs: Tensor,
        states: tuple[lstm_cell.LSTMState, ...],
        dropout_seed: Tensor | None = None,
        lengths: Tensor | None = None,
        begins: Tensor | None = None,
    ) -> tuple[list[Tensor], tuple[lstm_cell.LSTMState, ...]]:
        """Run the LSTM stack of one direction over a window, in the given order of tokens.

        Args:
            direction: 0 forward, 1 backward.
            inputs: shape (steps, rows, projection_dim), word vectors.
            states: states before the window, one per layer.
            dropout_seed: int32 (2,) in training; None turns dropout off.
            lengths: int32 (rows,), the length of each row in steps, after which word vectors must be zero;
                None if all rows are full.
            begins: bool (steps, rows), True at steps that start from a zero state; None if no step does.

        Returns:
            The outputs of each layer, residual included, (steps, rows, projection_dim) each, zero after the
            end of a row, and the states after the window, each row's at its own end.
        """
        inputs = self.drop(inputs, direction, 0, dropout_seed)
        outputs, after = [], []
        for i, (layer, state) in enumerate(zip(self.stacks[direction], states, strict=True)):
            inputs = self.drop(inputs, direction, i + 1, dropout_seed)
            output, state = layer(inputs, state, lengths, begins, for_gradient=dropout_seed is not None)
            if i > 0 and self.options.lstm.use_skip_connections:
                output = output + inputs  # after dropout, as the layer saw them
            outputs.append(output)
            after.append(state)
            inputs = output
        return outputs, tuple(after)

    def drop(self, values: Tensor, direction: int, place: int, seed: Tensor | None) -> Tensor:
        """Apply dropout in a training window: zero a share of the values and scale up the others.

        Args:
            values: shape (steps, rows, dim).
            direction: 0 forward, 1 backward.
            place: 0 for the word vectors, of which whole tokens are dropped, then the number of the layer
                that takes the values as input, from 1; the last is the output layer.
            seed: int32 (2,), seed of the window; None turns dropout off.
        """
        options = self.options
        rate = options.dropout if place else options.word_dropout
        if seed is None or rate == 0.0:
            return values
        import tensorflow as tf  # on which alone models are trained

        steps, rows, dim = keras.ops.shape(values)
        mask = (1 if options.variational_dropout else steps, rows, dim) if place else (steps, rows, 1)
        own = tf.random.experimental.stateless_fold_in(seed, direction * (options.lstm.n_layers + 2) + place)
        return tf.nn.experimental.stateless_dropout(values, rate, own, noise_shape=mask)
