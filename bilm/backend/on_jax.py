"""The network on JAX: ``lax.scan`` over the steps, compiled for each shape, with JAX's own gradients."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import keras
import numpy as np

from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights, lstm_step, zero_where
from bilm.backend.settings import WORDS_AT_ONCE, power_of_two

FIXED_SHAPES = True
Layer, Dropout = keras.layers.Layer, keras.layers.Dropout


def run_lstm(
    inputs: jax.Array,
    state: LSTMState,
    weights: LSTMWeights,
    clips: Clips,
    lengths: jax.Array | None = None,
    begins: jax.Array | None = None,
    training: bool | None = None,  # noqa: ARG001
) -> tuple[jax.Array, LSTMState]:
    """Run one layer over rows, with ``lax.scan`` over the steps.

    Args:
        inputs: shape (steps, batch, input_dim).
        state: state before the first step.
        weights: see `LSTMWeights`.
        clips: see `Clips`.
        lengths: int32 (batch,), the length of each row in steps; None if all rows are full.
        begins: bool (steps, batch), True at steps that start from a zero state; None if no step does.
        training: ignored; JAX keeps the values that its gradient needs.

    Returns:
        Outputs (steps, batch, projection_dim), zero after the end of a row, and the state of each row
        at its own end.
    """

    def step(state: LSTMState, now: tuple[Any, ...]) -> tuple[LSTMState, jax.Array]:
        i, values, is_new = now
        continues = None if lengths is None else (i < lengths)[:, None]
        is_new = None if is_new is None else is_new[:, None]
        before = LSTMState(*(zero_where(is_new, part) for part in state))
        joined = jnp.concatenate([values, before.h], axis=1).astype(weights.kernel.dtype)
        gates = (joined @ weights.kernel).astype(before.c.dtype) + weights.bias
        output, after = lstm_step(gates, before, weights, clips, continues)
        return after, output

    state, outputs = jax.lax.scan(step, LSTMState(*state), (jnp.arange(len(inputs)), inputs, begins))
    return outputs, state


def gather(table: jax.Array, numbers: jax.Array) -> jax.Array:
    """Return rows of a table by number."""
    return jnp.take(table, numbers, axis=0)


max_over_windows = functools.partial(keras.ops.max, axis=1)


def distinct_rows(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the distinct rows and the index of each row among them; while tracing, all rows as they are."""
    if is_symbolic(rows):
        return rows, jnp.arange(len(rows))
    distinct, numbers = np.unique(np.asarray(rows), axis=0, return_inverse=True)
    return jnp.asarray(distinct), jnp.asarray(numbers.reshape(-1), jnp.int32)


def encode_in_parts(encoder: Any, rows: jax.Array) -> jax.Array:  # noqa: ANN401
    """Encode words in parts; outside a trace, each with others of its length.

    Args:
        encoder: a `bilm.layers.char_cnn.CharCNN`.
        rows: int32 (words, max_characters), character ids 0-260.

    Returns:
        Shape (words, output_dim).
    """
    if any(map(is_symbolic, (rows, *(weight.value for weight in encoder.weights)))):
        return _encode_whole(encoder, rows)
    rows = np.asarray(rows)
    vectors = np.empty((len(rows), encoder.output_dim), np.float32)
    n_more = power_of_two(len(rows)) - len(rows)
    bucket = np.asarray(encoder.buckets_of(np.pad(rows, [(0, n_more), (0, 0)])))[: len(rows)]
    for i, width in enumerate(encoder.options.bucket_widths):
        places = np.flatnonzero(bucket == i)
        for first in range(0, len(places), WORDS_AT_ONCE):
            indices = places[first : first + WORDS_AT_ONCE]
            padded = np.zeros((power_of_two(len(indices)), width), np.int32)
            padded[: len(indices)] = rows[indices, :width]
            vectors[indices] = _compiled_encoder(encoder)(padded)[: len(indices)]
    return jnp.asarray(vectors)


def _encode_whole(encoder: Any, rows: jax.Array) -> jax.Array:  # noqa: ANN401
    """Encode words of any length in parts, inside a function that is being traced."""
    n_words, n_characters = rows.shape
    if n_words <= WORDS_AT_ONCE:
        return encoder((rows,))
    rows = jnp.pad(rows, [(0, -n_words % WORDS_AT_ONCE), (0, 0)])
    parts = rows.reshape(-1, WORDS_AT_ONCE, n_characters)
    return jax.lax.map(lambda part: encoder((part,)), parts).reshape(-1, encoder.output_dim)[:n_words]


@functools.lru_cache(maxsize=8)  # of the models in use
def _compiled_encoder(encoder: Any) -> Callable[[np.ndarray], jax.Array]:  # noqa: ANN401
    return compiled(lambda rows: encoder((rows,)), encoder, ())


def compiled(
    function: Callable[..., Any], layer: keras.layers.Layer, specs: Sequence[Any]
) -> Callable[..., Any]:
    """Compile a function for inference, once for each shape.

    Args:
        function: a function of tensors or nests of them.
        layer: the layer whose weights the function uses; they become arguments, not constants.
        specs: ignored.
    """
    variables = layer.variables

    @jax.jit
    def run(values: list[jax.Array], *args: Any) -> Any:  # noqa: ANN401
        with keras.StatelessScope(state_mapping=zip(variables, values, strict=True)):
            return function(*args)

    return lambda *args: run([variable.value for variable in variables], *args)


def is_symbolic(tensor: Any) -> bool:  # noqa: ANN401
    """Return True for a tensor of a function that is being traced."""
    return isinstance(tensor, jax.core.Tracer)


def is_dense(tensor: Any) -> bool:  # noqa: ANN401
    """Return True for a dense tensor; the sparse ones of ``jax.experimental.sparse`` have ``todense``."""
    return not hasattr(tensor, "todense")


def runs_in_fork() -> bool:
    """Return False: a fork lacks the threads of JAX."""
    return False


def n_gpus() -> int:
    """Return the number of GPUs that JAX finds."""
    return len([device for device in jax.local_devices() if device.platform == "gpu"])
