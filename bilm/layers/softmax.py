"""Cross entropy over the whole vocabulary, in chunks, or over a sample of it.

Both apply one formula to a set of candidate classes. With logits ``x`` and target ``t``,

.. code-block:: text

    loss = log(sum of exp(x_k) over candidates and t, each once) - x_t

Given ``exp(x - max)`` from the forward pass, the gradients of rows and inputs are two matrix products,
without another pass over the (tokens, candidates) array. In low precision the factors and results of
products are rounded; biases, sums and losses are float32, and the logits of targets in the sampled softmax.

Source: Jean et al. 2015; the sampled loss equals ``tf.nn.sampled_softmax_loss`` with accidental
hits removed: a sampled class that is the target counts once, as the target.
"""

import functools
import math
from typing import Any

import tensorflow as tf

from bilm.backend.gradients import with_gradient
from bilm.backend.keras_backend import keras
from bilm.layers.network_layer import NetworkLayer

_CHUNK_ELEMENTS = 1 << 22
"""Logits that the full softmax holds at once: 16 MiB in float32, which fit in a processor's cache."""


def full_cross_entropy(
    hidden: tf.Tensor,
    targets: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    chunk: int | tf.Tensor,
    product_dtype: str = "float32",
) -> tf.Tensor:
    """Compute the negative log-likelihoods under the full softmax, ``chunk`` classes at a time.

    Args:
        hidden: shape (tokens, dim).
        targets: integers (tokens,), classes.
        kernel: shape (classes, dim).
        bias: shape (classes,).
        chunk: number of classes whose logits are held at once.
        product_dtype: dtype of the factors of products with rows.

    Returns:
        Losses in nats, shape (tokens,).
    """
    product = functools.partial(_product, dtype=product_dtype)

    def rounded(values: tf.Tensor) -> tf.Tensor:
        return tf.cast(tf.cast(values, product_dtype), values.dtype)

    def forward(*arguments: tf.Tensor) -> tuple[tf.Tensor, tuple]:
        hidden, targets, kernel, bias = arguments
        n_classes = tf.shape(kernel)[0]

        def add_chunk(start: tf.Tensor, highest: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, ...]:
            """Add a chunk of classes to the running log-sum-exp of the logits."""
            rows, biases = kernel[start : start + chunk], bias[start : start + chunk]
            logits = product(hidden, rows, transpose_b=True) + biases
            higher = tf.maximum(highest, tf.reduce_max(logits, axis=1))
            total = total * tf.exp(highest - higher) + tf.reduce_sum(tf.exp(logits - higher[:, None]), axis=1)
            return start + chunk, higher, total

        zeros = tf.zeros_like(hidden[:, 0])
        start = (0, zeros + hidden.dtype.min, zeros)
        _, highest, total = tf.while_loop(
            lambda start, *_: start < n_classes, add_chunk, start, parallel_iterations=1
        )
        log_normalizer = highest + tf.math.log(total)
        target_rows = tf.gather(kernel, targets)
        products = tf.reduce_sum(rounded(hidden) * rounded(target_rows), axis=1)
        target_logits = rounded(products) + tf.gather(bias, targets)  # as they are in the sum
        return log_normalizer - target_logits, (*arguments, log_normalizer, target_rows, chunk)

    def backward(kept: tuple, upstream: tf.Tensor) -> list[Any]:
        hidden, targets, kernel, bias, log_normalizer, target_rows, chunk = kept
        n_chunks = (tf.shape(kernel)[0] + chunk - 1) // chunk
        scaled = upstream[:, None] * hidden

        def chunk_gradient(
            k: tf.Tensor, expected: tf.Tensor, d_rows: tf.TensorArray, d_biases: tf.TensorArray
        ) -> tuple:
            rows, biases = kernel[k * chunk : (k + 1) * chunk], bias[k * chunk : (k + 1) * chunk]
            logits = product(hidden, rows, transpose_b=True) + biases
            probabilities = tf.exp(logits - log_normalizer[:, None])
            d_rows = d_rows.write(k, product(probabilities, scaled, transpose_a=True))
            d_biases = d_biases.write(k, tf.linalg.matvec(probabilities, upstream, transpose_a=True))
            return k + 1, expected + product(probabilities, rows), d_rows, d_biases

        arrays = [
            tf.TensorArray(hidden.dtype, n_chunks, infer_shape=False, element_shape=shape)
            for shape in ([None, kernel.shape[1]], [None])
        ]
        start = (0, tf.zeros_like(hidden), *arrays)
        _, expected, d_rows, d_biases = tf.while_loop(
            lambda k, *_: k < n_chunks, chunk_gradient, start, parallel_iterations=1
        )
        d_kernel = tf.tensor_scatter_nd_sub(d_rows.concat(), targets[:, None], scaled)
        d_bias = tf.tensor_scatter_nd_sub(d_biases.concat(), targets[:, None], upstream)
        return [upstream[:, None] * (expected - target_rows), None, d_kernel, d_bias]

    return with_gradient(forward, backward, hidden, targets, kernel, bias)


