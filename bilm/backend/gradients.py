"""Gradients written by hand that last as long as their graph."""

import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

_TENSOR = ...  # in place of a tensor, which would keep its graph


def with_gradient(
    forward: Callable[..., tuple[Any, tuple]], backward: Callable[..., list], *arguments: tf.Tensor
) -> Any:  # noqa: ANN401
    """Compute a function whose gradient is written by hand.

    TensorFlow keeps the gradients of all graphs until the process ends. Those of `tf.custom_gradient` keep
    the tensors that they use, too, and with them their graph and its model; here an operation of the graph
    has these tensors as inputs.

    Args:
        forward: returns the results, a tensor or a tuple of them, and all that the gradient needs: a nest of
            tensors and other values.
        backward: returns the gradients of the arguments, from what `forward` kept for it and the gradients
            of the results; refers to no other tensor.
        *arguments: tensors.

    Returns:
        The results of `forward`.
    """
    results, kept = forward(*map(tf.stop_gradient, arguments))
    if tf.executing_eagerly():
        run = tf.custom_gradient(lambda *_: (results, lambda *upstream: backward(kept, *upstream)))
        return run(*arguments)

    outputs = tf.nest.flatten(results)
    inputs = [*outputs, *arguments, *filter(tf.is_tensor, tf.nest.flatten(kept))]
    constants = tf.nest.map_structure(lambda value: _TENSOR if tf.is_tensor(value) else value, kept)
    first, end = len(outputs), len(outputs) + len(arguments)

    def gradient(operation: tf.Operation | None, *upstream: tf.Tensor) -> list[tf.Tensor | None]:
        operation = operation or graph().get_operation_by_name(operation_name)  # None for a SavedModel
        tensors = iter(operation.inputs[end:])
        kept = tf.nest.map_structure(lambda value: next(tensors) if value is _TENSOR else value, constants)
        gradients = backward(kept, *upstream[:first])
        return [None] * first + gradients + [None] * (len(operation.inputs) - end)

    name = f"bilm-{id(gradient)}"
    tf.RegisterGradient(name)(gradient)
    with tf.compat.v1.get_default_graph().gradient_override_map({"IdentityN": name}):
        identities = tf.identity_n(inputs)[:first]
    graph: Any = weakref.ref(identities[0].graph)
    operation_name = identities[0].op.name
    tf.__internal__.record_gradient(name, inputs, (), identities)
    return tf.nest.pack_sequence_as(results, identities)
