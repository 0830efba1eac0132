"""Optimizers: Adagrad as in bilm-tf, and Muon; others come from Keras.

In these two, a sparse gradient reads and writes only its own rows, so the cost of a step does not grow
with the vocabulary.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.backend.xla import compiled
from bilm.options import Optimizer, Options, Precision
from bilm.weights.transfer import CHARACTER_ARRAY, WORD_ARRAYS

Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices"
Variables: TypeAlias = Mapping[str, keras.Variable]
"""Variables by bilm's names."""

_TABLES = (*WORD_ARRAYS, CHARACTER_ARRAY)
_N_GATES = 4  # side by side in the kernel of an LSTM layer, see `bilm.backend.lstm_cell`
_LEAST = 0.01  # square of a column's length before it is normalised, as a share of the mean
_RIDGE = 3e-4
_POLYNOMIALS = ((7.8219, -22.5507, 16.5959), (3.3261, -2.4942, 0.5107), (2.3073, -1.6749, 0.4195))
_TINY = 1e-20


class TrainingOptimizer(keras.optimizers.Optimizer):
    """Interface that training and checkpoints need of an optimizer, besides Keras's methods.

    Attributes:
        is_row_sparse: true if an update changes only the rows of a sparse gradient; the others change all
            rows in each step, and get dense gradients.
        first_moment: value of the moments of a variable that has had no gradient.
    """

    is_row_sparse = False
    first_moment = 0.0

    def moments(self, variables: Variables) -> Variables:  # noqa: ARG002
        """Return the state with the rows of a variable, by the name of the variable; empty if it has more."""
        return {}

    def accumulators(self, variables: Variables) -> Variables:  # noqa: ARG002
        """Return the state that bilm-tf stores beside each variable, by the name of the variable."""
        return {}

    def slots(self) -> Variables:
        """Return all other state, by its names in a checkpoint."""
        return {  # by the end of the path, since a scope may surround it, and a number, to be unique
            f"bilm/optimizer/{i}/{'/'.join(variable.path.split('/')[-2:])}": variable
            for i, variable in enumerate(self.variables)
            if variable is not self._learning_rate
        }


