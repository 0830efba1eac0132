"""Muon: matrices move along their orthogonalised momentum, everything else as with Adam.

.. code-block:: text

    m = momentum * m + g
    W -= matrix_factor * rate * 0.2 * sqrt(max(W.shape)) * orthogonalised(g + momentum * m)

A few singular values of a matrix's gradient are much larger than the others, whose directions hardly get
a share of the step; orthogonalised, all have the same. The root makes the change of a weight about as large
as with Adam. A matrix is cut into blocks of rows for this: the 2,048 rows of a highway at once would cost
more than all else in a step. The filters of a convolution are the columns of a matrix. Biases and the
vectors of words and characters are left to `bilm.training.adam.Adam`.

Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the scale is that of
Liu et al. 2025 (arXiv:2502.16982).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.training.adam import Adam
from bilm.weights.transfer import WORD_ARRAYS

_TABLES = (*WORD_ARRAYS, "char_embed")
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Jordan et al.: the steepest at 0 that stay near 1
_N_ITERATIONS = 4
_SCALE = 0.2
_RIDGE = 3e-4
_TINY = 1e-20


@keras.saving.register_keras_serializable("bilm")
class Muon(Adam):
    """Orthogonalised momentum for matrices, and Adam for all else.

    Args:
        learning_rate: step size.
        momentum: decay of a matrix's momentum, which is Nesterov's.
        matrix_factor: of the steps of matrices.
        block_size: rows that are orthogonalised together, at most.
        **kwargs: of `bilm.training.adam.Adam`.
    """

    def __init__(
        self,
        learning_rate: float = 0.006,
        momentum: float = 0.95,
        matrix_factor: float = 2.0,
        block_size: int = 128,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(learning_rate, **{"name": "muon", **kwargs})
        self.momentum, self.matrix_factor, self.block_size = momentum, matrix_factor, block_size

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the moments, at zero; matrices have no second one."""
        if self.built:
            return
        keras.optimizers.Optimizer.build(self, variables)
        self._first = self.add_optimizer_variables(variables, "momentum")
        others = [variable for variable in variables if not is_matrix(variable)]
        velocities = iter(self.add_optimizer_variables(others, "velocity"))
        self._second = [None if is_matrix(variable) else next(velocities) for variable in variables]

    def update_step(
        self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Update a variable by its gradient; a sparse one must name each row once."""
        i = self._get_variable_index(variable)
        if self._second[i] is not None:
            super().update_step(gradient, variable, learning_rate)
            return
        target = variable.value if isinstance(variable, keras.Variable) else variable
        first = self._first[i].value
        first.assign(self.momentum * first + gradient)
        matrix = tf.reshape(gradient + self.momentum * first, (-1, gradient.shape[-1]))
        scale = learning_rate * (self.matrix_factor * _SCALE * math.sqrt(max(matrix.shape)))
        target.assign_sub(
            tf.reshape(orthogonalised_in_blocks(matrix, self.block_size, scale), gradient.shape)
        )

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        names = ("momentum", "matrix_factor", "block_size")
        return super().get_config() | {name: getattr(self, name) for name in names}


def is_matrix(variable: keras.Variable) -> bool:
    """Whether a variable is the matrix of a product, and not a table of vectors."""
    return len(variable.shape) > 1 and not variable.path.endswith(_TABLES)


def orthogonalised_in_blocks(matrix: tf.Tensor, block_size: int, scale: float | tf.Tensor = 1.0) -> tf.Tensor:
    """`orthogonalised` blocks of a matrix, each some of its rows, or of its columns if it has fewer of them.

    Args:
        matrix: float32 (rows, columns).
        block_size: of a block at most; all have the same, but for the last.
        scale: factor of the result.
    """
    n_rows, n_columns = matrix.shape
    if n_rows > n_columns:
        return tf.transpose(orthogonalised_in_blocks(tf.transpose(matrix), block_size, scale))
    n_blocks = math.ceil(n_rows / block_size)
    size = math.ceil(n_rows / n_blocks)
    n_missing = n_blocks * size - n_rows
    padded = tf.pad(matrix, [[0, n_missing], [0, 0]]) if n_missing else matrix
    blocks = orthogonalised(tf.reshape(padded, (n_blocks, size, n_columns)), scale)
    rows = tf.reshape(blocks, padded.shape)
    return rows[:n_rows] if n_missing else rows


def orthogonalised(matrices: tf.Tensor, scale: float | tf.Tensor = 1.0) -> tf.Tensor:
    """Matrices with the same singular vectors, and singular values near 1: from 0.5 to 1.2.

    Four steps of the iteration X = aX + bXX'X + c(XX')(XX')X, taken on the Gram matrix XX', so that X itself
    is in two products only, the first and the last. A small multiple of the identity is added to the Gram
    matrix: without it, rounding can make its least eigenvalues negative, and those grow without bound; with
    it, even products of 7 bits of mantissa do no harm. Singular values of less than a fiftieth of the
    largest end below 0.5 for it.

    Args:
        matrices: float32 (number, rows, columns), not more rows than columns.
        scale: factor of the result.
    """
    a, b, c = _COEFFICIENTS
    gram = tf.matmul(matrices, matrices, transpose_b=True)
    square = tf.norm(gram, axis=(1, 2), keepdims=True) + _TINY  # of the largest singular value, at least
    identity = tf.eye(gram.shape[1])
    gram = gram / square + _RIDGE * identity

    def factor_of(gram: tf.Tensor) -> tf.Tensor:
        return a * identity + b * gram + c * tf.matmul(gram, gram)

    product = factor = factor_of(gram)
    for _ in range(_N_ITERATIONS - 1):
        gram = tf.matmul(factor, tf.matmul(gram, factor))
        factor = factor_of(gram)
        product = tf.matmul(factor, product)
    return tf.matmul(product * (scale * tf.math.rsqrt(square)), matrices)
