"""The exponential moving average of the weights.

.. code-block:: text

    a_t = d_t a_{t-1} + (1 - d_t) w_t        d_t = min(decay, t / (9 + t))

for the weights w_t after t updates, beginning with a_0 = w_0, so that early on the average is over the last
tenth of the updates. Source: Polyak and Juditsky 1992; the bound on the decay is that of TensorFlow's
``tf.train.ExponentialMovingAverage``.

A weight that stays w from update s to update t has

.. code-block:: text

    a_t = w + d_{s+1} ... d_t (a_s - w)

which is exact. So a row of a table of words is averaged only before an update changes it, and where its
average is wanted, and a step costs no more with more words.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.training.update import Rows
from bilm.weights.transfer import WORD_ARRAYS

_RAMP = np.arange(1.0, 10.0)  # t / (9 + t) from s + 1 to t, multiplied: of (s + k) / (t + k), k from 1 to 9


class Average(NamedTuple):
    """The average of one variable.

    Attributes:
        values: of the variable's shape.
        n_counted: updates that are in it, -1 for none and not w_0 either: a scalar, or one number for each
            row of a table of words, (rows,).
    """

    values: tf.Variable
    n_counted: tf.Variable


class WeightAverage:
    """The averages of the variables that are trained.

    Args:
        variables: of the model; to be made in the scope of the strategy, like the variables.
        decay: of the average, from 0 to below 1.

    Attributes:
        averages: of each variable, by its name without that of the model.
        n_updates: updates so far.
    """

    def __init__(self, variables: Sequence[keras.Variable], decay: float) -> None:
        self.decay = decay
        self.n_updates = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._variables = {variable.path.split("/", 1)[1]: variable for variable in variables}
        self.averages = {}
        for name, variable in self._variables.items():
            n_counted = np.full(variable.shape[:1] if name in WORD_ARRAYS else (), -1)
            self.averages[name] = Average(
                tf.Variable(tf.zeros(variable.shape), trainable=False),
                tf.Variable(n_counted, trainable=False, dtype=tf.int64),
            )

    def count(self, rows: Sequence[Rows]) -> None:
        """Count one more update, before it is made; to be called in a replica context.

        Args:
            rows: of each variable, those that the update is going to change.
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
        before, counted, some = (tf.gather(tensor, rows) for tensor in (values, n_counted, weight))
        new = averaged(before, counted, some, n, self.decay)
        tf.raw_ops.ResourceScatterUpdate(resource=values.handle, indices=rows, updates=new)
        counts = tf.fill(tf.shape(rows), n)
        tf.raw_ops.ResourceScatterUpdate(resource=n_counted.handle, indices=rows, updates=counts)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The averages as the weights of the model, which has its own again afterwards."""
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
    """The average of a weight that has not changed since the update after the last that was counted.

    Args:
        values: the average so far, float32.
        n_counted: updates that are in it, -1 for none; a scalar, or one number for each row.
        weight: of the shape of `values`.
        n_updates: updates to be counted.
        decay: of the average.
    """
    before, now = (tf.cast(n, tf.float64) for n in (n_counted, n_updates))
    ramp_end = np.floor(9.0 * decay / (1.0 - decay))  # updates until the decay itself is the smaller
    early, late = (tf.minimum(n, ramp_end) for n in (before, now))
    left = tf.reduce_prod((early[..., None] + _RAMP) / (late + _RAMP), axis=-1)
    left *= decay ** (tf.maximum(now, ramp_end) - tf.maximum(before, ramp_end))
    gain = tf.cast(1.0 - left, tf.float32)
    if gain.shape.rank:
        gain = tf.reshape(gain, [-1, *[1] * (len(weight.shape) - 1)])
    return values + gain * (weight - values)
