"""Gradients written by hand that last as long as their graph."""

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def with_gradient(
    forward: Callable[..., tuple[Any, tuple]], backward: Callable[..., Sequence], *arguments: tf.Tensor
) -> Any:  # noqa: ANN401
    """Compute a function whose gradient is written by hand.

    TensorFlow keeps each gradient of a graph until the process ends. With `tf.custom_gradient` it would keep
    the tensors that the gradient uses, too, and with them their graph and its model; here the graph's
    operation has them as inputs.

    Args:
        forward: returns, of the arguments, the results, a tensor or a tuple of them, and a tuple of what the
            gradient needs beside the arguments: tensors, other values, nests of them.
        backward: returns the gradient of each argument, of a list of the arguments, the tuple and the
            gradients of the results. It must not refer to other tensors.
        *arguments: tensors.

    Returns:
        The results.
    """
    if tf.executing_eagerly():

        @tf.custom_gradient
        def run(*arguments: tf.Tensor) -> tuple[Any, Any]:
            results, kept = forward(*map(tf.stop_gradient, arguments))
            return results, lambda *upstream: backward(arguments, kept, *upstream)

        return run(*arguments)

    results, kept = forward(*map(tf.stop_gradient, arguments))
    outputs, others = tf.nest.flatten(results), tf.nest.flatten(kept)
    inputs = [*outputs, *arguments, *filter(tf.is_tensor, others)]
    constants = [None if tf.is_tensor(other) else (other,) for other in others]
    structure = tf.nest.map_structure(lambda _: None, kept)
    n_outputs, n_arguments, n_kept = len(outputs), len(arguments), len(inputs) - len(outputs) - len(arguments)

    def gradient(operation: tf.Operation | None, *upstream: tf.Tensor) -> list[tf.Tensor | None]:
        operation = operation or graph().get_operation_by_name(operation_name)  # None for a SavedModel
        given = operation.inputs[n_outputs : n_outputs + n_arguments]
        tensors = iter(operation.inputs[n_outputs + n_arguments :])
        values = [next(tensors) if constant is None else constant[0] for constant in constants]
        gradients = backward(given, tf.nest.pack_sequence_as(structure, values), *upstream[:n_outputs])
        return [None] * n_outputs + [*gradients] + [None] * n_kept

    name = f"bilm-{next(_numbers)}"
    tf.RegisterGradient(name)(gradient)
    with tf.compat.v1.get_default_graph().gradient_override_map({"IdentityN": name}):
        identities = tf.identity_n(inputs)
    graph, operation_name = weakref.ref(identities[0].graph), identities[0].op.name
    tf.__internal__.record_gradient(name, inputs, (), identities[:n_outputs])
    return tf.nest.pack_sequence_as(results, identities[:n_outputs])


_numbers = itertools.count()
