import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.models.language_model import LanguageModel
from bilm.options import Options
from bilm.training import optimizers
from bilm.training.optimizers import Adagrad, Adam, Muon
from bilm.training.update import deduplicate
from tests.helpers import small_options

RATE = 0.01


def variable(values, name="table"):
    return keras.Variable(np.asarray(values, np.float32), name=name)


def built(optimizer, *variables):
    optimizer.build([*variables])
    return optimizer


def sparse(random, shape, rows):
    """A gradient of some rows, one of them named twice."""
    rows = np.append(rows, rows[:1])
    values = random.normal(size=(len(rows), *shape[1:])).astype(np.float32)
    return deduplicate(tf.IndexedSlices(tf.constant(values), tf.constant(rows), tf.constant(shape)))


# --- rows of sparse gradients -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "of_keras"),
    [(Adagrad, keras.optimizers.Adagrad(RATE, 1.0, 0.0)), (Adam, keras.optimizers.Adam(RATE))],
    ids=["adagrad", "adam"],
)
def test_all_rows_in_every_step_is_the_optimizer_of_keras(kind, of_keras):
    random = np.random.default_rng(1)
    tables = [variable(np.ones((5, 2)), name) for name in ("rows", "dense", "keras")]
    own, other = built(kind(RATE), *tables[:2]), built(of_keras, tables[2])
    own.row_factor = 1.0
    for _ in range(10):
        gradient = sparse(random, (5, 2), random.permutation(5))
        own.apply([gradient, tf.convert_to_tensor(gradient)], tables[:2])
        other.apply([tf.convert_to_tensor(gradient)], tables[2:])
    for table in tables[:2]:
        np.testing.assert_allclose(table, tables[2], atol=1e-6)


@pytest.mark.parametrize("shape", [(7, 3), (7,)])
def test_rows_have_the_moments_of_the_steps_that_name_them(shape):
    random = np.random.default_rng(0)
    start = random.normal(size=shape)
    table, expected = variable(start), start.copy()
    optimizer = built(Adam(RATE), table)
    m, v = np.zeros(shape), np.zeros(shape)
    for step in range(1, 21):
        gradient = sparse(random, shape, random.choice(6, 3, replace=False))  # row 6 never
        optimizer.apply([gradient], [table])
        rows, values = gradient.indices.numpy(), gradient.values.numpy()
        m[rows] = 0.9 * m[rows] + (1 - 0.9) * values
        v[rows] = 0.999 * v[rows] + (1 - 0.999) * values**2
        rate = RATE * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
        expected[rows] -= 2.5 * rate * m[rows] / (np.sqrt(v[rows]) + 1e-7)
        np.testing.assert_allclose(table, expected, atol=2e-6)
    for moment, array in zip(optimizer.moments(table), (m, v), strict=True):
        np.testing.assert_allclose(moment, array, atol=1e-6)


# --- matrices ---------------------------------------------------------------------------------------


def iterated(matrix):
    """Four steps of the published iteration, on each singular value by itself, in float64."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    values /= np.sqrt(np.linalg.norm(values**2))
    squares, factors = values**2 + 3e-4, np.ones_like(values)
    for _ in range(4):
        factor = 3.4445 - 4.7750 * squares + 2.0315 * squares**2
        squares, factors = squares * factor**2, factors * factor
    return left * (values * factors) @ right


@pytest.mark.parametrize("shape", [(2, 4, 9), (2, 5, 5), (2, 1, 3)])
def test_orthogonalised_is_the_published_iteration(shape):
    matrices = np.random.default_rng(0).normal(size=shape)
    found = optimizers.orthogonalised(tf.constant(matrices, tf.float32)).numpy()
    np.testing.assert_allclose(found, [iterated(matrix) for matrix in matrices], atol=1e-5)
    zeros = tf.zeros(shape)
    np.testing.assert_array_equal(optimizers.orthogonalised(zeros), zeros)


@pytest.mark.parametrize(
    ("shape", "sizes"), [((4, 9), [4]), ((9, 4), [4]), ((10, 12), [4, 4, 2]), ((12, 10), [4, 4, 2])]
)
def test_blocks_of_the_shorter_side_do_not_meet(shape, sizes):
    matrix = np.random.default_rng(7).normal(size=shape)
    found = optimizers.orthogonalised_in_blocks(tf.constant(matrix, tf.float32), 4).numpy()
    axis = int(shape[0] > shape[1])
    blocks = np.split(matrix, np.cumsum(sizes)[:-1], axis)
    np.testing.assert_allclose(found, np.concatenate(list(map(iterated, blocks)), axis), atol=1e-5)


def test_the_steps_of_a_matrix_and_of_filters_which_are_its_columns():
    random = np.random.default_rng(3)
    matrix, filters = variable(np.ones((6, 8)), "projection"), variable(np.ones((1, 3, 2, 8)), "W_cnn_2")
    expected, momentum = np.ones((6, 8)), np.zeros((6, 8))
    optimizer = built(Muon(RATE), matrix, filters)
    for _ in range(5):
        gradient = random.normal(size=(6, 8))
        parts = [tf.constant(gradient.reshape(one.shape), tf.float32) for one in (matrix, filters)]
        optimizer.apply(parts, [matrix, filters])
        momentum = 0.95 * momentum + gradient
        expected -= 2.0 * RATE * 0.2 * np.sqrt(8) * iterated(gradient + 0.95 * momentum)
        np.testing.assert_allclose(matrix, expected, atol=1e-5)
        np.testing.assert_array_equal(np.reshape(filters, (6, 8)), matrix)


def test_all_else_is_adam():
    random = np.random.default_rng(5)
    shapes = {"W": (7, 3), "b_proj": (5,), "char_embed": (6, 2)}
    with keras.name_scope("softmax"):
        variables = [[variable(np.ones(shape), name) for name, shape in shapes.items()] for _ in range(2)]
    both = [built(kind(RATE), *own) for kind, own in zip((Muon, Adam), variables, strict=True)]
    for _ in range(3):
        gradients = [tf.constant(random.normal(size=shape), tf.float32) for shape in shapes.values()]
        gradients[0] = tf.IndexedSlices(gradients[0][:2], tf.constant([4, 1]), tf.constant((7, 3)))
        for optimizer, own in zip(both, variables, strict=True):
            optimizer.apply(gradients, own)
    for one, other in zip(*variables, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_matrices_of_a_model():
    variables = LanguageModel(Options.from_json(small_options(n_tokens_vocab=73))).trainable_variables
    matrices = [variable.name for variable in variables if optimizers.is_matrix(variable)]
    names = {"kernel", "projection", "W_proj", "high_0_W_carry", "high_0_W_transform", "W_cnn_0", "W_cnn_1"}
    assert {*matrices} == names
    optimizer = built(Muon(RATE), *variables)
    assert len(optimizer.variables) == 2 + 2 * len(variables) - len(matrices)  # 2: count and rate
