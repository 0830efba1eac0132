import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.training.adam import Adam
from bilm.training.optimizer import deduplicate

RATE, BETA_1, BETA_2, EPSILON = 0.01, 0.9, 0.999, 1e-7
SHAPES = [(7, 3), (7,)]


def variable(values, name="table"):
    return keras.Variable(np.asarray(values, np.float32), name=name)


def sparse(random, shape, rows):
    """A gradient of some rows, one of them named twice."""
    rows = np.append(rows, rows[:1])
    values = random.normal(size=(len(rows), *shape[1:])).astype(np.float32)
    return deduplicate(tf.IndexedSlices(tf.constant(values), tf.constant(rows), tf.constant(shape)))


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_have_the_moments_of_the_steps_that_name_them(shape):
    random = np.random.default_rng(0)
    start = random.normal(size=shape)
    table, expected = variable(start), start.copy()
    optimizer = Adam(RATE, row_factor=3.0)
    optimizer.build([table])
    m, v = np.zeros(shape), np.zeros(shape)
    for step in range(1, 21):
        gradient = sparse(random, shape, random.choice(6, 3, replace=False))  # row 6 never
        optimizer.apply([gradient], [table])
        rows, values = gradient.indices.numpy(), gradient.values.numpy()
        m[rows] = BETA_1 * m[rows] + (1 - BETA_1) * values
        v[rows] = BETA_2 * v[rows] + (1 - BETA_2) * values**2
        rate = RATE * np.sqrt(1 - BETA_2**step) / (1 - BETA_1**step)
        expected[rows] -= 3.0 * rate * m[rows] / (np.sqrt(v[rows]) + EPSILON)
        np.testing.assert_allclose(table, expected, atol=2e-6)
    for moment, array in zip(optimizer.moments(table), (m, v), strict=True):
        np.testing.assert_allclose(moment, array, atol=1e-6)


def test_all_rows_in_every_step_is_the_adam_of_keras():
    random = np.random.default_rng(1)
    start = random.normal(size=(5, 2))
    table, dense, of_keras = variable(start), variable(start, "dense"), variable(start, "keras")
    own, other = Adam(RATE, row_factor=1.0), keras.optimizers.Adam(RATE)
    own.build([table, dense])
    other.build([of_keras])
    for _ in range(10):
        gradient = sparse(random, (5, 2), random.permutation(5))
        own.apply([gradient, tf.convert_to_tensor(gradient)], [table, dense])
        other.apply([tf.convert_to_tensor(gradient)], [of_keras])
    np.testing.assert_allclose(table, of_keras, atol=1e-6)
    np.testing.assert_allclose(dense, of_keras, atol=1e-6)


def test_rows_without_a_gradient_are_not_read_or_written():
    table = variable(np.ones((4, 2)))
    optimizer = Adam(RATE)
    optimizer.build([table])
    first, second = optimizer.moments(table)
    for state in (table, first, second):
        state.assign(np.where(np.arange(4)[:, None] == 3, np.nan, state))
    optimizer.apply([sparse(np.random.default_rng(2), (4, 2), np.array([0, 2]))], [table])
    assert np.isfinite(table.numpy()[:3]).all()
    assert np.array_equal(table.numpy()[1], [1.0, 1.0])
    assert np.isnan(table.numpy()[3]).all()


def test_config_round_trip():
    optimizer = Adam(0.3, 0.8, 0.99, 1e-6, 4.0)
    again = Adam.from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
