"""Speed of the LSTMs alone, a training window with its gradient, in the forms that they can have.

    python -m tests.benchmarks.window --preset small
    KERAS_BACKEND=torch python -m tests.benchmarks.window --preset small --precision tf32
    KERAS_BACKEND=jax python -m tests.benchmarks.window --preset small --precision bfloat16

Both directions, all layers, without the connections around layers. On PyTorch ``nn.LSTM`` is its own
projected LSTM, which has no clips; on an NVIDIA GPU it is cuDNN's.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from bilm.backend.keras_backend import BACKEND, backend, keras
from bilm.backend.lstm_cell import Clips, LSTMState, LSTMWeights
from bilm.backend.settings import without_xla
from bilm.options import PRESETS, Options, Precision
from tests.benchmarks.text import precisions_flag, preset_flag

_WARM_UP = 3
Step = Callable[[], Any]


@click.command()
@preset_flag
@precisions_flag
@click.option("--batch-size", default=128, show_default=True)
@click.option("--forms", help="Some of those of the backend, with commas between them.  [default: all]")
@click.option("--steps", default=20, show_default=True, help="Timed windows of each, after three of warm-up.")
def main(preset: str, precisions: tuple[str, ...], batch_size: int, forms: str | None, steps: int) -> None:
    """Print the milliseconds of a window and tokens/s, a token counted once."""
    options = PRESETS[preset].with_values({"batch_size": batch_size})
    known = {"tensorflow": on_tensorflow, "torch": on_torch, "jax": on_jax}[BACKEND]()
    for form in forms.split(",") if forms else known:
        for name in precisions:
            milliseconds = 1000 * seconds_of(known[form](options, Precision(name)), steps)
            rate = batch_size * options.unroll_steps / milliseconds * 1000
            click.echo(f"{BACKEND}, {form}, {preset}, {name}: {milliseconds:.2f} ms; {rate:,.0f} tokens/s")


def seconds_of(step: Step, n_steps: int) -> float:
    """Median seconds of a step."""
    seconds = []
    for _ in range(_WARM_UP + n_steps):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[_WARM_UP:]))


def arrays(options: Options) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    """Inputs of each direction, and the weights of each layer, direction by direction."""
    random, lstm = np.random.default_rng(0), options.lstm
    shapes = [(2 * lstm.projection_dim, 4 * lstm.dim), (4 * lstm.dim,), (lstm.dim, lstm.projection_dim)]
    inputs = (options.unroll_steps, options.batch_size, lstm.projection_dim)
    directions = range(options.n_directions)
    return (
        [random.normal(0, 0.3, inputs).astype(np.float32) for _ in directions],
        [
            [random.normal(0, 0.03, shape).astype(np.float32) for shape in shapes]
            for _ in range(options.n_directions * lstm.n_layers)
        ],
    )


def run_layers(
    options: Options,
    dtype: str,
    inputs: list[Any],
    weights: list[list[Any]],
    run: Callable[..., Any] = backend.run_lstm,
) -> Any:  # noqa: ANN401
    """The sum of the squares of all outputs, by bilm's LSTM of the backend."""
    zeros = zero_state(options)
    clips, total, rest = Clips(options.lstm.cell_clip, options.lstm.proj_clip), 0.0, iter(weights)
    for values in inputs:
        for _ in range(options.lstm.n_layers):
            kernel, bias, projection = next(rest)
            own = LSTMWeights(keras.ops.cast(kernel, dtype), bias, keras.ops.cast(projection, dtype))
            values, _ = run(values, zeros, own, clips, training=True)
        total += keras.ops.sum(keras.ops.square(values))
    return total


def zero_state(options: Options) -> LSTMState:
    """The state before a window."""
    lstm, n = options.lstm, options.batch_size
    return LSTMState(keras.ops.zeros((n, lstm.dim)), keras.ops.zeros((n, lstm.projection_dim)))


def on_tensorflow() -> dict[str, Callable[[Options, Precision], Step]]:
    """bilm's window as it is, without XLA, each as one function of XLA, and as a part of a single one."""
    import tensorflow as tf

    from tests.benchmarks.operations import allow_tf32

    def make(
        options: Options, precision: Precision, xla: bool = True, layer: bool = False, whole: bool = False
    ) -> Step:
        inputs, weights = tf.nest.map_structure(tf.constant, arrays(options))
        run_lstm = tf.function(backend.run_lstm, jit_compile=True, autograph=False)
        own = run_lstm if layer else backend.run_lstm

        def step() -> Any:  # noqa: ANN401
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch((inputs, weights))
                total = run_layers(options, precision.product_dtype, inputs, weights, own)
            gradients = tape.gradient(total, (inputs, weights))
            return total, gradients

        graph = tf.function(step, jit_compile=whole or None, autograph=False)

        def run() -> None:
            allow_tf32(precision)
            graph()[0].numpy()

        if not xla:
            with without_xla():
                run()
        return run

    return {
        "bilm": make,
        "without XLA": functools.partial(make, xla=False),
        "layers in XLA": functools.partial(make, layer=True),
        "all in XLA": functools.partial(make, whole=True),
    }


def on_torch() -> dict[str, Callable[[Options, Precision], Step]]:
    """bilm's loop, and PyTorch's own LSTM."""
    import torch

    def prepare(precision: Precision) -> str:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision is Precision.TF32
        return "cuda" if torch.cuda.is_available() else "cpu"

    def synchronize() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def bilm(options: Options, precision: Precision) -> Step:
        def run() -> None:
            device = prepare(precision)
            leaves = keras.tree.map_structure(lambda tensor: tensor.detach().to(device), tensors)
            for leaf in keras.tree.flatten(leaves):
                leaf.requires_grad_()
            run_layers(options, precision.product_dtype, *leaves).backward()
            synchronize()

        device = prepare(precision)
        tensors = keras.tree.map_structure(lambda array: torch.from_numpy(array).to(device), arrays(options))
        return run

    def own(options: Options, precision: Precision) -> Step:
        device, dtype, lstm = prepare(precision), getattr(torch, precision.product_dtype), options.lstm
        size = lstm.projection_dim
        parts = [
            torch.nn.LSTM(size, lstm.dim, lstm.n_layers, proj_size=size).to(device, dtype)
            for _ in range(options.n_directions)
        ]
        inputs = [torch.from_numpy(own).to(device, dtype).requires_grad_() for own in arrays(options)[0]]

        def run() -> None:
            prepare(precision)
            for part in parts:
                part.zero_grad()
            torch.stack(
                [part(own)[0].float().square().sum() for part, own in zip(parts, inputs, strict=True)]
            ).sum().backward()
            synchronize()

        return run

    return {"bilm": bilm, "nn.LSTM": own}


def on_jax() -> dict[str, Callable[[Options, Precision], Step]]:
    """bilm's scan, compiled."""
    import jax

    def bilm(options: Options, precision: Precision) -> Step:
        exact = "default" if precision is Precision.TF32 else "highest"
        inputs, weights = jax.tree.map(jax.numpy.asarray, arrays(options))

        @jax.jit
        @functools.partial(jax.value_and_grad, argnums=(0, 1))
        def gradients(inputs: Any, weights: Any) -> Any:  # noqa: ANN401
            with jax.default_matmul_precision(exact):
                return run_layers(options, precision.product_dtype, inputs, weights)

        return lambda: jax.block_until_ready(gradients(inputs, weights))

    return {"bilm": bilm}


if __name__ == "__main__":
    main()
