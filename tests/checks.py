"""Assertions that several test modules share."""

import numpy as np
import tensorflow as tf


def assert_gradients_match(first, second, sources, atol=1e-5):
    """Two functions of no argument agree in value and in the gradient by every source."""
    results = []
    for function in (first, second):
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs = tf.nest.flatten(function())
            # Each output in a direction of its own, so that no two errors cancel.
            loss = tf.add_n(
                [
                    tf.reduce_sum(
                        output
                        * tf.cos(tf.reshape(tf.range(tf.size(output), dtype=output.dtype), output.shape))
                    )
                    for output in outputs
                ]
            )
        gradients = tape.gradient(loss, sources, unconnected_gradients=tf.UnconnectedGradients.ZERO)
        results.append([*outputs, *map(tf.convert_to_tensor, gradients)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, atol=atol, rtol=1e-5)