def sampled_cross_entropy(
    hidden: tf.Tensor,
    target_logits: tf.Tensor,
    rows: tf.Tensor,
    biases: tf.Tensor,
    target_is_sampled: tf.Tensor,
    product_dtype: str = "float32",
) -> tf.Tensor:
    """Compute the negative log-likelihood of each target among a sample of classes and itself.

    Args:
        hidden: shape (tokens, dim).
        target_logits: shape (tokens,), logits of the targets, corrected.
        rows: shape (samples, dim), kernel rows of the sampled classes.
        biases: shape (samples,), biases of the sampled classes, corrected.
        target_is_sampled: shape (tokens,), 1.0 if the target is among the sampled classes, else 0.0.
        product_dtype: dtype of the factors of products with rows.

    Returns:
        Losses in nats, shape (tokens,).
    """
    product = functools.partial(_product, dtype=product_dtype)

    def forward(*arguments: tf.Tensor) -> tuple[tf.Tensor, tuple]:
        hidden, target_logits, rows, biases, is_sampled = arguments
        logits = product(hidden, rows, transpose_b=True) + biases
        highest = tf.maximum(tf.reduce_max(logits, axis=1), target_logits)
        weights = tf.exp(logits - highest[:, None])
        target_weight = (1.0 - is_sampled) * tf.exp(target_logits - highest)
        total = tf.reduce_sum(weights, axis=1) + target_weight
        weights = tf.cast(weights, product_dtype)
        return highest + tf.math.log(total) - target_logits, (hidden, rows, weights, target_weight, total)

    def backward(kept: tuple, upstream: tf.Tensor) -> list[Any]:
        hidden, rows, weights, target_weight, total = kept
        share = upstream / total
        return [
            share[:, None] * product(weights, rows),
            share * target_weight - upstream,
            product(weights, share[:, None] * hidden, transpose_a=True),
            product(weights, share[:, None], transpose_a=True)[:, 0],
            None,
        ]

    return with_gradient(forward, backward, hidden, target_logits, rows, biases, target_is_sampled)


def _product(left: tf.Tensor, right: tf.Tensor, dtype: str, **transposed: bool) -> tf.Tensor:
    """Multiply matrices rounded to `dtype`; the result is float32."""
    return tf.cast(tf.matmul(tf.cast(left, dtype), tf.cast(right, dtype), **transposed), tf.float32)


def log_expected_count(classes: tf.Tensor, n_draws: tf.Tensor, n_classes: int) -> tf.Tensor:
    """Return the log probability that log-uniform draws hit each class: TensorFlow's correction."""
    ranks = tf.cast(classes, tf.float32)
    probability = tf.math.log1p(1.0 / (ranks + 1.0)) / math.log(n_classes + 1)
    return tf.math.log(-tf.math.expm1(n_draws * tf.math.log1p(-probability)))


