"""Assertions that several test modules share."""

import keras
import numpy as np
import tensorflow as tf


def check_layer(layer, inputs, output_shape, tmp_path, outputs_of=lambda outputs: outputs):
    """What any Keras layer must do: build, run eagerly and in a graph alike, train, save and reload."""
    eager = outputs_of(layer(inputs))
    assert tuple(eager.shape) == tuple(output_shape)
    graph = tf.function(lambda values: outputs_of(layer(values)), autograph=False)(inputs)
    np.testing.assert_allclose(graph, eager, atol=1e-5)

    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(outputs_of(layer(inputs)) ** 2)
    gradients = tape.gradient(loss, [weight.value for weight in layer.trainable_weights])
    assert gradients and all(gradient is not None for gradient in gradients)

    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    sample = keras.Input(batch_shape=inputs.shape, dtype=inputs.dtype)
    model = keras.Model(sample, outputs_of(layer(sample)))
    model.save(tmp_path / "model.keras")
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(reloaded(inputs), eager, atol=1e-6)


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
