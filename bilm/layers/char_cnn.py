"""The character encoder: convolutions over a word's bytes, highways, projection.

.. code-block:: text

    y_w = act(max over positions of (conv(characters, W_w) + b_w))      one for each filter width
    y   = [y_1; y_2; ...]
    y   = g relu(y W_t + b_t) + (1 - g) y,   g = sigmoid(y W_c + b_c)   n_highway times
    out = y W_p + b_p                                                   where the widths differ

Source: Kim et al. 2016; initial values as bilm-tf has them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.options import Activation

N_CHARACTERS = 261


@keras.saving.register_keras_serializable("bilm")
class CharCNN(keras.layers.Layer):
    """Character ids of words -> one vector per word.

    A word of L characters in ``max_characters`` columns has the same maxima when the columns after
    the first ``L + max_width`` are cut: a window wholly inside the padding gives one constant, and
    one such window is left. Rows may therefore come cut to any number of columns that leaves each
    of their words that much (see `bilm.options.network.length_buckets`).

    Args:
        filters: pairs (width in characters, number).
        embedding_dim: width of a character's vector.
        output_dim: width of the result; no projection when it equals the number of filters.
        n_highway: number of highway layers.
        activation: ``relu`` or ``tanh``.
        max_characters: columns of a whole row of character ids.
        product_dtype: type of the factors of matrix products; all else is float32.
        **kwargs: of `keras.layers.Layer`.
    """

    def __init__(
        self,
        filters: Sequence[tuple[int, int]],
        embedding_dim: int,
        output_dim: int,
        n_highway: int = 0,
        activation: Activation | str = Activation.RELU,
        max_characters: int = 50,
        product_dtype: str = "float32",
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(**kwargs)
        self.product_dtype = product_dtype
        self.filters = tuple((int(width), int(number)) for width, number in filters)
        self.embedding_dim = embedding_dim
        self.output_dim = output_dim
        self.n_highway = n_highway
        self.activation = Activation(activation)
        self.max_characters = max_characters
        self.n_filters = sum(number for _, number in self.filters)
        self.max_width = max(width for width, _ in self.filters)
        self.min_width = min(width for width, _ in self.filters)

    def build(self, input_shape: Any = None) -> None:  # noqa: ANN401
        """Create the weights; their shapes do not depend on the input's."""
        self.char_embed = self.add_weight(
            name="char_embed",
            shape=(N_CHARACTERS, self.embedding_dim),
            initializer=keras.initializers.RandomUniform(-1.0, 1.0),
        )
        self.kernels = [
            self.add_weight(
                name=f"W_cnn_{i}",
                shape=(1, width, self.embedding_dim, number),
                initializer=self._kernel_initializer(width),
            )
            for i, (width, number) in enumerate(self.filters)
        ]
        self.biases = [
            self.add_weight(name=f"b_cnn_{i}", shape=(number,), initializer="zeros")
            for i, (_, number) in enumerate(self.filters)
        ]
        self.highways = [self._build_highway(i) for i in range(self.n_highway)]
        self.projection = None
        if self.n_filters != self.output_dim:
            self.projection = (
                self._add_dense("W_proj", self.n_filters, self.output_dim),
                self.add_weight(name="b_proj", shape=(self.output_dim,), initializer="zeros"),
            )
        self.built = True

    def _kernel_initializer(self, width: int) -> keras.Initializer:
        if self.activation is Activation.RELU:
            return keras.initializers.RandomUniform(-0.05, 0.05)
        return keras.initializers.RandomNormal(stddev=math.sqrt(1.0 / (width * self.embedding_dim)))

    def _add_dense(self, name: str, input_dim: int, output_dim: int) -> keras.Variable:
        normal = keras.initializers.RandomNormal(stddev=math.sqrt(1.0 / input_dim))
        return self.add_weight(name=name, shape=(input_dim, output_dim), initializer=normal)

    def _build_highway(self, i: int) -> tuple[keras.Variable, ...]:
        dim = self.n_filters
        carry_bias = keras.initializers.Constant(-2.0)
        return (
            self._add_dense(f"high_{i}_W_carry", dim, dim),
            self.add_weight(name=f"high_{i}_b_carry", shape=(dim,), initializer=carry_bias),
            self._add_dense(f"high_{i}_W_transform", dim, dim),
            self.add_weight(name=f"high_{i}_b_transform", shape=(dim,), initializer="zeros"),
        )

    def call(self, character_ids: tf.Tensor | tuple[tf.Tensor, ...]) -> tf.Tensor:
        """Encode words.

        Args:
            character_ids: integers 0-260, shape (..., columns); or a tuple of length buckets, each
                (words, its own columns), whose words follow each other in the result.

        Returns:
            Shape (..., output_dim); (words of all buckets, output_dim) for buckets.
        """
        if isinstance(character_ids, tuple | list):
            return self._encode(character_ids)
        leading = tf.shape(character_ids)[:-1]
        words = self._encode((tf.reshape(character_ids, [-1, character_ids.shape[-1]]),))
        return tf.reshape(words, tf.concat([leading, [self.output_dim]], axis=0))

    def _encode(self, buckets: Sequence[tf.Tensor]) -> tf.Tensor:
        """Vectors of the words of all buckets, (words, output_dim)."""
        kernel = self._stacked_kernel()
        pooled = tf.concat([self._pool(rows, kernel) for rows in buckets], axis=0)
        activation = tf.nn.relu if self.activation is Activation.RELU else tf.tanh
        biases = tf.concat([tf.convert_to_tensor(bias) for bias in self.biases], axis=0)
        return self._combine(activation(tf.cast(pooled, biases.dtype) + biases))

    def _pool(self, rows: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Convolve and take the maxima: (words, columns) -> (words, n_filters)."""
        n_words, columns = tf.shape(rows)[0], rows.shape[-1]
        # Cut rows leave every width the same number of windows, the last one all padding. In whole
        # rows the narrower filters have more of them than the widest.
        n_more = self.max_width - self.min_width if columns >= self.max_characters else 0
        n_windows = columns - self.max_width + 1 + n_more
        rows = tf.pad(rows, [[0, 1], [0, 0]])  # oneDNN mistakes the shape of an empty batch
        # A product, so that the gradient is dense: the table is small, and replicas can add it up.
        table = tf.cast(1.0 * tf.convert_to_tensor(self.char_embed), self.product_dtype)
        characters = tf.gather(table, rows)
        characters = tf.pad(characters, [[0, 0], [0, n_more], [0, 0]])
        windows = tf.concat(
            [tf.slice(characters, [0, k, 0], [-1, n_windows, -1]) for k in range(self.max_width)], axis=-1
        )
        convolved = tf.matmul(tf.reshape(windows, [-1, kernel.shape[0]]), kernel)
        convolved = tf.reshape(convolved, [-1, 1, n_windows, self.n_filters])
        if n_more:
            convolved += tf.cast(self._beyond(columns, n_windows), convolved.dtype)
        # Unlike those of reduce_max and of slicing, the gradients here take one pass.
        pooled = tf.nn.max_pool(convolved, [1, 1, n_windows, 1], 1, "VALID")
        return tf.slice(tf.reshape(pooled, [-1, self.n_filters]), [0, 0], [n_words, self.n_filters])

    def _stacked_kernel(self) -> tf.Tensor:
        """All filters as wide as the widest, filled with zeros: (max_width * embedding_dim, n_filters)."""
        wide = [
            tf.pad(tf.convert_to_tensor(kernel)[0], [[0, self.max_width - width], [0, 0], [0, 0]])
            for kernel, (width, _) in zip(self.kernels, self.filters, strict=True)
        ]
        return tf.cast(tf.reshape(tf.concat(wide, axis=-1), [-1, self.n_filters]), self.product_dtype)

    def _beyond(self, columns: int, n_windows: int) -> np.ndarray:
        """Minus infinity where a filter's window would go beyond the row, shape (n_windows, n_filters)."""
        widths = np.repeat(*np.transpose(self.filters))
        return np.where(np.arange(n_windows)[:, None] + widths > columns, -np.inf, 0.0).astype(np.float32)

    def _combine(self, words: tf.Tensor) -> tf.Tensor:
        """Highways and projection: (words, n_filters) -> (words, output_dim)."""
        for carry, carry_bias, transform, transform_bias in self.highways:
            gate = tf.sigmoid(self._product(words, carry) + carry_bias)
            transformed = tf.nn.relu(self._product(words, transform) + transform_bias)
            words = gate * transformed + (1.0 - gate) * words
        if self.projection is not None:
            kernel, bias = self.projection
            words = self._product(words, kernel) + bias
        return words

    def _product(self, words: tf.Tensor, kernel: keras.Variable) -> tf.Tensor:
        product = tf.matmul(tf.cast(words, self.product_dtype), tf.cast(kernel, self.product_dtype))
        return tf.cast(product, words.dtype)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Shape of the result for one tensor of ids."""
        return (*input_shape[:-1], self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return super().get_config() | {
            "filters": [list(pair) for pair in self.filters],
            "embedding_dim": self.embedding_dim,
            "output_dim": self.output_dim,
            "n_highway": self.n_highway,
            "activation": self.activation.value,
            "max_characters": self.max_characters,
            "product_dtype": self.product_dtype,
        }
