"""Speed of a training step beside the machine's own: tokens/s and the share of the peak.

    python -m tests.benchmarks.train --preset small
    python -m tests.benchmarks.train --preset small --vocab-size 18000 --vocab-size 800000
    python -m tests.benchmarks.train --preset small --optimizer adagrad --optimizer muon

The vocabularies and optimizers take turns, so that a machine whose speed drifts is fair to all.
"""

import dataclasses
import resource
import tempfile
from collections import defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import click
import numpy as np

from bilm.cli.flags import key_and_value
from bilm.data.corpus import find_files
from bilm.data.pipeline import training_batches
from bilm.data.stream import Order
from bilm.io.background import prefetch
from bilm.models.language_model import LanguageModel
from bilm.options import PRESETS, Optimizer, Options
from bilm.training.trainer import Trainer
from tests.benchmarks import operations
from tests.benchmarks.text import benchmark_text, preset_flag, text_flag, vocabulary_of_size, words_of

_WARM_UP = 2


@click.command()
@preset_flag
@click.option("--batch-size", default=128, show_default=True)
@click.option("--vocab-size", "vocab_sizes", multiple=True, type=int, default=[18_000], show_default=True)
@click.option(
    "--optimizer",
    "optimizers",
    multiple=True,
    type=click.Choice([optimizer.value for optimizer in Optimizer]),
    default=[Optimizer.ADAGRAD.value],
    show_default=True,
)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="Of the options; repeatable.")
@click.option("--steps", default=20, show_default=True, help="Timed steps of each, after two of warm-up.")
@text_flag
def main(
    preset: str,
    batch_size: int,
    vocab_sizes: tuple[int, ...],
    optimizers: tuple[str, ...],
    changes: tuple[str, ...],
    steps: int,
    text: Path | None,
) -> None:
    """Print times, tokens/s (a token counted once, both directions trained) and utilisation."""
    with tempfile.TemporaryDirectory() as directory:
        files = find_files([text or benchmark_text(Path(directory))])
        words = words_of(files)
        options = PRESETS[preset].with_values({"batch_size": batch_size, **dict(map(key_and_value, changes))})
        runs = [
            Run(files, words, options.with_values({"optimizer": optimizer}), size)
            for optimizer, size in product(optimizers, vocab_sizes)
        ]
        for _ in range(steps + _WARM_UP):
            for run in runs:
                run.step()
        peak = operations.matrix_product_peak()
    print(f"peak: {peak:.0f} GFLOP/s in float32 products of 2048 x 2048; utilisation is beside products")
    print("timed with each step, by the clock and by processor time")
    for run in runs:
        run.report(f"{preset}, {run.options.optimizer.value}, vocabulary {run.size:,}", runs[0])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"most memory of the process: {memory:.2f} GiB")


class Run:
    """One model in training, and the seconds of its steps."""

    def __init__(self, files: tuple[Path, ...], words: tuple[str, ...], options: Options, size: int) -> None:
        vocabulary = vocabulary_of_size(words, size)
        self.size = size
        self.options = options = dataclasses.replace(options, n_tokens_vocab=size)
        self.trainer = Trainer(LanguageModel(options))
        order = Order(shuffle=True)
        self.batches = prefetch(training_batches(files, vocabulary, options, order))
        self.seconds: dict[str, list[operations.Seconds]] = defaultdict(list)
        self.operations: list[operations.Operations] = []

    def step(self) -> None:
        """Take a step of training; remember the seconds."""
        batches = self._timed("wait", lambda: next(self.batches)).parts
        self.seconds["product"].append(operations.time_products())
        self._timed("step", lambda: self.trainer.step(batches, len(self.operations) + 1))
        n_candidates = self.options.n_negative_samples_batch if self.options.use_sampling else self.size
        self.operations.append(operations.window_operations(self.options, batches[0], n_candidates))

    def _timed(self, name: str, job: Callable[[], Any]) -> Any:
        start = operations.Seconds.now()
        result = job()
        self.seconds[name].append(operations.Seconds.now().since(start))
        return result

    def median(self, name: str) -> operations.Seconds:
        """Of the steps after the warm-up."""
        return operations.Seconds(*np.median(self.seconds[name][_WARM_UP:], axis=0))

    def report(self, title: str, first: "Run") -> None:
        """Print the medians."""
        step, wait = self.median("step"), self.median("wait").wall
        rate = self.options.batch_size * self.options.unroll_steps / (step.wall + wait)
        ratio = step.processor / first.median("step").processor
        counted = zip(self.operations, self.seconds["step"], self.seconds["product"], strict=True)
        shares = [operations.utilisation(count.total, *seconds) for count, *seconds in counted]
        wall, processor = np.median(shares[_WARM_UP:], axis=0)
        needed = operations.Operations(*np.mean(self.operations[_WARM_UP:], axis=0))
        print(f"{title}: {rate:,.0f} tokens/s; utilisation {wall:.0%}, by processor time {processor:.0%}")
        print(
            f"  step {step.wall:.3f} s, processor time {step.processor:.3f} ({ratio:.2f} times the first's); "
            f"data wait {wait:.3f} s; first step {self.seconds['step'][0].wall:.1f} s"
        )
        print(f"  needed: {needed.forward / 1e9:.1f} GFLOP forward, {needed.backward / 1e9:.1f} backward")


if __name__ == "__main__":
    main()
