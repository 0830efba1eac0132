"""Adam whose sparse gradients read and write only the rows they name.

A row of the softmax gets a gradient in few of the steps. Dense Adam moves every row in every one of them:
its moments decay, and the row goes on along the first. Here a row is left alone until it is named again,
and its moments then decay at once for all the steps between,

.. code-block:: text

    m = beta_1 ** k * m + (1 - beta_1) * g         k: steps since the row was named last
    v = beta_2 ** k * v + (1 - beta_2) * g ** 2
    row -= rate * sqrt(1 - beta_2 ** t) / (1 - beta_1 ** t) * m / (sqrt(v) + epsilon)

so that the moments are those of dense Adam, and only the drift between is left out. Where every row is
named in every step the two are the same. Bias is corrected by the step t, not by how often a row was named.

Source: Kingma and Ba 2015 (arXiv:1412.6980), as at the end of their section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bilm.layers.keras_backend import keras


@keras.saving.register_keras_serializable("bilm")
class Adam(keras.optimizers.Optimizer):
    """Adam for dense and sparse gradients.

    Besides the two moments it keeps, for each variable that may have sparse gradients, the step in which
    each row was updated last, int32 (rows,).

    Args:
        learning_rate: step size.
        beta_1: decay of the first moment.
        beta_2: decay of the second.
        epsilon: added to the root of the second.
        rows: variables that may have sparse gradients, by the end of their paths; such gradients of
            others are made dense.
        **kwargs: of `keras.optimizers.Optimizer`.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        rows: Sequence[str] = (),
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(learning_rate, **{"name": "adam", **kwargs})
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.rows = tuple(rows)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the moments, at zero, and the steps of the rows."""
        if self.built:
            return
        super().build(variables)
        self._first, self._second = self.add_optimizer_variables(variables, ["momentum", "velocity"])
        self._last_steps = {
            i: self.add_variable((variable.shape[0],), "zeros", "int32", name=f"last_step_{i}")
            for i, variable in enumerate(variables)
            if self.rows and variable.path.endswith(self.rows)
        }

    @property
    def row_states(self) -> list[tuple[keras.Variable, keras.Variable, keras.Variable]]:
        """Of each variable that may have sparse gradients: the moments, and the steps of its rows."""
        return [(self._first[i], self._second[i], steps) for i, steps in self._last_steps.items()]

    def update_step(
        self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Update a variable by its gradient; rows that the gradient names twice must have been added up."""
        i = self._get_variable_index(variable)
        target = variable.value if isinstance(variable, keras.Variable) else variable
        step = tf.cast(self.iterations.value, tf.int32) + 1
        if isinstance(gradient, tf.IndexedSlices) and i in self._last_steps:
            self._update_rows(i, target, gradient, step, learning_rate)
            return
        if i in self._last_steps:
            self._catch_up(i, step)
        tf.raw_ops.ResourceApplyAdam(
            var=target.handle,
            m=self._first[i].value.handle,
            v=self._second[i].value.handle,
            beta1_power=_power(self.beta_1, step),
            beta2_power=_power(self.beta_2, step),
            lr=learning_rate,
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.convert_to_tensor(gradient),
            use_locking=True,
        )

    def _update_rows(
        self, i: int, target: tf.Variable, gradient: tf.IndexedSlices, step: tf.Tensor, rate: tf.Tensor
    ) -> None:
        first, second, last_steps = (
            state.value for state in (self._first[i], self._second[i], self._last_steps[i])
        )
        rows, values = gradient.indices, gradient.values
        skipped = _as_column(step - tf.gather(last_steps, rows), values)
        m = tf.gather(first, rows) * _power(self.beta_1, skipped) + (1 - self.beta_1) * values
        v = tf.gather(second, rows) * _power(self.beta_2, skipped) + (1 - self.beta_2) * tf.square(values)
        rate *= tf.sqrt(1 - _power(self.beta_2, step)) / (1 - _power(self.beta_1, step))
        for state, updates in ((first, m), (second, v), (last_steps, tf.fill(tf.shape(rows), step))):
            tf.raw_ops.ResourceScatterUpdate(resource=state.handle, indices=rows, updates=updates)
        change = rate * m / (tf.sqrt(v) + self.epsilon)
        tf.raw_ops.ResourceScatterSub(resource=target.handle, indices=rows, updates=change)

    def _catch_up(self, i: int, step: tf.Tensor) -> None:
        """Before a gradient of all rows: what was skipped, if gradients have been sparse so far."""
        last_steps = self._last_steps[i].value
        skipped = step - 1 - last_steps

        def decay() -> None:
            for state, beta in ((self._first[i].value, self.beta_1), (self._second[i].value, self.beta_2)):
                state.assign(state * _power(beta, _as_column(skipped, state)))

        tf.cond(tf.reduce_any(skipped > 0), decay, lambda: None)
        last_steps.assign(tf.fill(tf.shape(last_steps), step))

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        names = ("beta_1", "beta_2", "epsilon", "rows")
        return super().get_config() | {name: getattr(self, name) for name in names}


def _power(beta: float, exponent: tf.Tensor) -> tf.Tensor:
    return tf.pow(beta, tf.cast(exponent, tf.float32))


def _as_column(numbers: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """One number a row, in the rank of an array of rows."""
    return tf.reshape(numbers, [-1] + [1] * (like.shape.rank - 1))
