"""States that a model carries from batch to batch, on TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from bilm.models.encoder import States


class CarriedStates:
    """States that the next batch begins with, zero at first.

    Args:
        zeros: as many rows as a batch has at most.
    """

    def __init__(self, zeros: States) -> None:
        self._states: States = tf.nest.map_structure(
            lambda values: tf.Variable(values, trainable=False), zeros
        )

    def of(self, n_rows: tf.Tensor) -> States:
        """The states of the first rows."""
        return tf.nest.map_structure(lambda state: state[:n_rows], self._states)

    def keep(self, states: States) -> None:
        """Carry the states of the first rows; others stay."""
        for state, after in zip(self._variables, tf.nest.flatten(states), strict=True):
            state.assign(tf.concat([after, state[tf.shape(after)[0] :]], axis=0))

    def reset(self) -> None:
        """Begin anew, at zero."""
        self.set(map(tf.zeros_like, self._variables))

    def numbers(self) -> list[np.ndarray]:
        """All of them, as `set` takes them."""
        return [variable.numpy() for variable in self._variables]

    def set(self, numbers: Iterable[np.ndarray]) -> None:
        """Take over others of the same model and as many rows."""
        for variable, values in zip(self._variables, numbers, strict=True):
            variable.assign(values)

    @property
    def _variables(self) -> list[tf.Variable]:
        return tf.nest.flatten(self._states)
