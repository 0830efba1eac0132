import keras
import numpy as np
import pytest
import tensorflow as tf

from bilm.training.averaging import WeightAverage, averaged

N_UPDATES = 40


def decays(decay):
    """What each update leaves of the average before."""
    return [min(decay, t / (9 + t)) for t in range(1, N_UPDATES + 1)]


class Weights:
    """A kernel all of which changes in every update, and a table of which some rows do."""

    def __init__(self, decay, seed=0):
        self.random = np.random.default_rng(seed)
        self.decay = decay
        self.variables = []
        for name, shape in {"forward_0/kernel": (4, 3), "softmax/W": (7, 2), "softmax/b": (7,)}.items():
            self.variables.append(keras.Variable(self.draw(shape), name="v"))
            self.variables[-1]._path = f"model/{name}"
        self.average = WeightAverage(self.variables, decay)
        self.expected = [variable.numpy().astype(np.float64) for variable in self.variables]
        self.count = tf.function(self.average.count, autograph=False)

    def draw(self, shape):
        return self.random.normal(size=shape).astype(np.float32)

    def update(self, t):
        rows = self.random.choice(6, 2, replace=False)  # the last row never
        self.count([None, tf.constant(rows), tf.constant(rows)])
        for k, variable in enumerate(self.variables):
            new = variable.numpy()
            own = slice(None) if k == 0 else rows
            new[own] = self.draw(new[own].shape)
            variable.assign(new)
            left = decays(self.decay)[t - 1]
            self.expected[k] = left * self.expected[k] + (1 - left) * new

    def found(self):
        with self.average.applied():
            return [variable.numpy() for variable in self.variables]


@pytest.mark.parametrize("decay", [0.9, 0.01])
def test_averages_are_those_of_every_update(decay):
    weights = Weights(decay)
    before = weights.found()
    for found, variable in zip(before, weights.variables, strict=True):
        np.testing.assert_array_equal(found, variable)
    for t in range(1, N_UPDATES + 1):
        weights.update(t)
        if t in (1, 2, 9, N_UPDATES):
            for found, expected in zip(weights.found(), weights.expected, strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(weights.found()[0], weights.variables[0], atol=1e-3)
    np.testing.assert_array_equal(weights.found()[1][6], before[1][6])
    own = [variable.numpy() for variable in weights.variables]
    with pytest.raises(KeyError), weights.average.applied():
        raise KeyError  # after which the weights are as before
    for variable, value in zip(weights.variables, own, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_a_long_run():
    """Skipped updates in one, however many, as one after the other."""
    values, decay, left = np.float32([[0.0, 1.0], [5.0, -1.0]]), 0.999, np.ones(2)
    for t in range(3, 12_000):
        left *= np.array([t > 8_995, True]) * min(decay, t / (9 + t)) + np.array([t <= 8_995, False])
    found = averaged(values, np.array([8_995, 2]), np.float32([[2.0, 2.0], [2.0, 2.0]]), 11_999, decay)
    np.testing.assert_allclose(found, 2.0 + left[:, None] * (values - 2.0), rtol=1e-5)
