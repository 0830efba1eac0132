"""Muon: matrices move along their orthogonalised momentum, everything else as with Adam.

.. code-block:: text

    m = momentum * m + g
    W -= matrix_factor * rate * 0.2 * sqrt(max(W.shape)) * orthogonalised(g + momentum * m)

A few singular values of a matrix's gradient are much larger than the others, whose directions hardly get
a share of the step; orthogonalised, all have the same. The root makes the change of a weight about as large
as with Adam. The filters of a convolution are the columns of a matrix. The vectors of words and
characters and the biases are left to `bilm.training.adam.Adam`.

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
from bilm.weights.vocabulary_transfer import WORD_ARRAYS

_TABLES = (*WORD_ARRAYS, "char_embed")
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Jordan et al.: the steepest at 0 that stay near 1
_N_ITERATIONS = 5
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
        **kwargs: of `bilm.training.adam.Adam`.
    """

    def __init__(
        self,
        learning_rate: float = 0.006,
        momentum: float = 0.95,
        matrix_factor: float = 2.0,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(learning_rate, **{"name": "muon", **kwargs})
        self.momentum, self.matrix_factor = momentum, matrix_factor

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the moments, at zero; matrices have no second one."""
        if self.built:
            return
        keras.optimizers.Optimizer.build(self, variables)
        self._first = self.add_optimizer_variables(variables, "momentum")
        others = [variable for variable in variables if not is_matrix(variable)]
        velocities = iter(self.add_optimizer_variables(others, "velocity"))
        self._second = [None if is_matrix(variable) else next(velocities) for variable in variables]
        self._stacked = [n_stacked(variable) for variable in variables]

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
        direction = gradient + self.momentum * first
        stacked = tf.reshape(direction, (self._stacked[i], -1, direction.shape[-1]))
        scale = self.matrix_factor * _SCALE * math.sqrt(max(stacked.shape[1:]))
        target.assign_sub(learning_rate * scale * tf.reshape(orthogonalised(stacked), direction.shape))

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        names = ("momentum", "matrix_factor")
        return super().get_config() | {name: getattr(self, name) for name in names}


def is_matrix(variable: keras.Variable) -> bool:
    """Whether a variable is the matrix of a product, and not a table of vectors."""
    return len(variable.shape) > 1 and not variable.path.endswith(_TABLES)


def n_stacked(variable: keras.Variable) -> int:
    """How many matrices a variable holds, one above the other; an LSTM's kernel is for input and state."""
    return 2 if variable.path.endswith("/kernel") else 1


def orthogonalised(matrices: tf.Tensor) -> tf.Tensor:
    """Matrices with the same singular vectors, and singular values that are near 1.

    Five steps of the iteration X = aX + bXX'X + c(XX')(XX')X, taken on the Gram matrix XX', so that X itself
    is in two products only, the first and the last. A small multiple of the identity is added to the Gram
    matrix: without it, rounding can make its least eigenvalues negative, and those grow without bound; with
    it, even products of 7 bits of mantissa do no harm. Singular values of less than a fiftieth of the
    largest end the smaller for it.

    Args:
        matrices: float32 (number, rows, columns).
    """
    if matrices.shape[1] > matrices.shape[2]:
        return tf.linalg.matrix_transpose(orthogonalised(tf.linalg.matrix_transpose(matrices)))
    a, b, c = _COEFFICIENTS
    gram = tf.matmul(matrices, matrices, transpose_b=True)
    square = tf.norm(gram, axis=(1, 2), keepdims=True) + _TINY  # of the largest singular value, at least
    identity = tf.eye(gram.shape[1])
    gram = gram / square + _RIDGE * identity
    product = identity
    for _ in range(_N_ITERATIONS):
        factor = a * identity + b * gram + c * tf.matmul(gram, gram)
        product = tf.matmul(factor, product)
        gram = tf.matmul(factor, tf.matmul(gram, factor))
    return tf.matmul(product, matrices) * tf.math.rsqrt(square)
