import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.models.language_model import LanguageModel
from bilm.options import Options
from bilm.training.adam import Adam
from bilm.training.muon import Muon, is_matrix, orthogonalised, orthogonalised_in_blocks
from tests.helpers import small_options

RATE = 0.01


def variable(values, name):
    return keras.Variable(np.asarray(values, np.float32), name=name)


def iterated(matrix):
    """Four steps of the published iteration, on each singular value by itself, in float64."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    values /= np.sqrt(np.linalg.norm(values**2))
    squares, factors = values**2 + 3e-4, np.ones_like(values)
    for _ in range(4):
        factor = 3.4445 - 4.7750 * squares + 2.0315 * squares**2
        squares, factors = squares * factor**2, factors * factor
    return left * (values * factors) @ right


@pytest.mark.parametrize("shape", [(4, 9), (5, 5), (1, 3)])
def test_orthogonalised_is_the_published_iteration(shape):
    matrices = np.random.default_rng(0).normal(size=(2, *shape))
    found = orthogonalised(tf.constant(matrices, tf.float32)).numpy()
    np.testing.assert_allclose(found, [iterated(matrix) for matrix in matrices], atol=1e-5)


def test_orthogonalised_keeps_the_singular_vectors():
    random = np.random.default_rng(1)
    left, right = np.linalg.qr(random.normal(size=(6, 6)))[0], np.linalg.qr(random.normal(size=(20, 6)))[0]
    values = np.geomspace(1.0, 0.03, 6)
    found = orthogonalised(tf.constant([1e-4 * left @ np.diag(values) @ right.T], tf.float32)).numpy()[0]
    among = left.T @ found @ right
    assert np.all((np.diag(among) > 0.5) & (np.diag(among) < 1.25))
    np.testing.assert_allclose(found, left @ np.diag(np.diag(among)) @ right.T, atol=1e-3)


@pytest.mark.parametrize("spread", [1.0, 1e-4, 1e-12])
def test_orthogonalised_is_bounded_whatever_the_spectrum(spread):
    random = np.random.default_rng(2)
    matrix = random.normal(size=(40, 1)) @ random.normal(size=(1, 90)) + spread * random.normal(size=(40, 90))
    found = np.linalg.svd(orthogonalised(tf.constant([matrix], tf.float32)).numpy()[0])[1]
    assert found.max() < 1.3


def test_zeros_stay_zeros():
    np.testing.assert_array_equal(orthogonalised(tf.zeros((1, 3, 4))), np.zeros((1, 3, 4)))


def test_the_steps_of_a_matrix():
    random = np.random.default_rng(3)
    start = random.normal(size=(3, 8))
    matrix, expected, momentum = variable(start, "projection"), start.copy(), np.zeros((3, 8))
    optimizer = Muon(RATE, momentum=0.9, matrix_factor=1.5)
    optimizer.build([matrix])
    for _ in range(5):
        gradient = random.normal(size=(3, 8))
        optimizer.apply([tf.constant(gradient, tf.float32)], [matrix])
        momentum = 0.9 * momentum + gradient
        expected -= 1.5 * RATE * 0.2 * np.sqrt(8) * iterated(gradient + 0.9 * momentum)
        np.testing.assert_allclose(matrix, expected, atol=1e-5)


def test_filters_are_the_columns_of_a_matrix():
    gradient = np.random.default_rng(6).normal(size=(1, 3, 2, 5))
    filters, matrix = variable(np.zeros((1, 3, 2, 5)), "W_cnn_2"), variable(np.zeros((6, 5)), "projection")
    optimizer = Muon(RATE)
    optimizer.build([filters, matrix])
    optimizer.apply(
        [tf.constant(part, tf.float32) for part in (gradient, gradient.reshape(6, 5))], [filters, matrix]
    )
    np.testing.assert_array_equal(np.reshape(filters, (6, 5)), matrix)
    assert np.linalg.norm(matrix) > 0


@pytest.mark.parametrize(
    ("shape", "sizes"), [((4, 9), [4]), ((9, 4), [4]), ((10, 12), [4, 4, 2]), ((12, 10), [4, 4, 2])]
)
def test_blocks_of_the_shorter_side_do_not_meet(shape, sizes):
    matrix = np.random.default_rng(7).normal(size=shape)
    found = orthogonalised_in_blocks(tf.constant(matrix, tf.float32), 4).numpy()
    axis = int(shape[0] > shape[1])
    blocks = np.split(matrix, np.cumsum(sizes)[:-1], axis)
    np.testing.assert_allclose(found, np.concatenate(list(map(iterated, blocks)), axis), atol=1e-5)


def test_all_else_is_adam():
    random = np.random.default_rng(5)
    shapes = {"W": (7, 3), "b_proj": (5,), "char_embed": (6, 2)}
    with keras.name_scope("softmax"):
        variables = [[variable(np.ones(shape), name) for name, shape in shapes.items()] for _ in range(2)]
    optimizers = [Muon(RATE), Adam(RATE)]
    for optimizer, own in zip(optimizers, variables, strict=True):
        optimizer.build(own)
    for _ in range(3):
        gradients = [tf.constant(random.normal(size=shape), tf.float32) for shape in shapes.values()]
        gradients[0] = tf.IndexedSlices(gradients[0][:2], tf.constant([4, 1]), tf.constant((7, 3)))
        for optimizer, own in zip(optimizers, variables, strict=True):
            optimizer.apply(gradients, own)
    for one, other in zip(*variables, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_matrices_of_a_model():
    model = LanguageModel(Options.from_json(small_options(n_tokens_vocab=73)))
    filters = {f"W_cnn_{i}" for i in range(len(model.options.char_cnn.filters))}
    names = {variable.name for variable in model.trainable_variables if is_matrix(variable)}
    assert names == {"kernel", "projection", "W_proj", "high_0_W_carry", "high_0_W_transform", *filters}
    optimizer = Muon(RATE)
    optimizer.build(model.trainable_variables)
    n_variables, n_matrices = len(model.trainable_variables), sum(map(is_matrix, model.trainable_variables))
    assert len(optimizer.variables) == 2 + 2 * n_variables - n_matrices  # 2: count and rate


def test_config_round_trip():
    optimizer = Muon(0.3, 0.8, 1.5, beta_1=0.8, row_factor=4.0)
    again = Muon.from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
