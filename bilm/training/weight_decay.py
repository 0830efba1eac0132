"""Weight decay, decoupled from the gradient.

.. code-block:: text

    w = (1 - learning_rate * weight_decay) w        after each update, for the rows that it changed

Source: Loshchilov and Hutter 2019 (arXiv:1711.05101). Matrices and filters decay, biases do not, nor do the
vectors of the characters: most of their rows are in no word of a batch, but their gradient is dense. A row
of the softmax or of the word embeddings decays in the steps that change it, and as often as it learns, so
that a step costs no more with more words.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.training.touched_rows import Rows


def decay_weights(
    variables: Sequence[keras.Variable], rows: Sequence[Rows], factor: float | tf.Tensor
) -> None:
    """Take the share `factor` off the weights that decay; to be called in a replica context.

    Args:
        variables: of the model.
        rows: of each variable, those that the update changed; see `bilm.training.touched_rows`.
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
