"""The network on TensorFlow: loops that XLA compiles, sparse gradients, graphs for any shape."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from bilm.backend import xla
from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights
from bilm.backend.lstm_loop import lstm_loop
from bilm.backend.lstm_window import lstm_window
from bilm.backend.settings import WORDS_AT_ONCE
from bilm.errors import ProcessError

FIXED_SHAPES = False
Dropout = keras.layers.Dropout
portable = xla.portable


def run_lstm(
    inputs: tf.Tensor,
    state: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    lengths: tf.Tensor | None = None,
    begins: tf.Tensor | None = None,
    training: bool | None = None,
) -> tuple[tf.Tensor, LSTMState]:
    """One layer over (steps, batch, input_dim); see `bilm.backend.lstm_loop.lstm_loop`.

    Args:
        inputs: as there.
        state: as there.
        weights: as there.
        clips: as there.
        lengths: as there.
        begins: as there.
        training: whether to keep what the gradient needs; it can be taken without, more slowly.
    """
    if training and lengths is None and begins is None and inputs.shape[0] is not None:
        return lstm_window(inputs, state, weights, clips)
    return lstm_loop(inputs, state, weights, clips, lengths, begins)


def gather(table: tf.Tensor | tf.Variable, numbers: tf.Tensor) -> tf.Tensor:
    """Rows of a table; of a variable, the gradient has these rows alone."""
    return tf.gather(table.value if isinstance(table, keras.Variable) else table, numbers)


def distinct_rows(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """The rows there are, each once, and the number of each row among them."""
    return tuple(tf.raw_ops.UniqueV2(x=rows, axis=[0]))


def encode_in_parts(encoder: Any, rows: tf.Tensor) -> tf.Tensor:  # noqa: ANN401
    """Vectors of words, some at a time and each among others of its length.

    Args:
        encoder: a `bilm.layers.char_cnn.CharCNN`.
        rows: character ids 0-260, int32 (words, max_characters).

    Returns:
        Shape (words, output_dim).
    """
    n_words = tf.shape(rows)[0]
    n_parts = tf.maximum(1, (n_words + WORDS_AT_ONCE - 1) // WORDS_AT_ONCE)

    def part(i: tf.Tensor, vectors: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        some = rows[i * WORDS_AT_ONCE : (i + 1) * WORDS_AT_ONCE]
        return i + 1, vectors.write(i, _encode_some(encoder, some))

    dim = encoder.output_dim
    vectors = tf.TensorArray(tf.float32, n_parts, infer_shape=False, element_shape=[None, dim])
    _, vectors = tf.while_loop(lambda i, _: i < n_parts, part, (tf.constant(0), vectors))
    return tf.ensure_shape(vectors.concat(), [None, dim])


def _encode_some(encoder: Any, rows: tf.Tensor) -> tf.Tensor:  # noqa: ANN401
    widths, bucket = encoder.bucket_widths, encoder.buckets_of(rows)
    parts = zip(tf.dynamic_partition(rows, bucket, len(widths)), widths, strict=True)
    places = tf.concat(tf.dynamic_partition(tf.range(tf.shape(rows)[0]), bucket, len(widths)), axis=0)
    vectors = encoder(tuple(tf.ensure_shape(part[:, :width], [None, width]) for part, width in parts))
    return tf.gather(vectors, tf.math.invert_permutation(places))


def compiled(
    function: Callable[..., Any],
    layer: keras.layers.Layer,  # noqa: ARG001
    specs: Sequence[Any],
    reads_values: bool = False,  # noqa: ARG001
) -> Callable[..., Any]:
    """A function for inference as a graph, for all shapes that fit.

    Args:
        function: of tensors, or nests of them.
        layer: whose weights it uses.
        specs: of its arguments, `Spec` or nests of them.
        reads_values: whether shapes inside depend on values; it does not matter here.
    """
    signature = keras.tree.map_structure(lambda spec: tf.TensorSpec(spec.shape, spec.dtype), [*specs])
    return tf.function(function, input_signature=signature, autograph=False)


def is_symbolic(tensor: Any) -> bool:  # noqa: ANN401
    """Whether it is a tensor of a graph that is being built."""
    return tf.is_tensor(tensor) and not hasattr(tensor, "numpy")


def is_dense(tensor: Any) -> bool:  # noqa: ANN401
    """Whether a tensor has a value in each place."""
    return not isinstance(tensor, tf.SparseTensor | tf.RaggedTensor | tf.IndexedSlices)


def asserted(values: tf.Tensor, condition: tf.Tensor, message: str) -> tf.Tensor:
    """Values of a graph, which ends with an error where a condition does not hold."""
    with tf.control_dependencies([tf.debugging.Assert(condition, [message])]):
        return tf.identity(values)


def require_ready() -> None:
    """Refuse to run in the graphs and sessions of TensorFlow 1; a ``tf.function`` is no such graph.

    Raises:
        ProcessError: TensorFlow does not execute eagerly.
    """
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise ProcessError(
            "TensorFlow is in its version 1 mode (disable_v2_behavior, or inside a tf.Graph), and bilm needs "
            "eager TensorFlow 2: leave out placeholders and sessions, and call the model with the ids"
        )


def n_gpus() -> int:
    """GPUs that TensorFlow finds."""
    return len(tf.config.list_logical_devices("GPU"))


def device(number: int) -> contextlib.AbstractContextManager[object]:
    """A scope of a GPU by its number, or with -1 of the CPU."""
    return tf.device("/CPU:0" if number < 0 else f"/GPU:{number}")
