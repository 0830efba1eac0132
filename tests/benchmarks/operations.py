"""Floating point operations a job must do, counted from its shapes, and what the machine can do.

Counted are the products alone, a multiplication and an addition each, after every saving that leaves
the numbers as they are: a distinct word once, convolution windows up to the first that lies wholly
in the padding, and of the maximum over positions the one window that it passes its gradient to.
Gates, activations, the optimizer and all data movement count nothing, so 100% cannot be reached.
"""

import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data.pipeline import Batch
from bilm.options import Options
from bilm.vocabulary.vocabulary import PADDING


class Operations(NamedTuple):
    """Floating point operations of the forward and of the backward pass."""

    forward: float = 0.0
    backward: float = 0.0

    @classmethod
    def of_product(cls, multiplications: float) -> "Operations":
        """A product, both of whose factors need a gradient."""
        return cls(2.0 * multiplications, 4.0 * multiplications)

    @property
    def total(self) -> float:
        return self.forward + self.backward

    def plus(self, *others: "Operations") -> "Operations":
        return Operations(*map(sum, zip(self, *others, strict=True)))


def word_operations(options: Options, lengths: np.ndarray) -> Operations:
    """Convolutions, highways and projection of words, given how many characters each has."""
    cnn = options.char_cnn
    if cnn is None:
        return Operations()
    forward = backward = 0.0
    for width, number in cnn.filters:
        windows = np.minimum(lengths + 1, cnn.max_characters_per_token - width + 1)
        window = 2.0 * width * cnn.embedding_dim * number
        forward += window * windows.sum()
        backward += 2.0 * window * len(lengths)
    n_filters = sum(number for _, number in cnn.filters)
    dim = options.lstm.projection_dim
    dense = 2 * n_filters**2 * cnn.n_highway + n_filters * dim * (n_filters != dim)
    return Operations(forward, backward).plus(Operations.of_product(float(dense) * len(lengths)))


def lstm_operations(options: Options, n_tokens: int) -> Operations:
    """The LSTM stacks of all directions."""
    lstm = options.lstm
    gates = 2 * lstm.projection_dim * 4 * lstm.dim
    products = gates + lstm.dim * lstm.projection_dim * lstm.use_projection
    return Operations.of_product(float(products) * lstm.n_layers * options.n_directions * n_tokens)


def softmax_operations(options: Options, n_tokens: int, n_classes: int) -> Operations:
    """Logits of a number of classes, in all directions."""
    return Operations.of_product(
        float(n_classes) * options.lstm.projection_dim * options.n_directions * n_tokens
    )


def window_operations(options: Options, batch: Batch, n_classes: int) -> Operations:
    """Everything that one batch needs; each token has its target among its candidates."""
    lengths = [np.sum(rows != PADDING, axis=1) for rows in batch.type_characters]
    n_tokens = batch.targets[0].size
    return word_operations(options, np.concatenate(lengths or [np.zeros(0)])).plus(
        lstm_operations(options, n_tokens), softmax_operations(options, n_tokens, n_classes + 1)
    )


class Seconds(NamedTuple):
    """Of the clock, and of processor time, which other programs on the machine disturb less."""

    wall: float
    processor: float

    @classmethod
    def now(cls) -> "Seconds":
        return cls(time.perf_counter(), time.process_time())

    def since(self, start: "Seconds") -> "Seconds":
        return Seconds(self.wall - start.wall, self.processor - start.processor)


PRODUCT_SIZE = 2048


def time_products(repeats: int = 3) -> Seconds:
    """Mean seconds of a product of square float32 matrices."""
    matrix = tf.ones([PRODUCT_SIZE, PRODUCT_SIZE])
    tf.matmul(matrix, matrix).numpy()
    start = Seconds.now()
    for _ in range(repeats):
        tf.matmul(matrix, matrix).numpy()
    taken = Seconds.now().since(start)
    return Seconds(taken.wall / repeats, taken.processor / repeats)


def matrix_product_peak(repeats: int = 20) -> float:
    """Best of several products, in GFLOP/s."""
    return 2e-9 * PRODUCT_SIZE**3 / min(time_products(1).wall for _ in range(repeats))


def utilisation(operations: float, taken: Seconds, products: Seconds) -> Seconds:
    """Share of the peak, by the clock and by processor time.

    Args:
        operations: floating point operations that were needed.
        taken: by the job.
        products: by a product at the same time, see `time_products`.
    """
    share = operations / (2.0 * PRODUCT_SIZE**3)
    return Seconds(*(share * peak / own for peak, own in zip(products, taken, strict=True)))
