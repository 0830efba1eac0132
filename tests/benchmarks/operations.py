"""Floating point operations a job must do, counted from its shapes, and what the machine can do.

Counted are the products alone, a multiplication and an addition each, after every saving that leaves
the numbers as they are: a distinct word once, convolution windows up to the first that lies wholly
in the padding, and of the maximum over positions the one window that it passes its gradient to.
Gates, activations, the optimizer and all data movement count nothing, so 100% cannot be reached.
Each count is an array (2,): of the forward and of the backward pass.
"""

import time
from typing import TYPE_CHECKING

import numpy as np

from bilm.options import Options, Precision
from bilm.vocabulary.vocabulary import PADDING

if TYPE_CHECKING:
    from bilm.data.pipeline import Batch

BOTH_FACTORS = np.array([2.0, 4.0])  # of a multiplication in a product, both of whose factors need a gradient
PRODUCT_SIZE = 2048


def word_operations(options: Options, lengths: np.ndarray) -> np.ndarray:
    """Convolutions, highways and projection of words, given how many characters each has."""
    cnn = options.char_cnn
    if cnn is None:
        return np.zeros(2)
    total = np.zeros(2)
    for width, number in cnn.filters:
        windows = np.minimum(lengths + 1, cnn.max_characters_per_token - width + 1)
        total += 2.0 * width * cnn.embedding_dim * number * np.array([windows.sum(), 2.0 * len(lengths)])
    dim = options.lstm.projection_dim
    dense = 2 * cnn.n_filters**2 * cnn.n_highway + cnn.n_filters * dim * (cnn.n_filters != dim)
    return total + BOTH_FACTORS * dense * len(lengths)


def lstm_operations(options: Options, n_tokens: int) -> np.ndarray:
    """The LSTM stacks of all directions."""
    lstm = options.lstm
    products = 2 * lstm.projection_dim * 4 * lstm.dim + lstm.dim * lstm.projection_dim * lstm.use_projection
    return BOTH_FACTORS * products * lstm.n_layers * options.n_directions * n_tokens


def softmax_operations(options: Options, n_tokens: int, n_classes: int) -> np.ndarray:
    """Logits of a number of classes, in all directions."""
    return BOTH_FACTORS * n_classes * options.lstm.projection_dim * options.n_directions * n_tokens


def window_operations(options: Options, batch: "Batch", n_classes: int) -> np.ndarray:
    """Everything that one batch needs; each token has its target among its candidates."""
    lengths = np.concatenate([np.sum(rows != PADDING, axis=1) for rows in batch.type_characters] or [[]])
    n_tokens = batch.targets[0].size
    words, lstm = word_operations(options, lengths), lstm_operations(options, n_tokens)
    return words + lstm + softmax_operations(options, n_tokens, n_classes + 1)


def product_seconds(repeats: int = 3) -> float:
    """Mean seconds of a product of square float32 matrices."""
    import tensorflow as tf  # which not every backend has

    matrix = tf.ones([PRODUCT_SIZE, PRODUCT_SIZE])
    tf.matmul(matrix, matrix).numpy()
    start = time.perf_counter()
    for _ in range(repeats):
        tf.matmul(matrix, matrix).numpy()
    return (time.perf_counter() - start) / repeats


def peak() -> str:
    """The best of several products."""
    speed = 2e-9 * PRODUCT_SIZE**3 / min(product_seconds(1) for _ in range(20))
    return f"peak: {speed:.0f} GFLOP/s in float32 products of {PRODUCT_SIZE} x {PRODUCT_SIZE}"


def utilisation(operations: float, seconds: float, of_product: float) -> float:
    """Share of the speed of products that took so many seconds at the same time."""
    return operations / (2.0 * PRODUCT_SIZE**3) * of_product / seconds


def allow_tf32(precision: Precision | str) -> None:
    """Let a GPU multiply float32 in TF32, or not: TensorFlow does by default, bilm's commands do not."""
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(Precision(precision) is Precision.TF32)


def gpu_bytes(kind: str) -> int:
    """TensorFlow's memory on the first GPU, ``current`` or ``peak`` since the last call; 0 without one."""
    import tensorflow as tf

    if not tf.config.list_physical_devices("GPU"):
        return 0
    found = tf.config.experimental.get_memory_info("GPU:0")[kind]
    tf.config.experimental.reset_memory_stats("GPU:0")
    return found
