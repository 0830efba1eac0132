"""The network on TensorFlow: parts that XLA compiles, sparse gradients, graphs for any shape."""

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import keras
import tensorflow as tf

from bilm.backend import settings, xla
from bilm.backend.gradients import with_gradient
from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights, clip, update_cell, zero_where
from bilm.backend.lstm_window import lstm_window
from bilm.errors import ProcessError
from bilm.io.background import n_visible_cores

FIXED_SHAPES = False
Layer, Dropout = keras.layers.Layer, keras.layers.Dropout

# Values of a loop over steps, or windows of steps: its counter, the state, and the outputs so far.
_Loop = tuple[tf.Tensor, LSTMState, tf.TensorArray]


def run_lstm(
    inputs: tf.Tensor,
    state: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    lengths: tf.Tensor | None = None,
    begins: tf.Tensor | None = None,
    training: bool | None = None,
) -> tuple[tf.Tensor, LSTMState]:
    """Run one layer over rows of any length, known or not; in training with `lstm_window` if possible.

    The inputs of a bounded number of tokens are multiplied with the kernel at once, so that memory beyond
    inputs and outputs does not grow with the length.

    The arithmetic between the products is one function that XLA compiles if it can: a few passes over the
    gates instead of some fifteen. It is compiled for each number of rows, but not for each number of steps.

    Args:
        inputs: shape (steps, batch, input_dim).
        state: state before the first step.
        weights: see `LSTMWeights`.
        clips: see `Clips`.
        lengths: int32 (batch,), the length of each row in steps; None if all rows are full.
        begins: bool (steps, batch), True at steps that start from a zero state; None if no step does.
        training: keep the values that the gradient needs; without them the gradient is slower.

    Returns:
        Outputs (steps, batch, projection_dim), zero after the end of a row, and the state of each row
        at its own end, as ``tf.nn.dynamic_rnn`` of TensorFlow 1 with ``sequence_length``.
    """
    if training and lengths is None and begins is None and inputs.shape[0] is not None:
        return lstm_window(inputs, state, weights, clips)
    n_steps, n_rows, _ = keras.ops.shape(inputs)  # static where known
    n_at_once = tf.maximum(1, settings.TOKENS_AT_ONCE // tf.maximum(n_rows, 1))
    run = _run_steps_in_xla if xla.compiles_loops() else _run_steps

    def window(i: tf.Tensor, state: LSTMState, outputs: tf.TensorArray) -> _Loop:
        start = i * n_at_once
        steps = slice(start, tf.minimum(start + n_at_once, n_steps))
        left = None if lengths is None else lengths - start
        is_new = None if begins is None else begins[steps]
        values, state = run(inputs[steps], state, weights, clips, left, is_new, n_at_once)
        return i + 1, state, outputs.write(i, values)

    n_windows = (n_steps + n_at_once - 1) // n_at_once
    shape = [None, *state.h.shape]
    outputs = tf.TensorArray(state.h.dtype, n_windows, infer_shape=False, element_shape=shape)
    first = tf.constant(0), LSTMState(*state), outputs
    _, state, outputs = tf.while_loop(lambda i, *_: i < n_windows, window, first)
    return tf.ensure_shape(outputs.concat(), [inputs.shape[0], *state.h.shape]), state


def _run_steps(
    inputs: tf.Tensor,
    state: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    lengths: tf.Tensor | None,
    begins: tf.Tensor | None,
    n_steps: tf.Tensor,
) -> tuple[tf.Tensor, LSTMState]:
    """Run at most `n_steps` steps, see `run_lstm`; outputs after them are zero."""
    n_inputs, n_rows, input_dim = keras.ops.shape(inputs)
    dtype = weights.kernel.dtype
    input_kernel, recurrent = weights.kernel[:input_dim], weights.kernel[input_dim:]
    tokens = tf.reshape(inputs, [-1, input_dim])  # multiplied faster than step by step
    input_gates = tf.matmul(tf.cast(tokens, dtype), input_kernel)
    input_gates = tf.reshape(input_gates, [n_inputs, n_rows, weights.kernel.shape[1]])
    end = tf.minimum(n_inputs, n_steps)

    def step(now: tf.Tensor, before: LSTMState, outputs: tf.TensorArray) -> _Loop:
        continues = None if lengths is None else (now < lengths)[:, None]
        is_new = None if begins is None else begins[now][:, None]
        before = LSTMState(before.c, zero_where(is_new, before.h))
        shares = input_gates[now], tf.matmul(tf.cast(before.h, dtype), recurrent)
        c, m = _update_cell(shares, before, weights, clips, continues, is_new)
        if weights.projection is not None:
            m = clip(tf.matmul(m, weights.projection), clips.projection)
        h = output = tf.cast(m, before.h.dtype)
        if continues is not None:
            h = tf.where(continues, h, before.h)
            output = tf.where(continues, output, tf.zeros_like(output))
        return now + 1, LSTMState(c, h), outputs.write(now, output)

    outputs = tf.TensorArray(state.h.dtype, n_inputs, element_shape=state.h.shape)
    first = tf.constant(0), LSTMState(*state), outputs
    _, state, outputs = tf.while_loop(lambda now, *_: now < end, step, first)
    return outputs.stack(), state


_run_padded_steps = tf.function(_run_steps, jit_compile=True, autograph=False, reduce_retracing=True)


def _run_steps_in_xla(
    inputs: tf.Tensor,
    state: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    lengths: tf.Tensor | None,
    begins: tf.Tensor | None,
    n_at_once: tf.Tensor,
) -> tuple[tf.Tensor, LSTMState]:
    """Run up to `n_at_once` steps as one function of XLA, compiled for the number of rows, not of steps.

    XLA cannot keep what the gradient of a loop needs, so the gradient runs the steps again without it.
    """
    n = tf.shape(inputs)[0]
    after = [0, n_at_once - n]

    def arguments_of(inputs: tf.Tensor, c: tf.Tensor, h: tf.Tensor, *weights: tf.Tensor) -> tuple:
        return inputs, LSTMState(c, h), LSTMWeights(*weights, *[None] * (3 - len(weights))), clips

    def forward(*tensors: tf.Tensor) -> tuple[tuple, tuple]:
        padded = tf.pad(tensors[0], [after, [0, 0], [0, 0]])
        are_new = None if begins is None else tf.pad(begins, [after, [0, 0]])
        outputs, state = _run_padded_steps(*arguments_of(padded, *tensors[1:]), lengths, are_new, n)
        return (outputs[:n], *state), (tensors, lengths, begins, n)

    def backward(kept: tuple, *upstream: tf.Tensor) -> list[tf.Tensor]:
        tensors, *others = kept
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(tensors)
            outputs, state = _run_steps(*arguments_of(*tensors), *others)
        return tape.gradient([outputs, *state], [*tensors], [*upstream])

    tensors = inputs, *state, *(weight for weight in weights if weight is not None)
    outputs, c, h = with_gradient(forward, backward, *tensors)
    return outputs, LSTMState(c, h)


@xla.compiled
def _update_cell(
    shares: tuple[tf.Tensor, tf.Tensor],
    before: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    continues: tf.Tensor | None,
    is_new: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the cell after a step, unchanged in ended rows, and the output before the projection."""
    before_c = zero_where(is_new, before.c)
    of_input, of_hidden = (tf.cast(share, before_c.dtype) for share in shares)  # added in float32
    gates = tf.split(of_input + of_hidden + weights.bias, 4, axis=1)
    c, m, _ = update_cell(gates, before_c, clips.cell)
    m = tf.cast(m, before.h.dtype if weights.projection is None else weights.projection.dtype)
    return (c if continues is None else tf.where(continues, c, before_c)), m


def gather(table: tf.Tensor | tf.Variable, numbers: tf.Tensor) -> tf.Tensor:
    """Return rows of a table by number; a variable's gradient has these rows alone."""
    return tf.gather(table, numbers)


def max_over_windows(convolved: tf.Tensor) -> tf.Tensor:
    """Return the maxima over the windows: (words, windows, filters) -> (words, filters).

    The gradient goes to the first of equal windows, as that of TensorFlow's own operation, which takes two to
    three times as long on a CPU.
    """

    def pool(convolved: tf.Tensor) -> tf.Tensor:
        pooled = tf.nn.max_pool2d(convolved[:, None], [1, convolved.shape[1]], 1, "VALID")
        return tf.reshape(pooled, [-1, convolved.shape[2]])

    def forward(convolved: tf.Tensor) -> tuple[tf.Tensor, tuple]:
        pooled = pool(convolved)
        return pooled, (convolved, pooled)

    def backward(kept: tuple, left: tf.Tensor) -> list[tf.Tensor]:
        convolved, pooled = kept
        parts = []
        for is_highest in tf.unstack(convolved == pooled[:, None], axis=1)[:-1]:
            parts.append(tf.where(is_highest, left, tf.zeros_like(left)))
            left = left - parts[-1]
        return [tf.stack([*parts, left], axis=1)]

    if settings.is_portable.get() or xla.device_type() != "CPU":
        return pool(convolved)
    return with_gradient(forward, backward, convolved)


def distinct_rows(rows: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the distinct rows and the index of each row among them."""
    return tuple(tf.raw_ops.UniqueV2(x=rows, axis=[0]))


def encode_in_parts(encoder: Any, rows: tf.Tensor) -> tf.Tensor:  # noqa: ANN401
    """Encode words in parts, each with others of its length.

    Args:
        encoder: a `bilm.layers.char_cnn.CharCNN`.
        rows: int32 (words, max_characters), character ids 0-260.

    Returns:
        Shape (words, output_dim).
    """
    n_words = tf.shape(rows)[0]
    n_parts = tf.maximum(1, (n_words + settings.WORDS_AT_ONCE - 1) // settings.WORDS_AT_ONCE)

    def part(i: tf.Tensor, vectors: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        own = rows[i * settings.WORDS_AT_ONCE : (i + 1) * settings.WORDS_AT_ONCE]
        widths, bucket = encoder.options.bucket_widths, encoder.buckets_of(own)
        parts = zip(tf.dynamic_partition(own, bucket, len(widths)), widths, strict=True)
        places = tf.concat(tf.dynamic_partition(tf.range(tf.shape(own)[0]), bucket, len(widths)), axis=0)
        encoded = encoder(tuple(tf.ensure_shape(part[:, :width], [None, width]) for part, width in parts))
        return i + 1, vectors.write(i, tf.gather(encoded, tf.math.invert_permutation(places)))

    dim = encoder.output_dim
    vectors = tf.TensorArray(tf.float32, n_parts, infer_shape=False, element_shape=[None, dim])
    _, vectors = tf.while_loop(lambda i, _: i < n_parts, part, (tf.constant(0), vectors))
    return tf.ensure_shape(vectors.concat(), [None, dim])


def trackable(variables: Sequence[keras.Variable]) -> tf.Module:
    """Return an attribute for a Keras layer through which TensorFlow's own way of saving finds variables.

    ``tf.train.Checkpoint`` and ``tf.saved_model.save`` do not look into the lists of a Keras layer.
    """
    module: Any = tf.Module()
    module.tensors = [variable.value for variable in variables]
    return module


def compiled(
    function: Callable[..., Any], layer: keras.layers.Layer, specs: Sequence[Any]
) -> Callable[..., Any]:
    """Make one graph of a function for inference, for all shapes that fit the specifications.

    Args:
        function: a function of tensors or nests of them.
        layer: ignored.
        specs: `keras.KerasTensor` or nests of them, the specification of each argument.
    """
    signature = keras.tree.map_structure(lambda spec: tf.TensorSpec(spec.shape, spec.dtype), [*specs])
    return traced_once(function, signature)


def traced_once(function: Callable[..., Any], signature: Sequence[Any]) -> Callable[..., Any]:
    """Make a graph of a function when it is first called, for all tensors that fit a signature.

    TensorFlow counts the calls that trace by source line, and would take several models for one function
    that is traced too often.
    """
    run = tf.function(function, input_signature=signature, autograph=False)
    trace = functools.cache(run.get_concrete_function)

    def call(*arguments: Any) -> Any:  # noqa: ANN401
        trace()
        return run(*arguments)

    return call


def is_symbolic(tensor: Any) -> bool:  # noqa: ANN401
    """Return True for a tensor of a graph that is being built."""
    return tf.is_tensor(tensor) and not hasattr(tensor, "numpy")


def is_dense(tensor: Any) -> bool:  # noqa: ANN401
    """Return True for a dense tensor."""
    return not isinstance(tensor, tf.SparseTensor | tf.RaggedTensor | tf.IndexedSlices)


def asserted(values: tf.Tensor, condition: tf.Tensor, *message: str | tf.Tensor) -> tf.Tensor:
    """Return the values of a graph, which raises an error when it runs if the condition is false."""
    with tf.control_dependencies([tf.debugging.Assert(condition, [*message], summarize=1)]):
        return tf.identity(values)


def runs_in_fork() -> bool:
    """Return False: a fork lacks the threads of TensorFlow."""
    return False


def require_eager() -> None:
    """Refuse to run in the graphs and sessions of TensorFlow 1; a ``tf.function`` is allowed.

    Raises:
        ProcessError: TensorFlow does not execute eagerly.
    """
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise ProcessError(
            "TensorFlow is in its version 1 mode (disable_v2_behavior, or inside a tf.Graph), and bilm needs "
            "eager TensorFlow 2: leave out placeholders and sessions, and call the model with the ids; run "
            "packages that need version 1, such as simple_elmo, in another process"
        )


def threads_of_an_operation() -> int:
    """Return on how many threads TensorFlow runs an operation in this process."""
    chosen = tf.config.threading.get_intra_op_parallelism_threads()
    return chosen or int(os.environ.get("TF_NUM_INTRAOP_THREADS") or 0) or n_visible_cores()


def use_threads_of_an_operation(n: int) -> None:
    """Choose this number before the first operation; it affects the last bits of sums.

    Raises:
        ProcessError: TensorFlow has begun with another number.
    """
    if n == threads_of_an_operation():
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(n)
    except RuntimeError as error:
        problem = f"TensorFlow has begun with {threads_of_an_operation()} in this process"
        raise ProcessError(f"`threads` {n}: {problem}; choose them in a new one") from error


def use_tf32(is_allowed: bool, resources: ExitStack) -> None:
    """Allow products in TF32 or not; the setting before is restored as `resources` are closed."""
    allow = tf.config.experimental.enable_tensor_float_32_execution
    resources.callback(allow, tf.config.experimental.tensor_float_32_execution_enabled())
    allow(is_allowed)


def n_gpus() -> int:
    """Return the number of GPUs that TensorFlow finds."""
    return len(tf.config.list_logical_devices("GPU"))
