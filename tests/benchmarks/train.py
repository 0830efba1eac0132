"""Speed of a training step beside the machine's own: tokens/s and the share of the peak.

    python -m tests.benchmarks.train --preset small
    python -m tests.benchmarks.train --preset small --vocab-size 18000 --vocab-size 800000
    python -m tests.benchmarks.train --preset small --optimizer adagrad --optimizer muon
    python -m tests.benchmarks.train --preset small --precision float32 --precision bfloat16
    python -m tests.benchmarks.train --preset small --precision float32 --precision tf32 --jit

On a GPU also its memory: a model, its optimizer and a step.

The vocabularies, optimizers and precisions take turns, so that a machine whose speed drifts is fair to all.
"""

import dataclasses
import resource
import tempfile
import time
from itertools import product
from pathlib import Path

import click
import numpy as np

from bilm.data.pipeline import training_batches
from bilm.data.stream import Order
from bilm.io.background import prefetch
from bilm.io.shards import find_files
from bilm.models.language_model import LanguageModel
from bilm.options import PRESETS, Optimizer, Options
from bilm.training.trainer import Trainer
from tests.benchmarks import operations
from tests.benchmarks.text import (
    benchmark_text,
    precisions_flag,
    preset_flag,
    set_flag,
    text_flag,
    vocabulary_of,
    words_of,
)

_WARM_UP = 2


@click.command()
@preset_flag
@click.option("--batch-size", default=128, show_default=True)
@click.option("--vocab-size", "vocab_sizes", multiple=True, type=int, default=[18_000], show_default=True)
@click.option(
    "--optimizer",
    "optimizers",
    multiple=True,
    type=click.Choice([one.value for one in Optimizer]),
    default=["adagrad"],
)
@precisions_flag
@click.option("--jit", is_flag=True, help="Compile the whole step with XLA.")
@set_flag
@click.option("--steps", default=20, show_default=True, help="Timed steps of each, after two of warm-up.")
@text_flag
def main(preset, batch_size, vocab_sizes, optimizers, precisions, jit, changes, steps, text) -> None:
    """Print times, tokens/s (a token counted once, both directions trained) and utilisation."""
    with tempfile.TemporaryDirectory() as directory:
        files = find_files([text or benchmark_text(Path(directory))])
        words = words_of(files)
        options = PRESETS[preset].with_values({"batch_size": batch_size, **changes})
        runs = [
            Run(
                files, words, options.with_values({"optimizer": optimizer, "precision": precision}), size, jit
            )
            for optimizer, size, precision in product(optimizers, vocab_sizes, precisions)
        ]
        for _ in range(steps + _WARM_UP):
            for run in runs:
                run.step()
    print(operations.peak())
    for run in runs:
        run.report(f"{preset}, {run.options.optimizer.value}, {run.options.precision.value}", runs[0])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"most memory of the process: {memory:.2f} GiB")


class Run:
    """One model in training, and for each step the seconds of waiting, of a product and of itself."""

    def __init__(
        self, files: tuple[Path, ...], words: tuple[str, ...], options: Options, size: int, jit: bool
    ) -> None:
        vocabulary = vocabulary_of(words, size)
        self.options = options = dataclasses.replace(options, n_tokens_vocab=size)
        before = operations.gpu_bytes("current")
        self.trainer = Trainer(LanguageModel(options, options.precision), jit=jit)
        self.model_bytes, self.step_bytes = operations.gpu_bytes("current") - before, 0
        self.batches = prefetch(training_batches(files, vocabulary, options, Order(shuffle=True)))
        self.seconds: list[tuple[float, float, float]] = []
        self.operations: list[float] = []

    def step(self) -> None:
        """Take a step of training; remember the seconds."""
        options, start = self.options, time.perf_counter()
        batches = next(self.batches).parts
        wait, of_product = time.perf_counter() - start, operations.product_seconds()
        operations.allow_tf32(options.precision)
        before, start = operations.gpu_bytes("current"), time.perf_counter()
        self.trainer.step(batches, len(self.seconds) + 1)
        self.seconds.append((wait, of_product, time.perf_counter() - start))
        self.step_bytes = max(self.step_bytes, operations.gpu_bytes("peak") - before)
        n_candidates = options.n_negative_samples_batch if options.use_sampling else options.n_tokens_vocab
        self.operations.append(operations.window_operations(options, batches[0], n_candidates).sum())

    def report(self, title: str, first: "Run") -> None:
        """Print the medians of the steps after the warm-up."""
        wait, of_product, step = np.array(self.seconds[_WARM_UP:]).T
        seconds, options = np.median(step), self.options
        rate = options.batch_size * options.unroll_steps / (seconds + np.median(wait))
        share = np.median(operations.utilisation(np.array(self.operations[_WARM_UP:]), step, of_product))
        ratio = seconds / np.median([own[-1] for own in first.seconds[_WARM_UP:]])
        print(
            f"{title}, vocabulary {options.n_tokens_vocab:,}: {rate:,.0f} tokens/s; utilisation {share:.0%}"
        )
        print(
            f"  step {seconds:.4f} s, {ratio:.2f} times the first's; data wait {np.median(wait):.4f} s; "
            f"first step {self.seconds[0][-1]:.1f} s"
        )
        if self.model_bytes:
            print(f"  GPU memory {(self.model_bytes + self.step_bytes) / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
