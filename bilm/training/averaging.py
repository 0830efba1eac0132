"""Exponential moving average of the weights.

.. code-block:: text

    a_t = d_t a_{t-1} + (1 - d_t) w_t        d_t = min(decay, t / (9 + t))

for the weights w_t after t updates, starting from a_0 = w_0. Early in training the average covers about the
last tenth of the updates. Source: Polyak and Juditsky 1992; d_t is bounded as in TensorFlow's
``tf.train.ExponentialMovingAverage``.

A weight that keeps the value w from update s to update t has

.. code-block:: text

    a_t = w + d_{s+1} ... d_t (a_s - w)

This is exact. The row of a word is therefore averaged only before an update changes it and when the average
is read, so the cost of a step does not depend on the number of words.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.training.update import Rows
from bilm.weights.transfer import WORD_ARRAYS

_RAMP = np.arange(1.0, 10.0)  # product of n / (9 + n), n = s+1..t: product of (s + k) / (t + k), k = 1..9


class Average(NamedTuple):
    """Average of one variable.

    Attributes:
        values: float32, shape of the variable.
        n_counted: int64 scalar, or (rows,) for a table of words, updates included so far; -1 if not even w_0
            is included.
    """

    values: tf.Variable
    n_counted: tf.Variable


class WeightAverage:
    """Averages of the trained variables. Create it in the scope of the strategy.

    Args:
        variables: trained variables of the model, by bilm's names.
        decay: decay of the average, at least 0 and less than 1.

    Attributes:
        averages: `Average` of each variable, by its name.
        n_updates: int64 scalar, updates so far.
    """

    def __init__(self, variables: Mapping[str, keras.Variable], decay: float) -> None:
        self.decay = decay
        self.n_updates = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._variables = variables
        self.averages = {}
        for name, variable in variables.items():
            n_counted = np.full(variable.shape[:1] if name in WORD_ARRAYS else (), -1)
            self.averages[name] = Average(
                tf.Variable(tf.zeros(variable.shape), trainable=False),
                tf.Variable(n_counted, trainable=False, dtype=tf.int64),
            )

    def count(self, rows: Sequence[Rows]) -> None:
        """Include the current weights, before an update. Call it in a replica context.

        Args:
            rows: rows of each variable that the update will change.
        """

        def apply(strategy: tf.distribute.Strategy, rows: list[Rows]) -> None:
            for (name, variable), own_rows in zip(self._variables.items(), rows, strict=True):
                values, n_counted = self.averages[name]
                others = (n_counted, variable.value, self.n_updates, own_rows)
                strategy.extended.update(values, self._catch_up, args=others, group=False)
            self.n_updates.assign_add(1)

        tf.distribute.get_replica_context().merge_call(apply, args=(list(rows),))

    def _catch_up(
        self,
        values: tf.Variable,
        n_counted: tf.Variable,
        weight: tf.Variable,
        n_updates: tf.Variable,
        rows: Rows,
    ) -> None:
        n = tf.convert_to_tensor(n_updates)
        if rows is None:
            values.assign(averaged(values, n_counted, weight, n, self.decay))
            n_counted.assign(tf.fill(tf.shape(n_counted), n))
            return
        before, counted, current = (tf.gather(tensor, rows) for tensor in (values, n_counted, weight))
        new = averaged(before, counted, current, n, self.decay)
        tf.raw_ops.ResourceScatterUpdate(resource=values.handle, indices=rows, updates=new)
        counts = tf.fill(tf.shape(rows), n)
        tf.raw_ops.ResourceScatterUpdate(resource=n_counted.handle, indices=rows, updates=counts)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context in which the model has the averages as its weights."""
        own = {name: tf.identity(variable.value) for name, variable in self._variables.items()}
        try:
            for name, (values, n_counted) in self.averages.items():
                new = averaged(values, n_counted, own[name], self.n_updates, self.decay)
                self._variables[name].assign(new)
            yield
        finally:
            for name, weight in own.items():
                self._variables[name].assign(weight)


def averaged(
    values: tf.Tensor, n_counted: tf.Tensor, weight: tf.Tensor, n_updates: int | tf.Tensor, decay: float
) -> tf.Tensor:
    """Bring the average of a weight up to date; the weight has not changed since update ``n_counted + 1``.

    Args:
        values: float32, average so far.
        n_counted: integer scalar or (rows,), updates included so far, see `Average`.
        weight: float32, shape of `values`, weight at all later updates.
        n_updates: updates to include.
        decay: decay of the average.
    """
    before, now = (tf.cast(n, tf.float64) for n in (n_counted, n_updates))
    ramp_end = np.floor(9.0 * decay / (1.0 - decay))  # up to here n / (9 + n) is less than the decay
    early, late = (tf.minimum(n, ramp_end) for n in (before, now))
    left = tf.reduce_prod((early[..., None] + _RAMP) / (late + _RAMP), axis=-1)
    left *= decay ** (tf.maximum(now, ramp_end) - tf.maximum(before, ramp_end))
    gain = tf.cast(1.0 - left, tf.float32)
    if gain.shape.rank:
        gain = tf.reshape(gain, [-1, *[1] * (len(weight.shape) - 1)])
    return values + gain * (weight - values)
