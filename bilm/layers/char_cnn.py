"""The character encoder: convolutions over a word's bytes, highways, projection.

.. code-block:: text

    y_w = act(max over positions of (conv(characters, W_w) + b_w))      for each filter width
    y   = [y_1; y_2; ...]
    y   = g relu(y W_t + b_t) + (1 - g) y,   g = sigmoid(y W_c + b_c)   n_highway times
    out = y W_p + b_p                                                   if the widths differ

Source: Kim et al. 2016; initial values as in bilm-tf.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bilm.backend.keras_backend import Tensor, backend, keras
from bilm.layers.network_layer import NetworkLayer
from bilm.options import Activation, CharCNNOptions
from bilm.vocabulary.vocabulary import PADDING

N_CHARACTERS = 261


class CharCNN(NetworkLayer):
    """Encoder of words: character ids to one vector per word.

    A word of L characters needs only the first ``L + max_width`` of its ``max_characters`` columns: every
    window inside the padding has the same value, and one such window is left. The maxima therefore stay
    the same if rows are cut to any number of columns that all their words have (see
    `bilm.options.CharCNNOptions.bucket_widths`).

    Args:
        options: filters, activation and sizes.
        output_dim: width of the result; no projection if it equals the number of filters.
        product_dtype: dtype of the factors of matrix products; everything else is float32.
    """

    def __init__(self, options: CharCNNOptions, output_dim: int, product_dtype: str = "float32") -> None:
        super().__init__(name="char_cnn", dtype="float32")
        self.options = options
        self.output_dim = output_dim
        self.product_dtype = product_dtype

    def build(self, input_shape: Any = None) -> None:  # noqa: ANN401
        """Create the weights; the input's shape does not matter."""
        options, dim = self.options, self.options.n_filters
        shape = (N_CHARACTERS, options.embedding_dim)
        uniform = keras.initializers.RandomUniform(-1.0, 1.0)
        self.char_embed = self.add_weight(name="char_embed", shape=shape, initializer=uniform)
        self.kernels = [
            self._add_filters(f"W_cnn_{i}", (1, width, options.embedding_dim, number))
            for i, (width, number) in enumerate(options.filters)
        ]
        self.biases = [
            self.add_weight(name=f"b_cnn_{i}", shape=(number,), initializer="zeros")
            for i, (_, number) in enumerate(options.filters)
        ]
        self.highways = [
            (
                *self._add_dense(f"high_{i}_", "carry", dim, -2.0),
                *self._add_dense(f"high_{i}_", "transform", dim),
            )
            for i in range(options.n_highway)
        ]
        self.projection = None if dim == self.output_dim else self._add_dense("", "proj", self.output_dim)
        self.built = True

    def _add_filters(self, name: str, shape: tuple[int, int, int, int]) -> keras.Variable:
        if self.options.activation is Activation.RELU:
            initializer = keras.initializers.RandomUniform(-0.05, 0.05)
        else:
            initializer = keras.initializers.RandomNormal(stddev=math.sqrt(1.0 / (shape[1] * shape[2])))
        return self.add_weight(name=name, shape=shape, initializer=initializer)

    def _add_dense(self, scope: str, name: str, output_dim: int, bias: float = 0.0) -> tuple[Any, Any]:
        """Create the kernel and the bias of a product with a word's filters."""
        shape = (self.options.n_filters, output_dim)
        normal = keras.initializers.RandomNormal(stddev=math.sqrt(1.0 / shape[0]))
        constant = keras.initializers.Constant(bias)
        kernel = self.add_weight(name=f"{scope}W_{name}", shape=shape, initializer=normal)
        return kernel, self.add_weight(name=f"{scope}b_{name}", shape=shape[1:], initializer=constant)

    def call(self, character_ids: Tensor | tuple[Tensor, ...]) -> Tensor:
        """Encode words.

        Args:
            character_ids: integers 0-260, shape (..., columns); or a tuple of length buckets, each (words,
                columns) with its own number of columns. The result has the buckets' words one after another.

        Returns:
            Shape (..., output_dim); for buckets (words of all buckets, output_dim).
        """
        if isinstance(character_ids, tuple | list):
            return self._encode(character_ids)
        ops = keras.ops
        words = self._encode((ops.reshape(character_ids, (-1, character_ids.shape[-1])),))
        return ops.reshape(words, (*ops.shape(character_ids)[:-1], self.output_dim))

    def _encode(self, buckets: Sequence[Tensor]) -> Tensor:
        """Encode the words of all buckets, (words, output_dim)."""
        kernel = self._stacked_kernel()
        ops = keras.ops
        pooled = ops.concatenate([self._pool(rows, kernel) for rows in buckets], axis=0)
        activation = ops.relu if self.options.activation is Activation.RELU else ops.tanh
        biases = ops.concatenate([ops.convert_to_tensor(bias) for bias in self.biases], axis=0)
        words = activation(ops.cast(pooled, biases.dtype) + biases)
        for carry, carry_bias, transform, transform_bias in self.highways:
            gate = ops.sigmoid(self._product(words, carry) + carry_bias)
            transformed = ops.relu(self._product(words, transform) + transform_bias)
            words = gate * transformed + (1.0 - gate) * words
        if self.projection is not None:
            projection, bias = self.projection
            words = self._product(words, projection) + bias
        return words

    def _pool(self, rows: Tensor, kernel: Tensor) -> Tensor:
        """Convolve and take the maxima: (words, columns) -> (words, n_filters)."""
        ops, options = keras.ops, self.options
        n_words, columns = ops.shape(rows)
        # In cut rows filters of every width use the same number of windows, the last one all padding.
        # In whole rows narrower filters have more windows than the widest.
        n_more = 0
        if columns >= options.max_characters_per_token:
            n_more = options.max_width - min(width for width, _ in options.filters)
        n_windows = columns - options.max_width + 1 + n_more
        rows = ops.pad(rows, [[0, 1], [0, 0]])  # oneDNN mistakes the shape of an empty batch
        # The product makes the gradient dense: the table is small, and replicas can sum it.
        table = ops.cast(1.0 * ops.convert_to_tensor(self.char_embed), self.product_dtype)
        characters = ops.pad(backend.gather(table, rows), [[0, 0], [0, n_more], [0, 0]])
        size = (n_words + 1, n_windows, options.embedding_dim)
        shifted = [ops.slice(characters, (0, k, 0), size) for k in range(options.max_width)]
        windows = ops.concatenate(shifted, axis=-1)
        convolved = ops.matmul(ops.reshape(windows, (-1, kernel.shape[0])), kernel)
        convolved = ops.reshape(convolved, (-1, n_windows, options.n_filters))
        if n_more:  # minus infinity where a filter's window would go beyond the row
            widths = np.repeat(*np.transpose(options.filters))
            is_beyond = np.arange(n_windows)[:, None] + widths > columns
            convolved += ops.cast(np.where(is_beyond, -np.inf, 0.0).astype(np.float32), convolved.dtype)
        pooled = backend.max_over_windows(convolved)
        # In TensorFlow the gradient of slice takes one pass, unlike that of [].
        return ops.slice(pooled, (0, 0), (n_words, options.n_filters))

    def _stacked_kernel(self) -> Tensor:
        """Pad all filters with zeros to the widest: (max_width * embedding_dim, n_filters)."""
        ops, options = keras.ops, self.options
        wide = [
            ops.pad(ops.convert_to_tensor(kernel)[0], [[0, options.max_width - width], [0, 0], [0, 0]])
            for kernel, (width, _) in zip(self.kernels, options.filters, strict=True)
        ]
        kernel = ops.reshape(ops.concatenate(wide, axis=-1), (-1, options.n_filters))
        return ops.cast(kernel, self.product_dtype)

    def _product(self, words: Tensor, kernel: keras.Variable) -> Tensor:
        cast = keras.ops.cast
        product = keras.ops.matmul(cast(words, self.product_dtype), cast(kernel, self.product_dtype))
        return cast(product, words.dtype)

    def buckets_of(self, character_ids: Tensor) -> Tensor:
        """Return the number of the smallest bucket that fits each word, int32 (words,).

        Args:
            character_ids: integers 0-260, whole rows (words, max_characters_per_token).
        """
        ops, options = keras.ops, self.options
        columns = ops.arange(1, options.max_characters_per_token + 1, dtype="int32")
        lengths = ops.max(ops.where(character_ids == PADDING, 0, columns), axis=1)
        needed = ops.minimum(options.max_characters_per_token, lengths + options.max_width)
        return ops.searchsorted(ops.convert_to_tensor(options.bucket_widths, "int32"), needed)
