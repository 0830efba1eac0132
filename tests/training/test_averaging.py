import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.training.averaging import WeightAverage, averaged

N_UPDATES = 40
# A kernel all of which changes in every update, and a table of which some rows do.
SHAPES = {"encoder/forward_0/kernel": (4, 3), "softmax/W": (7, 2), "softmax/b": (7,)}


@pytest.mark.parametrize("decay", [0.9, 0.01])
def test_averages_are_those_of_every_update(decay):
    random, variables = np.random.default_rng(0), []
    for name, shape in SHAPES.items():
        variables.append(keras.Variable(random.normal(size=shape).astype(np.float32), name="v"))
        variables[-1]._path = f"model/{name}"
    average = WeightAverage(variables, decay)
    count = tf.function(average.count, autograph=False)
    start = [variable.numpy() for variable in variables]
    expected = [value.astype(np.float64) for value in start]
    for t in range(1, N_UPDATES + 1):
        rows, left = random.choice(6, 2, replace=False), min(decay, t / (9 + t))  # the last row never
        count([None, tf.constant(rows), tf.constant(rows)])
        for k, variable in enumerate(variables):
            new, own = variable.numpy(), rows if k else slice(None)
            new[own] = random.normal(size=new[own].shape)
            variable.assign(new)
            expected[k] = left * expected[k] + (1 - left) * new
        weights = [variable.numpy() for variable in variables]
        if t in (1, 2, 9, N_UPDATES):
            with pytest.raises(KeyError), average.applied():
                for variable, value in zip(variables, expected, strict=True):
                    np.testing.assert_allclose(variable, value, rtol=1e-5, atol=1e-6)
                found = [variable.numpy() for variable in variables]
                raise KeyError  # after which the weights are as before
        for variable, value in zip(variables, weights, strict=True):
            np.testing.assert_array_equal(variable, value)
    assert not np.allclose(found[0], weights[0], atol=1e-3)
    np.testing.assert_array_equal(found[1][6], start[1][6])


def test_a_long_run():
    """Skipped updates in one, however many, as one after the other."""
    values, decay, left = np.float32([[0.0, 1.0], [5.0, -1.0]]), 0.999, np.ones(2)
    for t in range(3, 12_000):
        left *= np.array([t > 8_995, True]) * min(decay, t / (9 + t)) + np.array([t <= 8_995, False])
    found = averaged(values, np.array([8_995, 2]), np.float32([[2.0, 2.0], [2.0, 2.0]]), 11_999, decay)
    np.testing.assert_allclose(found, 2.0 + left[:, None] * (values - 2.0), rtol=1e-5)
