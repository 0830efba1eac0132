"""The update of a step: learning rate, clipping, changed rows, weight decay."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.options import Decay, Options
from bilm.training.optimizers import Gradient, TrainingOptimizer, Variables
from bilm.weights.transfer import CHARACTER_ARRAY


def learning_rate(options: Options, step: int, n_steps: int) -> float:
    """Return the learning rate of a step.

    Args:
        options: `Options.step_size`, ``warmup_steps`` and ``learning_rate_decay``.
        step: step of the schedule, from 1.
        n_steps: steps of the whole schedule.
    """
    rate, warmup = options.step_size, options.warmup_steps
    if step < warmup:
        return rate * step / warmup
    if options.learning_rate_decay is Decay.INVERSE_SQRT:
        return rate * math.sqrt(max(warmup, 1) / step)
    # The first step has the full rate, the last step a small part of it.
    done = (step - max(warmup, 1)) / max(n_steps + 1 - max(warmup, 1), 1)
    if options.learning_rate_decay is Decay.LINEAR:
        return rate * max(1.0 - done, 0.0)
    if options.learning_rate_decay is Decay.COSINE:
        return rate * (1.0 + math.cos(math.pi * min(done, 1.0))) / 2
    return rate


def deduplicate(gradient: Gradient) -> Gradient:
    """Sum the duplicate rows of a sparse gradient; a dense gradient is returned unchanged."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    indices, positions = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, positions, tf.size(indices))
    return tf.IndexedSlices(values, indices, gradient.dense_shape)


Rows: TypeAlias = "tf.Tensor | None"
"""Integers (n,), distinct rows of a variable; None for all rows."""


def update(
    optimizer: TrainingOptimizer,
    gradients: Sequence[Gradient],
    variables: Sequence[keras.Variable],
    learning_rate: tf.Tensor,
    clip_norm: float,
    loss_scale: tf.Tensor | None = None,
) -> tuple[tf.Tensor, list[Rows]]:
    """Average the gradients over the replicas, clip them by their global norm, and apply them.

    Call it in a replica context, as in `tf.distribute.Strategy.run`, after ``optimizer.build(variables)``.

    Args:
        optimizer: result of `make_optimizer`.
        gradients: gradients of this replica, one for each variable.
        variables: variables to update; the optimizer was built with them.
        learning_rate: float32 scalar.
        clip_norm: maximum global norm.
        loss_scale: float32 scalar, factor to remove from the gradients; with it, gradients that are not
            finite change no variable, and count as zeros in the optimizer.

    Returns:
        Global norm before clipping, with duplicate rows of sparse gradients summed; and the rows of each
        variable that changed, on any replica: all if the gradient is dense or the optimizer not row-sparse.
    """
    replica = tf.distribute.get_replica_context()
    n_replicas = replica.strategy.num_replicas_in_sync
    if n_replicas > 1:
        gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, list(gradients))
        gradients = [tf.math.scalar_mul(1.0 / n_replicas, gradient) for gradient in gradients]
    gradients = [deduplicate(gradient) for gradient in gradients]
    if loss_scale is not None:
        gradients = [tf.math.scalar_mul(1.0 / loss_scale, gradient) for gradient in gradients]
    norm = tf.linalg.global_norm(gradients)
    if loss_scale is None:
        clipped, _ = tf.clip_by_global_norm(gradients, clip_norm, use_norm=norm)
    else:
        learning_rate = tf.where(tf.math.is_finite(norm), learning_rate, 0.0)
        factor = tf.where(tf.math.is_finite(norm), tf.minimum(clip_norm / norm, 1.0), 0.0)
        clipped = [  # zeros if the factor is zero, even for gradients that are not finite
            _changed(gradient, lambda values: tf.math.multiply_no_nan(values, factor))
            for gradient in gradients
        ]
    if not optimizer.is_row_sparse:
        clipped = [tf.convert_to_tensor(gradient) for gradient in clipped]

    def change(variable: tf.Variable, gradient: Gradient, rate: tf.Tensor) -> None:
        optimizer.update_step(gradient, variable, rate)

    def apply(strategy: tf.distribute.Strategy, gradients: list[Gradient], rate: tf.Tensor) -> None:
        for gradient, variable in zip(gradients, variables, strict=True):
            strategy.extended.update(variable.value, change, args=(gradient, rate), group=False)
        optimizer.iterations.assign_add(1)

    replica.merge_call(apply, args=(clipped, learning_rate))
    return norm, [getattr(gradient, "indices", None) for gradient in clipped]


def _changed(gradient: Gradient, change: Callable[[tf.Tensor], tf.Tensor]) -> Gradient:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(change(gradient.values), gradient.indices, gradient.dense_shape)
    return change(gradient)


def total(gradients: Sequence[Gradient]) -> Gradient:
    """Sum gradients of one variable; sparse gradients are concatenated."""
    if not isinstance(gradients[0], tf.IndexedSlices):
        return tf.add_n(list(gradients))
    values = tf.concat([gradient.values for gradient in gradients], axis=0)
    indices = tf.concat([gradient.indices for gradient in gradients], axis=0)
    return tf.IndexedSlices(values, indices, gradients[0].dense_shape)


def decay_weights(variables: Variables, rows: Sequence[Rows], factor: float | tf.Tensor) -> None:
    """Multiply weights other than biases and characters by ``1 - factor``. Call it in a replica context.

    Args:
        variables: trained variables by bilm's names.
        rows: rows of each variable that the update changed, see `update`.
        factor: float32 scalar, learning rate times weight decay, the same on all replicas.
    """

    def apply(strategy: tf.distribute.Strategy, rows: list[Rows], factor: tf.Tensor) -> None:
        for (name, variable), own_rows in zip(variables.items(), rows, strict=True):
            if len(variable.shape) > 1 and name != CHARACTER_ARRAY:
                strategy.extended.update(variable.value, _shrink, args=(own_rows, factor), group=False)

    tf.distribute.get_replica_context().merge_call(apply, args=(list(rows), tf.convert_to_tensor(factor)))


def _shrink(weight: tf.Variable, rows: Rows, factor: tf.Tensor) -> None:
    if rows is None:
        weight.assign_sub(factor * weight)
    else:
        tf.raw_ops.ResourceScatterMul(resource=weight.handle, indices=rows, updates=1.0 - factor)
