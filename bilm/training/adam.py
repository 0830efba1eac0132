"""Adam whose sparse gradients read and write only the rows they name.

A row of the softmax gets a gradient in few of the steps. Dense Adam moves every row in every step, because
the moments of all rows decay. Here the moments of a row, and the row, change in the steps that name it,

.. code-block:: text

    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g ** 2
    row -= row_factor * rate * sqrt(1 - beta_2 ** t) / (1 - beta_1 ** t) * m / (sqrt(v) + epsilon)

where t counts all steps. With a factor of 1 that is Adam for dense gradients, and where every row is named
in every step. Rows bear larger steps than the weights that all words share: most are named in few steps.
Moments that also decay for the steps between, and a bias correction by the row's own steps, both gave
higher heldout perplexities; see ``examples/results.md``.

Source: Kingma and Ba 2015 (arXiv:1412.6980), as at the end of their section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bilm.backend.keras_backend import keras


@keras.saving.register_keras_serializable("bilm")
class Adam(keras.optimizers.Optimizer):
    """Adam for dense and sparse gradients, with TensorFlow's fused kernel for the dense ones.

    Args:
        learning_rate: step size.
        beta_1: decay of the first moment.
        beta_2: decay of the second moment.
        epsilon: added to the square root of the second moment.
        row_factor: of the steps of rows, those that sparse gradients name.
        **kwargs: of `keras.optimizers.Optimizer`.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        row_factor: float = 2.5,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(learning_rate, **{"name": "adam", **kwargs})
        self.beta_1, self.beta_2, self.epsilon, self.row_factor = beta_1, beta_2, epsilon, row_factor

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the moments, at zero."""
        if self.built:
            return
        super().build(variables)
        self._first, self._second = self.add_optimizer_variables(variables, ["momentum", "velocity"])

    def moments(self, variable: keras.Variable) -> tuple[keras.Variable, keras.Variable]:
        """The first and the second moment of one variable."""
        i = self._get_variable_index(variable)
        return self._first[i], self._second[i]

    def update_step(
        self, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable, learning_rate: tf.Tensor
    ) -> None:
        """Update a variable by its gradient; a sparse one must name each row once."""
        target = variable.value if isinstance(variable, keras.Variable) else variable
        first, second = (moment.value for moment in self.moments(variable))
        step = tf.cast(self.iterations.value, tf.float32) + 1
        beta_1_power, beta_2_power = tf.pow(self.beta_1, step), tf.pow(self.beta_2, step)
        if not isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceApplyAdam(
                var=target.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=beta_1_power,
                beta2_power=beta_2_power,
                lr=learning_rate,
                beta1=self.beta_1,
                beta2=self.beta_2,
                epsilon=self.epsilon,
                grad=gradient,
                use_locking=True,
            )
            return
        rows, values = gradient.indices, gradient.values
        m = self.beta_1 * tf.gather(first, rows) + (1 - self.beta_1) * values
        v = self.beta_2 * tf.gather(second, rows) + (1 - self.beta_2) * tf.square(values)
        rate = learning_rate * tf.sqrt(1 - beta_2_power) / (1 - beta_1_power)
        tf.raw_ops.ResourceScatterUpdate(resource=first.handle, indices=rows, updates=m)
        tf.raw_ops.ResourceScatterUpdate(resource=second.handle, indices=rows, updates=v)
        change = self.row_factor * rate * m / (tf.sqrt(v) + self.epsilon)
        tf.raw_ops.ResourceScatterSub(resource=target.handle, indices=rows, updates=change)

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        names = ("beta_1", "beta_2", "epsilon", "row_factor")
        return super().get_config() | {name: getattr(self, name) for name in names}
