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


class Reference:
    """Adam over all rows, with zeros for those that have no gradient; these stay where they are."""

    def __init__(self, start):
        self.value = start.astype(np.float64)
        self.m, self.v = np.zeros_like(self.value), np.zeros_like(self.value)
        self.step = 0

    def update(self, gradient):
        self.step += 1
        dense = tf.convert_to_tensor(gradient).numpy()
        self.m = BETA_1 * self.m + (1 - BETA_1) * dense
        self.v = BETA_2 * self.v + (1 - BETA_2) * dense**2
        rate = RATE * np.sqrt(1 - BETA_2**self.step) / (1 - BETA_1**self.step)
        rows = gradient.indices.numpy() if isinstance(gradient, tf.IndexedSlices) else slice(None)
        self.value[rows] -= (rate * self.m / (np.sqrt(self.v) + EPSILON))[rows]


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_catch_up_with_the_moments_of_the_steps_they_were_skipped_in(shape):
    random = np.random.default_rng(0)
    start = random.normal(size=shape)
    table, reference = variable(start), Reference(start)
    optimizer = Adam(RATE, rows=["table"])
    optimizer.build([table])
    for step in range(20):
        gradient = sparse(random, shape, random.choice(6, 3, replace=False))  # row 6 never
        if step == 10:  # a dense gradient between: all rows are up to date
            gradient = tf.convert_to_tensor(gradient)
        optimizer.apply([gradient], [table])
        reference.update(gradient)
        np.testing.assert_allclose(table, reference.value, atol=2e-6)
    first, second, last_steps = optimizer.row_states[0]
    skipped = (20 - last_steps.numpy()).reshape([-1] + [1] * (len(shape) - 1))
    np.testing.assert_allclose(first * BETA_1**skipped, reference.m, atol=1e-6)
    np.testing.assert_allclose(second * BETA_2**skipped, reference.v, atol=1e-6)


@pytest.mark.parametrize("rows", [["table"], []])
def test_all_rows_in_every_step_is_the_adam_of_keras(rows):
    random = np.random.default_rng(1)
    start = random.normal(size=(5, 2))
    table, dense, of_keras = variable(start), variable(start, "dense"), variable(start, "keras")
    own, other = Adam(RATE, rows=rows), keras.optimizers.Adam(RATE)
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
    optimizer = Adam(RATE, rows=["table"])
    optimizer.build([table])
    first, second, _ = optimizer.row_states[0]
    for state in (table, first, second):
        state.assign(np.where(np.arange(4)[:, None] == 3, np.nan, state))
    optimizer.apply([sparse(np.random.default_rng(2), (4, 2), np.array([0, 2]))], [table])
    assert np.isfinite(table.numpy()[:3]).all()
    assert np.array_equal(table.numpy()[1], [1.0, 1.0])
    assert np.isnan(table.numpy()[3]).all()


def test_config_round_trip():
    optimizer = Adam(0.3, 0.8, 0.99, 1e-6, rows=["softmax/W"])
    again = Adam.from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
