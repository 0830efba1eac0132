"""Dropout in training: every mask is a function of the window's seed and its place in the network."""

from typing import Any, NamedTuple

import tensorflow as tf


class Dropout(NamedTuple):
    """Randomness of one training window.

    Attributes:
        seed: int32 (2,), the seed; with a place in the network it determines a mask.
    """

    seed: tf.Tensor

    def drop(self, values: tf.Tensor, rate: float, place: int, noise_shape: tuple[Any, ...]) -> tf.Tensor:
        """Zero a share `rate` of the values and scale up the others."""
        if rate == 0.0:
            return values
        seed = tf.random.experimental.stateless_fold_in(self.seed, place)
        return tf.nn.experimental.stateless_dropout(values, rate, seed, noise_shape=noise_shape)

    def mask(self, shape: tuple[Any, ...], rate: float, place: int) -> tf.Tensor:
        """Return dropout factors: a share `rate` of them 0, the others 1 / (1 - rate)."""
        return self.drop(tf.ones(shape), rate, place, shape)
