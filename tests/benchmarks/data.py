"""Speed of the input pipeline alone, in tokens/s on one core, from warm files.

    python -m tests.benchmarks.data --vocab-size 33280 --vocab-size 800000

Every stage is timed with all those before it; the stages take turns, so that a machine whose speed
drifts is fair to all, and the fastest of their rounds counts.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import click

from bilm.data.corpus import count_corpus, find_files
from bilm.data.pipeline import evaluation_batches, training_batches
from bilm.data.position import Order
from bilm.data.stream import sentence_stream
from bilm.data.windows import Window, pack_windows
from bilm.io.lines import read_lines
from bilm.options import CharCNNOptions, LSTMOptions, Options
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary
from tests.benchmarks.text import benchmark_text, vocabulary_of_size, words_of


@click.command()
@click.option("--batch-size", default=128, show_default=True)
@click.option("--unroll-steps", default=20, show_default=True)
@click.option("--max-filter-width", default=7, show_default=True)
@click.option("--vocab-size", "sizes", multiple=True, type=int, default=[33_280, 800_000], show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--text", type=click.Path(path_type=Path), help="[default: WikiText-2, else docstrings]")
def main(
    batch_size: int, unroll_steps: int, max_filter_width: int, sizes: tuple[int, ...], rounds: int, text: Path
) -> None:
    """Print tokens/s of counting, and of reading as far as sentences, windows and batches."""
    with tempfile.TemporaryDirectory() as directory:
        files = find_files(text or benchmark_text(Path(directory)))
        words = words_of(files)
        for size in sizes:
            vocabulary = vocabulary_of_size(words, size)
            measure(files, vocabulary, batch_size, unroll_steps, max_filter_width, rounds)


def measure(
    files: tuple[Path, ...],
    vocabulary: UnicodeCharsVocabulary,
    n_rows: int,
    n_steps: int,
    max_filter_width: int,
    rounds: int,
) -> None:
    """Time an epoch of every stage and print its best."""
    n_tokens = count_corpus(files, vocabulary).n_tokens
    options = Options(
        lstm=LSTMOptions(1, 1),
        char_cnn=CharCNNOptions(((max_filter_width, 1),)),
        bidirectional=True,
        batch_size=n_rows,
        unroll_steps=n_steps,
    )
    order = Order(len(files), shuffle=True)
    n_windows = 97 * n_tokens // (100 * n_rows * n_steps)  # short of where another epoch would be read

    def windows() -> Iterator[Window]:
        blocks = sentence_stream(files, vocabulary, order, endless=False)
        shape = {"n_rows": n_rows, "n_steps": n_steps, "bidirectional": True, "tail": "drop"}
        return pack_windows(blocks, vocabulary, **shape)

    stages: dict[str, Callable[[], object]] = {
        "counting": partial(count_corpus, files, vocabulary),
        "lines": lambda: drain(line for path in files for line in read_lines(path)),
        "sentences": lambda: drain(sentence_stream(files, vocabulary, order, endless=False)),
        "windows": lambda: drain(windows()),
        "training": lambda: drain(islice(training_batches(files, vocabulary, options, order), n_windows)),
        "evaluation": lambda: drain(evaluation_batches(files, vocabulary, options)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in stages}
    for _ in range(rounds):
        for name, run in stages.items():
            started = time.process_time()
            run()
            seconds[name].append(time.process_time() - started)
    print(f"\nvocabulary {vocabulary.size:,}, {n_tokens:,} tokens, batch {n_rows} x {n_steps}")
    for name, times in seconds.items():
        best = min(times) / n_tokens
        print(f"{name:>10}  {1 / best:12,.0f} tokens/s  {1e9 * best:6.0f} ns a token")


def drain(items: Iterator[object]) -> None:
    """Go through an iterator."""
    for _ in items:
        pass


if __name__ == "__main__":
    main()
