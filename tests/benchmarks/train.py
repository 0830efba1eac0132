"""Speed of a training step, by vocabulary size; ratios in one run.

    python -m tests.benchmarks.train --preset small --vocab-size 18000 --vocab-size 800000

Steps of the different vocabularies take turns, so that a machine whose speed drifts is fair to all.
"""

import dataclasses
import time
from pathlib import Path

import click
import numpy as np
import tensorflow as tf

from bilm.batches import length_buckets, training_batches
from bilm.corpus import find_files, read_sentences
from bilm.language_model import LanguageModel
from bilm.options import PRESETS, Options
from bilm.training import Trainer
from bilm.vocab import UnicodeCharsVocabulary
from bilm.vocab_build import build_vocabulary


@click.command()
@click.option("--preset", type=click.Choice(list(PRESETS)), default="small", show_default=True)
@click.option("--batch-size", default=128, show_default=True)
@click.option(
    "--vocab-size", "vocab_sizes", multiple=True, type=int, default=[18_000, 800_000], show_default=True
)
@click.option("--steps", default=10, show_default=True, help="Timed steps of each, after two of warm-up.")
@click.option("--text", type=click.Path(path_type=Path), help="One sentence a line.  [default: WikiText-2]")
def main(preset: str, batch_size: int, vocab_sizes: tuple[int, ...], steps: int, text: Path | None) -> None:
    """Print median step times, tokens/s (a token counted once, both directions trained) and ratios."""
    files = find_files([text or Path("../shared/data/wikitext-2/train.txt")])
    words = build_vocabulary(read_sentences(files[0])).words
    print(f"matrix product: {matrix_product_peak():.0f} GFLOP/s (float32, 2048 x 2048)")
    runs = [
        Run(files, words, dataclasses.replace(PRESETS[preset], batch_size=batch_size), n) for n in vocab_sizes
    ]
    for _ in range(steps + 2):
        for run in runs:
            run.step()
    n_tokens = batch_size * runs[0].trainer.options.unroll_steps
    first = np.median(runs[0].seconds[2:])
    for run, size in zip(runs, vocab_sizes, strict=True):
        seconds = np.array(run.seconds[2:])
        print(
            f"{preset}, vocabulary {size:,}: first step {run.seconds[0]:.1f} s, then median "
            f"{np.median(seconds):.3f} s (least {seconds.min():.3f}), {n_tokens / np.median(seconds):,.0f} "
            f"tokens/s, {np.median(seconds) / first:.2f} times the first"
        )


class Run:
    """One model in training, and the seconds of its steps."""

    def __init__(self, files: tuple[Path, ...], words: tuple[str, ...], options: Options, size: int) -> None:
        filler = [f"\N{SECTION SIGN}{i}" for i in range(size - len(words))]
        vocabulary = UnicodeCharsVocabulary.from_words([*words, *filler][:size])
        options = dataclasses.replace(options, n_tokens_vocab=size)
        cnn = options.char_cnn
        self.trainer = Trainer(LanguageModel(options), length_buckets(50, cnn.max_width))
        self.batches = training_batches(
            files,
            vocabulary,
            batch_size=options.batch_size,
            unroll_steps=options.unroll_steps,
            bidirectional=True,
            max_filter_width=cnn.max_width,
        )
        self.seconds: list[float] = []

    def step(self) -> None:
        batch = next(self.batches).parts
        started = time.perf_counter()
        self.trainer.step(batch, len(self.seconds) + 1).sums.numpy()
        self.seconds.append(time.perf_counter() - started)


def matrix_product_peak(n: int = 2048, repeats: int = 20) -> float:
    """Best of several products, in GFLOP/s."""
    matrix = tf.random.normal([n, n])
    best = np.inf
    for _ in range(repeats):
        started = time.perf_counter()
        tf.matmul(matrix, matrix).numpy()
        best = min(best, time.perf_counter() - started)
    return 2 * n**3 / best / 1e9


if __name__ == "__main__":
    main()
