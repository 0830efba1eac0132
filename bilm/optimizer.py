"""Adagrad as bilm-tf runs it, and the path from raw gradients to one update.

The accumulators start at 1.0 and there is no epsilon. A sparse gradient reads and writes only the
rows it names, so that the cost of a step does not grow with the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices"


@keras.saving.register_keras_serializable("bilm")
class Adagrad(keras.optimizers.Adagrad):
    """Keras's Adagrad with TensorFlow's fused kernels, dense and sparse, in place of its own update.

    Args:
        learning_rate: step size.
        initial_accumulator_value: where each sum of squares starts.
        epsilon: added to the root of the accumulator; the reference has none.
        **kwargs: of `keras.optimizers.Adagrad`.
    """

    def __init__(
        self,
        learning_rate: float = 0.2,
        initial_accumulator_value: float = 1.0,
        epsilon: float = 0.0,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(learning_rate, initial_accumulator_value, epsilon, **kwargs)

    def accumulator(self, variable: keras.Variable) -> keras.Variable:
        """The sum of squared gradients of one variable."""
        return self._accumulators[self._get_variable_index(variable)]

    def update_step(self, gradient: Gradient, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """``accumulator += gradient ** 2; variable -= learning_rate * gradient / sqrt(accumulator)``."""
        target = variable.value if isinstance(variable, keras.Variable) else variable
        common = {
            "var": target.handle,
            "accum": self.accumulator(variable).value.handle,
            "lr": tf.cast(learning_rate, target.dtype),
            "epsilon": tf.cast(self.epsilon, target.dtype),
            "use_locking": True,
        }
        if isinstance(gradient, tf.IndexedSlices):
            tf.raw_ops.ResourceSparseApplyAdagradV2(grad=gradient.values, indices=gradient.indices, **common)
        else:
            tf.raw_ops.ResourceApplyAdagradV2(grad=gradient, **common)


def deduplicate(gradient: Gradient) -> Gradient:
    """Sum the rows of a sparse gradient that name the same index; a dense one is returned as it is."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    indices, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


def update(
    optimizer: keras.optimizers.Optimizer,
    gradients: Sequence[Gradient],
    variables: Sequence[keras.Variable],
    clip_norm: float,
) -> tf.Tensor:
    """Average the replicas' gradients, clip them by their global norm, and apply them.

    To be called in a replica context, as `tf.distribute.Strategy.run` gives, after
    ``optimizer.build(variables)``.

    Args:
        optimizer: any Keras optimizer that accepts `tf.IndexedSlices` where there are any.
        gradients: of this replica, one a variable.
        variables: as the optimizer was built with.
        clip_norm: bound of the global norm.

    Returns:
        The global norm before clipping, duplicate rows of sparse gradients summed first.
    """
    replica = tf.distribute.get_replica_context()
    n_replicas = replica.strategy.num_replicas_in_sync
    if n_replicas > 1:
        gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, list(gradients))
        gradients = [_scaled(gradient, 1.0 / n_replicas) for gradient in gradients]
    gradients = [deduplicate(gradient) for gradient in gradients]
    clipped, norm = tf.clip_by_global_norm(gradients, clip_norm)

    def apply(strategy: tf.distribute.Strategy, gradients: list[Gradient]) -> None:
        for gradient, variable in zip(gradients, variables, strict=True):
            strategy.extended.update(
                variable.value,
                lambda var, grad: optimizer.update_step(grad, var, optimizer.learning_rate),
                args=(gradient,),
                group=False,
            )

    replica.merge_call(apply, args=(clipped,))
    return norm


def _scaled(gradient: Gradient, factor: float) -> Gradient:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor
