"""Which rows of the variables a step changes, on all replicas together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.training.optimizer import ROW_SPARSE, Gradient

Rows: TypeAlias = "tf.Tensor | None"
"""Distinct rows of a variable, integers of shape (n,); None for all of them."""


def touched_rows(optimizer: keras.optimizers.Optimizer, gradients: Sequence[Gradient]) -> list[Rows]:
    """The rows that an update is going to change, of each variable.

    To be called in a replica context. All rows change if the gradient is dense, and with an optimizer that
    is not in `bilm.training.optimizer.ROW_SPARSE`.

    Args:
        optimizer: of `bilm.training.optimizer.make_optimizer`.
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