class VocabularySoftmax(NetworkLayer):
    """Output layer of a language model: one row and one bias per word, shared by both directions.

    Args:
        n_tokens: number of words.
        dim: width of the hidden vectors.
        init_scale: factor on the initial standard deviation, 1/sqrt(dim).
        product_dtype: dtype of the factors of products in losses; everything else is float32.

    Attributes:
        kernel: the rows, (n_tokens, dim); before `build`, an embedding to use instead of own ones, or None.
    """

    def __init__(
        self, n_tokens: int, dim: int, init_scale: float = 1.0, product_dtype: str = "float32"
    ) -> None:
        super().__init__(name="softmax", dtype="float32")
        self.product_dtype = product_dtype
        self.n_tokens = n_tokens
        self.dim = dim
        self.init_scale = init_scale
        self.kernel: Any = None

    def build(self, input_shape: Any = None) -> None:  # noqa: ANN401
        """Create the biases and, unless they are tied, the rows."""
        if self.kernel is None:
            normal = keras.initializers.RandomNormal(stddev=self.init_scale / math.sqrt(self.dim))
            self.kernel = self.add_weight(name="W", shape=(self.n_tokens, self.dim), initializer=normal)
        self.bias = self.add_weight(name="b", shape=(self.n_tokens,), initializer="zeros")
        self.built = True

    def call(self, hidden: tf.Tensor) -> tf.Tensor:
        """Compute the logits of all words: (..., dim) -> (..., n_tokens)."""
        flat = tf.reshape(hidden, [-1, self.dim])
        logits = tf.matmul(flat, tf.convert_to_tensor(self.kernel), transpose_b=True) + self.bias
        return tf.reshape(logits, tf.concat([tf.shape(hidden)[:-1], [self.n_tokens]], axis=0))

    def full_losses(self, hidden: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Compute exact losses: (tokens, dim), (tokens,) -> (tokens,); no array holds all logits."""
        n_tokens = hidden.shape[0] or tf.maximum(tf.shape(hidden)[0], 1)
        chunk = _CHUNK_ELEMENTS // n_tokens
        chunk = max(chunk, 1) if isinstance(chunk, int) else tf.maximum(chunk, 1)
        kernel, bias = tf.convert_to_tensor(self.kernel), tf.convert_to_tensor(self.bias)
        return full_cross_entropy(hidden, targets, kernel, bias, chunk, self.product_dtype)

    def sampled_losses(
        self, hidden: tf.Tensor, targets: tf.Tensor, negatives: tf.Tensor, n_draws: tf.Tensor
    ) -> tf.Tensor:
        """Compute sampled losses, whose gradient has only the rows of targets and negatives.

        Args:
            hidden: shape (tokens, dim).
            targets: integers (tokens,), classes.
            negatives: integers (samples,), distinct sampled classes, ascending.
            n_draws: see `bilm.training.negative_sampling.Negatives`.
        """
        # Gathering from the variables themselves gives sparse gradients.
        classes = tf.concat([targets, negatives], axis=0)
        rows = tf.gather(self.kernel.value, classes)
        biases = tf.gather(self.bias.value, classes) - log_expected_count(classes, n_draws, self.n_tokens)
        sizes = [tf.shape(targets)[0], tf.shape(negatives)[0]]
        target_rows, negative_rows = tf.split(rows, sizes)
        target_biases, negative_biases = tf.split(biases, sizes)
        position = tf.minimum(tf.searchsorted(negatives, targets), tf.shape(negatives)[0] - 1)
        is_sampled = tf.cast(tf.equal(tf.gather(negatives, position), targets), hidden.dtype)
        target_logits = tf.reduce_sum(hidden * target_rows, axis=1) + target_biases
        return sampled_cross_entropy(
            hidden, target_logits, negative_rows, negative_biases, is_sampled, self.product_dtype
        )
