"""Speed of testing with the full softmax beside the machine's own.

python -m tests.benchmarks.test --preset small
"""

import dataclasses
import tempfile
from itertools import islice
from pathlib import Path

import click
import keras
import numpy as np

from bilm.data.corpus import find_files
from bilm.data.pipeline import evaluation_batches
from bilm.io.background import prefetch
from bilm.models.language_model import LanguageModel
from bilm.options import PRESETS
from bilm.training.evaluation import Evaluator
from tests.benchmarks import operations
from tests.benchmarks.text import benchmark_text, preset_flag, text_flag, vocabulary_of_size, words_of


@click.command()
@preset_flag
@click.option("--batch-size", default=128, show_default=True)
@click.option("--vocab-size", default=18_000, show_default=True)
@click.option("--steps", default=10, show_default=True, help="Timed windows, after one that compiles.")
@text_flag
def main(preset: str, batch_size: int, vocab_size: int, steps: int, text: Path | None) -> None:
    """Print tokens/s (a token counted once, both directions tested) and utilisation."""
    options = dataclasses.replace(PRESETS[preset], batch_size=batch_size, n_tokens_vocab=vocab_size)
    with tempfile.TemporaryDirectory() as directory:
        files = find_files([text or benchmark_text(Path(directory))])
        stream = evaluation_batches(files, vocabulary_of_size(words_of(files), vocab_size), options)
        batches = list(islice(prefetch(stream), steps + 1))
    needed = [operations.window_operations(options, batch, vocab_size - 1).forward for batch in batches]
    keras.utils.set_random_seed(0)
    model, products = LanguageModel(options), [operations.time_products()]
    taken: list[operations.Seconds] = []
    start = operations.Seconds.now()

    def on_window(n_scored: int) -> None:
        nonlocal start
        taken.append(operations.Seconds.now().since(start))
        products.append(operations.time_products())
        start = operations.Seconds.now()

    Evaluator(model).evaluate(batches, on_window)
    shares = [operations.utilisation(*one) for one in zip(needed, taken, products[:-1], strict=True)]
    wall, processor = np.median(shares[1:], axis=0)
    seconds = np.median(taken[1:], axis=0)[0]
    rate = batch_size * options.unroll_steps / seconds
    print(f"peak: {operations.matrix_product_peak():.0f} GFLOP/s in float32 products of 2048 x 2048")
    print(
        f"{preset}, vocabulary {vocab_size:,}: {rate:,.0f} tokens/s; utilisation {wall:.0%}, by processor "
        f"time {processor:.0%}; first window {taken[0].wall:.1f} s"
    )


if __name__ == "__main__":
    main()
