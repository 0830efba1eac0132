"""The optimizers by name: Adagrad as bilm-tf runs it, Adam and Muon; others are Keras's.

A sparse gradient reads and writes only the rows it names, so that the cost of a step does not grow with the
vocabulary.
"""

import math
from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.options import Optimizer, Options
from bilm.weights.transfer import WORD_ARRAYS

Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices"

_TABLES = (*WORD_ARRAYS, "char_embed")
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of Jordan et al.: the steepest at 0 that stay near 1
_N_ITERATIONS = 4
_SCALE = 0.2
_RIDGE = 3e-4
_TINY = 1e-20


class Adagrad(keras.optimizers.Adagrad):
    """Adagrad as bilm-tf runs it, with TensorFlow's fused kernels, dense and sparse.

    Accumulators start at 1.0 and there is no epsilon.

    Args:
        learning_rate: step size.
    """

    def __init__(self, learning_rate: float = 0.2) -> None:
        super().__init__(learning_rate, 1.0, 0.0, name="adagrad")

    def accumulator(self, variable: keras.Variable) -> keras.Variable:
        """The sum of squared gradients of one variable."""
        return self._accumulators[self._get_variable_index(variable)]

    def update_step(self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """``accumulator += gradient ** 2; variable -= learning_rate * gradient / sqrt(accumulator)``."""
        target = variable.value if isinstance(variable, keras.Variable) else variable
        common = {
            "var": target.handle,
            "accum": self.accumulator(variable).value.handle,
            "lr": tf.cast(learning_rate, target.dtype),
            "epsilon": tf.cast(self.epsilon, target.dtype),
            "use_locking": True,
        }
        if isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceSparseApplyAdagradV2(grad=gradient.values, indices=gradient.indices, **common)
        else:
            tf.raw_ops.ResourceApplyAdagradV2(grad=gradient, **common)


class Adam(keras.optimizers.Optimizer):
    """Adam whose sparse gradients read and write only the rows they name; TensorFlow's own for dense ones.

    A row of the softmax gets a gradient in few of the steps. Dense Adam moves every row in every step,
    because the moments of all rows decay. Here the moments of a row, and the row, change in the steps that
    name it,

    .. code-block:: text

        m = beta_1 * m + (1 - beta_1) * g
        v = beta_2 * v + (1 - beta_2) * g ** 2
        row -= row_factor * rate * sqrt(1 - beta_2 ** t) / (1 - beta_1 ** t) * m / (sqrt(v) + epsilon)

    where t counts all steps. With a factor of 1 that is Adam for dense gradients, and where every row is
    named in every step. Rows bear larger steps than the weights that all words share: most are named in few
    steps. Moments that also decay for the steps between, and a bias correction by the row's own steps, both
    gave higher heldout perplexities; see ``docs/results.md``.

    Source: Kingma and Ba 2015 (arXiv:1412.6980), as at the end of their section 2.

    Args:
        learning_rate: step size.

    Attributes:
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the square root of the second moment.
        row_factor: of the steps of rows, those that sparse gradients name.
    """

    beta_1, beta_2, epsilon, row_factor = 0.9, 0.999, 1e-7, 2.5

    def __init__(self, learning_rate: float = 0.001) -> None:
        super().__init__(learning_rate, name=type(self).__name__.lower())

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the moments, at zero."""
        if self.built:
            return
        super().build(variables)
        self._first, self._second = self.add_optimizer_variables(variables, ["momentum", "velocity"])

    def moments(self, variable: keras.Variable) -> tuple[keras.Variable, keras.Variable]:
        """The first and the second moment of one variable."""
        i = self._get_variable_index(variable)
        return self._first[i], self._second[i]

    def update_step(self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Update a variable by its gradient; a sparse one must name each row once."""
        target = variable.value if isinstance(variable, keras.Variable) else variable
        first, second = (moment.value for moment in self.moments(variable))
        step = tf.cast(self.iterations.value, tf.float32) + 1
        beta_1_power, beta_2_power = tf.pow(self.beta_1, step), tf.pow(self.beta_2, step)
        if not isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceApplyAdam(
                var=target.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=beta_1_power,
                beta2_power=beta_2_power,
                lr=learning_rate,
                beta1=self.beta_1,
                beta2=self.beta_2,
                epsilon=self.epsilon,
                grad=gradient,
                use_locking=True,
            )
            return
        rows, values = gradient.indices, gradient.values
        m = self.beta_1 * tf.gather(first, rows) + (1 - self.beta_1) * values
        v = self.beta_2 * tf.gather(second, rows) + (1 - self.beta_2) * tf.square(values)
        rate = learning_rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)
        tf.raw_ops.ResourceScatterUpdate(resource=first.handle, indices=rows, updates=m)
        tf.raw_ops.ResourceScatterUpdate(resource=second.handle, indices=rows, updates=v)
        change = self.row_factor * rate * m / (tf.sqrt(v) + self.epsilon)
        tf.raw_ops.ResourceScatterSub(resource=target.handle, indices=rows, updates=change)


class Muon(Adam):
    """Muon: matrices move along their orthogonalised momentum, everything else as with `Adam`.

    .. code-block:: text

        m = momentum * m + g
        W -= matrix_factor * rate * 0.2 * sqrt(max(W.shape)) * orthogonalised(g + momentum * m)

    A few singular values of a matrix's gradient are much larger than the others, whose directions hardly get
    a share of the step; orthogonalised, all have the same. The root makes the change of a weight about as
    large as with Adam. A matrix is cut into blocks of rows for this: the 2,048 rows of a highway at once
    would cost more than all else in a step. The filters of a convolution are the columns of a matrix. Biases
    and the vectors of words and characters are left to `Adam`.

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the scale is that
    of Liu et al. 2025 (arXiv:2502.16982).

    Args:
        learning_rate: step size.

    Attributes:
        momentum: decay of a matrix's momentum, which is Nesterov's.
        matrix_factor: of the steps of matrices.
        block_size: rows that are orthogonalised together, at most.
    """

    momentum, matrix_factor, block_size = 0.95, 2.0, 128

    def __init__(self, learning_rate: float = 0.006) -> None:
        super().__init__(learning_rate)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the moments, at zero; matrices have no second one."""
        if self.built:
            return
        keras.optimizers.Optimizer.build(self, variables)
        self._first = self.add_optimizer_variables(variables, "momentum")
        others = [variable for variable in variables if not is_matrix(variable)]
        velocities = iter(self.add_optimizer_variables(others, "velocity"))
        self._second = [None if is_matrix(variable) else next(velocities) for variable in variables]

    def update_step(self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
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


ROW_SPARSE = (Adagrad, Adam, keras.optimizers.SGD)
"""Optimizers that change only the rows a sparse gradient names. The others change all rows in each step."""


def make_optimizer(options: Options) -> keras.optimizers.Optimizer:
    """The optimizer of the options; it takes its learning rate with each update."""
    own = {Optimizer.ADAGRAD: Adagrad, Optimizer.ADAM: Adam, Optimizer.MUON: Muon}
    if options.optimizer in own:
        return own[options.optimizer](options.learning_rate)
    name = options.optimizer.value  # also of its variables, in this process and the one that resumes
    return keras.optimizers.get({"class_name": name, "config": {"name": name}})
