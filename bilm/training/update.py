"""The path from raw gradients to one update: schedule, clipping, the rows that change, weight decay."""

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.options import Decay, Options
from bilm.training.optimizers import ROW_SPARSE, Gradient


def learning_rate(options: Options, step: int, n_steps: int) -> float:
    """The rate of one step.

    Args:
        options: ``learning_rate``, ``warmup_steps`` and ``learning_rate_decay``.
        step: from 1, counted from the beginning of the schedule.
        n_steps: steps of the whole schedule.
    """
    rate, warmup = options.learning_rate, options.warmup_steps
    if step < warmup:
        return rate * step / warmup
    if options.learning_rate_decay is Decay.INVERSE_SQRT:
        return rate * math.sqrt(max(warmup, 1) / step)
    # The first step has the whole rate and the last a little of it.
    done = (step - max(warmup, 1)) / max(n_steps + 1 - max(warmup, 1), 1)
    if options.learning_rate_decay is Decay.LINEAR:
        return rate * max(1.0 - done, 0.0)
    if options.learning_rate_decay is Decay.COSINE:
        return rate * (1.0 + math.cos(math.pi * min(done, 1.0))) / 2
    return rate


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
    learning_rate: tf.Tensor,
    clip_norm: float,
    loss_scale: tf.Tensor | None = None,
) -> tf.Tensor:
    """Average the replicas' gradients, clip them by their global norm, and apply them.

    To be called in a replica context, as `tf.distribute.Strategy.run` gives, after
    ``optimizer.build(variables)``.

    Args:
        optimizer: of `make_optimizer`. All but those in `ROW_SPARSE` are given dense gradients.
        gradients: of this replica, one a variable.
        variables: among those the optimizer was built with.
        learning_rate: scalar.
        clip_norm: bound of the global norm.
        loss_scale: factor in the gradients that has to be taken out of them. With it, gradients
            that are not finite count as zeros.

    Returns:
        The global norm before clipping, duplicate rows of sparse gradients summed first.
    """
    replica = tf.distribute.get_replica_context()
    n_replicas = replica.strategy.num_replicas_in_sync
    if n_replicas > 1:
        gradients = replica.all_reduce(tf.distribute.ReduceOp.SUM, list(gradients))
        gradients = [scaled(gradient, 1.0 / n_replicas) for gradient in gradients]
    gradients = [deduplicate(gradient) for gradient in gradients]
    if loss_scale is not None:
        gradients = [scaled(gradient, 1.0 / loss_scale) for gradient in gradients]
    norm = tf.linalg.global_norm(gradients)
    if loss_scale is None:
        clipped, _ = tf.clip_by_global_norm(gradients, clip_norm, use_norm=norm)
    else:
        factor = tf.where(tf.math.is_finite(norm), tf.minimum(clip_norm / norm, 1.0), 0.0)
        clipped = [  # zeros, whatever the gradients, where the factor is zero
            _changed(gradient, lambda values: tf.math.multiply_no_nan(values, factor))
            for gradient in gradients
        ]
    if not isinstance(optimizer, ROW_SPARSE):
        clipped = [tf.convert_to_tensor(gradient) for gradient in clipped]

    def apply(strategy: tf.distribute.Strategy, gradients: list[Gradient], rate: tf.Tensor) -> None:
        for gradient, variable in zip(gradients, variables, strict=True):
            strategy.extended.update(
                variable.value,
                lambda var, grad, rate: optimizer.update_step(grad, var, rate),
                args=(gradient, rate),
                group=False,
            )
        optimizer.iterations.assign_add(1)

    replica.merge_call(apply, args=(clipped, learning_rate))
    return norm


def scaled(gradient: Gradient, factor: float | tf.Tensor) -> Gradient:
    """A gradient, dense or sparse, times a factor."""
    return _changed(gradient, lambda values: values * factor)


def _changed(gradient: Gradient, change: Callable[[tf.Tensor], tf.Tensor]) -> Gradient:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(change(gradient.values), gradient.indices, gradient.dense_shape)
    return change(gradient)


def total(gradients: Sequence[Gradient]) -> Gradient:
    """The sum of gradients of one variable; sparse ones are put end to end."""
    if not isinstance(gradients[0], tf.IndexedSlices):
        return tf.add_n(list(gradients))
    return tf.IndexedSlices(
        tf.concat([gradient.values for gradient in gradients], axis=0),
        tf.concat([gradient.indices for gradient in gradients], axis=0),
        gradients[0].dense_shape,
    )


Rows: TypeAlias = "tf.Tensor | None"
"""Distinct rows of a variable, integers of shape (n,); None for all of them."""


def touched_rows(optimizer: keras.optimizers.Optimizer, gradients: Sequence[Gradient]) -> list[Rows]:
    """The rows that an update is going to change, of each variable.

    To be called in a replica context. All rows change if the gradient is dense, and with an optimizer that
    is not in `ROW_SPARSE`.

    Args:
        optimizer: of `make_optimizer`.
        gradients: of this replica, one a variable.
    """
    if not isinstance(optimizer, ROW_SPARSE):
        return [None] * len(gradients)
    replica = tf.distribute.get_replica_context()
    n_replicas = replica.strategy.num_replicas_in_sync
    touched: list[Rows] = []
    for gradient in gradients:
        rows = gradient.indices if isinstance(gradient, tf.IndexedSlices) else None
        if rows is not None and n_replicas > 1:
            rows = replica.all_gather(rows, axis=0)
        touched.append(rows if rows is None else tf.unique(rows).y)
    return touched


def decay_weights(
    variables: Sequence[keras.Variable], rows: Sequence[Rows], factor: float | tf.Tensor
) -> None:
    """Take the share `factor` off the weights that decay; to be called in a replica context.

    Args:
        variables: of the model.
        rows: of each variable, those that the update changed; see `touched_rows`.
        factor: learning rate times weight decay, scalar, on all replicas the same.
    """

    def apply(strategy: tf.distribute.Strategy, rows: list[Rows], factor: tf.Tensor) -> None:
        for variable, own_rows in zip(variables, rows, strict=True):
            if decays(variable):
                strategy.extended.update(variable.value, _shrink, args=(own_rows, factor), group=False)

    tf.distribute.get_replica_context().merge_call(apply, args=(list(rows), tf.convert_to_tensor(factor)))


def decays(variable: keras.Variable) -> bool:
    """Whether a variable's weights decay."""
    return len(variable.shape) > 1 and not variable.path.endswith("/char_embed")


def _shrink(weight: tf.Variable, rows: Rows, factor: tf.Tensor) -> None:
    if rows is None:
        weight.assign_sub(factor * weight)
    else:
        tf.raw_ops.ResourceScatterMul(resource=weight.handle, indices=rows, updates=1.0 - factor)
