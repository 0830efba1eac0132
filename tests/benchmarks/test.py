"""Speed of testing with the full softmax beside the machine's own.

python -m tests.benchmarks.test --preset small
python -m tests.benchmarks.test --preset small --precision float32 --precision bfloat16
"""

import dataclasses
import tempfile
import time
from pathlib import Path

import click
import keras
import numpy as np

from bilm.data.stream import Sentences, encode_sentences
from bilm.embedding.scoring import Scorer
from bilm.io.lines import read_lines
from bilm.io.shards import find_files
from bilm.models.language_model import LanguageModel
from bilm.options import PRESETS
from tests.benchmarks import operations
from tests.benchmarks.text import (
    benchmark_text,
    precisions_flag,
    preset_flag,
    text_flag,
    vocabulary_of,
    words_of,
)


@click.command()
@preset_flag
@click.option("--vocab-size", default=18_000, show_default=True)
@precisions_flag
@click.option("--tokens", default=50_000, show_default=True, help="Tokens of the text, from its beginning.")
@text_flag
def main(preset: str, vocab_size: int, precisions: tuple[str, ...], tokens: int, text: Path | None) -> None:
    """Print tokens/s (a token counted once, both directions tested) and utilisation."""
    options = dataclasses.replace(PRESETS[preset], n_tokens_vocab=vocab_size)
    with tempfile.TemporaryDirectory() as directory:
        files = find_files([text or benchmark_text(Path(directory))])
        vocabulary = vocabulary_of(words_of(files), vocab_size)
        part = encode_sentences(read_lines(files[0]), vocabulary, max_tokens=tokens)
    scorers, times, products = [], [], []
    for precision in precisions:
        operations.allow_tf32(precision)
        keras.utils.set_random_seed(0)
        scorers.append(Scorer(LanguageModel(options, precision), vocabulary))
        n_tokens = scorers[-1].evaluate([part]).n_tokens  # compiled
    for _ in range(3):
        products.append(operations.product_seconds())
        times.append([seconds_of(scorer, part, own) for scorer, own in zip(scorers, precisions, strict=True)])
    lengths = np.array([len(word.encode()) + 2 for word in part.words_of(np.unique(part.ids), vocabulary)])
    needed = operations.word_operations(options, lengths) + operations.lstm_operations(options, n_tokens)
    needed += operations.softmax_operations(options, n_tokens, vocab_size)
    print(f"{operations.peak()}\n{preset}, vocabulary {vocab_size:,}")
    for precision, seconds in zip(precisions, np.median(times, axis=0), strict=True):
        share = operations.utilisation(needed[0], seconds, np.median(products))
        print(f"{precision}: {n_tokens / seconds:,.0f} tokens/s; utilisation {share:.0%}")


def seconds_of(scorer: Scorer, part: Sentences, precision: str) -> float:
    """The seconds of scoring all sentences."""
    operations.allow_tf32(precision)
    start = time.perf_counter()
    scorer.evaluate([part])
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