class Adagrad(TrainingOptimizer, keras.optimizers.Adagrad):
    """Adagrad as in bilm-tf, with TensorFlow's fused dense and sparse kernels.

    Accumulators start at 1.0; epsilon is 0.

    Args:
        learning_rate: step size.
    """

    is_row_sparse, first_moment = True, 1.0

    def __init__(self, learning_rate: float = 0.2) -> None:
        super().__init__(learning_rate, self.first_moment, 0.0, name="adagrad")

    def accumulator(self, variable: keras.Variable) -> keras.Variable:
        """Return the sum of squared gradients of a variable."""
        return self._accumulators[self._get_variable_index(variable)]

    def accumulators(self, variables: Variables) -> Variables:
        """Return the sums of squared gradients."""
        return {name: self.accumulator(variable) for name, variable in variables.items()}

    moments = accumulators

    def slots(self) -> Variables:
        """Return nothing: the accumulators are all that is stored."""
        return {}

    def update_step(self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Do ``accumulator += gradient ** 2; variable -= learning_rate * gradient / sqrt(accumulator)``."""
        common = {
            "var": variable.handle,
            "accum": self.accumulator(variable).value.handle,
            "lr": tf.cast(learning_rate, variable.dtype),
            "epsilon": tf.cast(self.epsilon, variable.dtype),
            "use_locking": True,
        }
        if isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceSparseApplyAdagradV2(grad=gradient.values, indices=gradient.indices, **common)
        else:
            tf.raw_ops.ResourceApplyAdagradV2(grad=gradient, **common)


class Muon(TrainingOptimizer):
    """Muon for matrices, RMSprop for all other variables.

    Muon updates each matrix with its momentum, orthogonalised (all singular values set to about one):

    .. code-block:: text

        m = momentum * m + g
        W -= matrix_factor * rate * sqrt(min(W.shape)) * normalised(orthogonalised(g + momentum * m))

    The gradient of a matrix usually has a few large singular values; orthogonalising gives all directions the
    same step size. Its columns, or its rows if it has more rows, then differ in length, and are scaled to
    length one (very short ones, to less). The square root makes all matrices change by as much per weight.
    The kernel of an LSTM is four matrices, one for each gate. Matrices are orthogonalised in blocks of rows,
    because all 2,048 rows of a highway layer at once would cost more than the rest of the step. Filters of a
    convolution are the columns of a matrix.

    Biases and the vectors of words and characters are updated as by Adam without momentum. Most rows of the
    softmax are in few steps, and an average of gradients from long before would misdirect them:

    .. code-block:: text

        v = beta_2 * v + (1 - beta_2) * g ** 2
        x -= vector_factor * rate * sqrt(1 - beta_2 ** t) * g / (sqrt(v) + damping * rms(g))

    where t counts all steps, and rms(g) is the root mean square of the variable's gradient in this step. A
    row of a sparse gradient and its moment change only in steps with a gradient for the row. Rare words are
    mostly negative samples, whose gradients are tiny; the damping keeps their steps small.

    Source: Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; equal
    changes per weight from Liu et al. 2025 (arXiv:2502.16982); length one as in Li et al. 2025
    (arXiv:2510.05491), without their moving average; Tieleman and Hinton 2012 for RMSprop, with the bias
    correction of Adam.

    Args:
        learning_rate: step size.
        n_matrices: number of matrices side by side in each variable; 0 for vectors and tables of vectors.
        product_dtype: dtype of the factors of the products with the whole matrix.

    Attributes:
        momentum: decay of the Nesterov momentum of matrices.
        matrix_factor: change of a weight of a matrix, as root mean square, divided by the rate.
        block_size: maximum number of rows that are orthogonalised together.
        beta_2: decay of the second moment.
        vector_factor: factor of the step for biases and vectors of words and characters.
        damping: added to the square root of the second moment, as a share of the gradient's root mean square.
    """

    is_row_sparse = True
    momentum, matrix_factor, block_size = 0.9, 0.28, 256
    beta_2, vector_factor, damping = 0.999, 3.0, 0.05

    def __init__(
        self, learning_rate: float, n_matrices: Sequence[int], product_dtype: str = "float32"
    ) -> None:
        super().__init__(learning_rate, name="muon")
        self.n_matrices = n_matrices
        self.product_dtype = product_dtype

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the moments, initially zero: the first of a matrix, the second of any other variable."""
        if self.built:
            return
        super().build(variables)
        self._moments = [
            self.add_optimizer_variables([variable], "momentum" if n else "velocity")[0]
            for variable, n in zip(variables, self.n_matrices, strict=True)
        ]

    def moment(self, variable: keras.Variable) -> keras.Variable:
        """Return the moment of a variable."""
        return self._moments[self._get_variable_index(variable)]

    def moments(self, variables: Variables) -> Variables:
        """Return the moments of variables."""
        return {name: self.moment(variable) for name, variable in variables.items()}

    def update_step(self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Update a variable; the rows of a sparse gradient must be unique."""
        i = self._get_variable_index(variable)
        moment, n_matrices = self._moments[i].value, self.n_matrices[i]
        if n_matrices:
            moment.assign(self.momentum * moment + gradient)
            direction = gradient + self.momentum * moment
            variable.assign_sub(self._step_of_matrix(direction, n_matrices, learning_rate))
            return
        if not isinstance(gradient, tf.IndexedSlices):
            moment.assign(self.beta_2 * moment + (1 - self.beta_2) * tf.square(gradient))
            variable.assign_sub(self._step_of_vectors(gradient, moment, learning_rate))
            return
        rows, values = gradient.indices, gradient.values
        v = self.beta_2 * tf.gather(moment, rows) + (1 - self.beta_2) * tf.square(values)
        tf.raw_ops.ResourceScatterUpdate(resource=moment.handle, indices=rows, updates=v)
        change = self._step_of_vectors(values, v, learning_rate)
        tf.raw_ops.ResourceScatterSub(resource=variable.handle, indices=rows, updates=change)

    def _step_of_vectors(self, values: tf.Tensor, v: tf.Tensor, learning_rate: tf.Tensor) -> tf.Tensor:
        """Return the step for a gradient's values and their second moment."""
        n_steps = tf.cast(self.iterations.value, tf.float32) + 1
        rate = self.vector_factor * learning_rate * tf.sqrt(1 - tf.pow(self.beta_2, n_steps))
        least = self.damping * tf.sqrt(tf.reduce_mean(tf.square(values)))
        return rate * values / (tf.sqrt(v) + least + _TINY)

    def _step_of_matrix(self, direction: tf.Tensor, n_matrices: int, rate: tf.Tensor) -> tf.Tensor:
        """Return the step of a variable in which matrices stand side by side."""
        matrix = tf.cast(tf.reshape(direction, (-1, direction.shape[-1])), self.product_dtype)
        matrices = tf.stack(tf.split(matrix, n_matrices, axis=1))
        steps = tf.cast(orthogonalised_in_blocks(matrices, self.block_size), direction.dtype)
        n_rows, n_columns = steps.shape[1:]
        size, number, axis = (n_rows, n_columns, 1) if n_rows <= n_columns else (n_columns, n_rows, 2)
        steps = tf.math.l2_normalize(steps, axis, _LEAST * size / number)
        steps *= rate * (self.matrix_factor * math.sqrt(size))
        return tf.reshape(tf.concat(tf.unstack(steps), axis=1), direction.shape)


def count_matrices(name: str, variable: keras.Variable) -> int:
    """Count the matrices side by side in the array of this name; 0 for vectors and tables of vectors."""
    if len(variable.shape) == 1 or name in _TABLES:
        return 0
    return _N_GATES if name.endswith("/kernel") else 1


def orthogonalised_in_blocks(matrices: tf.Tensor, block_size: int) -> tf.Tensor:
    """Orthogonalise matrices in blocks of rows, or of columns if there are fewer columns.

    Args:
        matrices: shape (number, rows, columns), float32 or the dtype of products; the result has the same.
        block_size: maximum number of rows in a block; all blocks but the last have the same size.
    """
    n_matrices, n_rows, n_columns = matrices.shape
    if n_rows > n_columns:
        turned = orthogonalised_in_blocks(tf.linalg.matrix_transpose(matrices), block_size)
        return tf.linalg.matrix_transpose(turned)
    n_blocks = math.ceil(n_rows / block_size)
    size = math.ceil(n_rows / n_blocks)
    padded = tf.pad(matrices, [[0, 0], [0, n_blocks * size - n_rows], [0, 0]])
    blocks = orthogonalised(tf.reshape(padded, (n_matrices * n_blocks, size, n_columns)))
    return tf.reshape(blocks, padded.shape)[:, :n_rows]


def orthogonalised(matrices: tf.Tensor) -> tf.Tensor:
    """Return matrices with the same singular vectors and singular values near 1 (0.87 to 1.13).

    Takes three steps of the form X = aX + bXX'X + c(XX')(XX')X on the Gram matrix XX', so that X itself
    enters only the first and the last product. A small multiple of the identity is added to the Gram matrix:
    without it, rounding can make small eigenvalues negative, and these grow without bound; with it, products
    with 7 bits of mantissa are precise enough. The coefficients of each step minimise the largest distance
    from 1 that a singular value can have after it, if it begins between 0.017, which is due to the identity,
    and 1. As a side effect, singular values below a fiftieth of the largest end below 0.87.

    Source: Amsel et al. 2025 (arXiv:2505.16932) for the choice of coefficients.

    Args:
        matrices: shape (number, rows, columns), with rows <= columns, float32 or the dtype of products with
            them; the result has the same.
    """
    dtype = matrices.dtype  # of factors; what is added up is float32
    add_up = _polynomial if dtype == tf.float32 else compiled(_polynomial)  # one pass instead of eight
    gram = tf.cast(tf.matmul(matrices, matrices, transpose_b=True), tf.float32)
    square = tf.norm(gram, axis=(1, 2), keepdims=True) + _TINY  # >= square of the largest singular value
    identity = tf.eye(gram.shape[1])
    gram, product = tf.cast(gram / square + _RIDGE * identity, dtype), None
    for coefficients in _POLYNOMIALS:
        factor = add_up(gram, tf.matmul(gram, gram), tf.constant(coefficients))
        gram = tf.matmul(factor, tf.matmul(gram, factor))
        product = factor if product is None else tf.matmul(factor, product)
    product = tf.cast(product, tf.float32) * tf.math.rsqrt(square)
    return tf.matmul(tf.cast(product, dtype), matrices)


def _polynomial(gram: tf.Tensor, square: tf.Tensor, coefficients: tf.Tensor) -> tf.Tensor:
    """Return aI + bG + cG^2 for Gram matrices and their squares, in their dtype."""
    a, b, c = tf.unstack(coefficients)
    total = a * tf.eye(gram.shape[1]) + b * tf.cast(gram, tf.float32) + c * tf.cast(square, tf.float32)
    return tf.cast(total, gram.dtype)


def keras_optimizer(choice: Optimizer) -> TrainingOptimizer:
    """Make an optimizer of Keras, with its default settings."""
    kind = type(keras.optimizers.get(choice.value))
    own = type(kind.__name__, (TrainingOptimizer, kind), {"is_row_sparse": choice is Optimizer.SGD})
    # The name is part of the variables' names, so the same when a run is resumed.
    return own(name=choice.value)


def make_optimizer(options: Options, variables: Variables) -> TrainingOptimizer:
    """Make the optimizer of variables, by bilm's names; each update passes its learning rate."""
    optimizer: TrainingOptimizer
    if options.optimizer is Optimizer.MUON:
        is_bfloat16 = options.precision is Precision.BFLOAT16  # in float16 small gradients would underflow
        n_matrices = [count_matrices(*item) for item in variables.items()]
        optimizer = Muon(options.step_size, n_matrices, "bfloat16" if is_bfloat16 else "float32")
    elif options.optimizer is Optimizer.ADAGRAD:
        optimizer = Adagrad(options.step_size)
    else:
        optimizer = keras_optimizer(options.optimizer)
    optimizer.build([*variables.values()])
    return optimizer
