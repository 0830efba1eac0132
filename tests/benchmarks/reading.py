"""Processor time of counting and encoding a text, with a normal form and without.

    python -m tests.benchmarks.reading --text TEXT

The text is read as it is, and in the other form if it has accents.
"""

import tempfile
import time
import unicodedata
from collections import Counter
from pathlib import Path

import click

from bilm.data.corpus import count_corpus, count_words, take_lines
from bilm.data.stream import Order, sentence_stream
from bilm.io.lines import read_lines
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.vocabulary.vocabulary_file import choose_words
from tests.benchmarks.text import benchmark_text, text_flag

_ROUNDS = 5


@click.command()
@text_flag
def main(text: Path | None) -> None:
    """Print tokens/s and the ratio for each form of the text."""
    with tempfile.TemporaryDirectory() as directory:
        source = text or benchmark_text(Path(directory), "valid")
        lines = source.read_text().splitlines()
        for form in ("NFC", "NFD"):
            file = Path(directory) / f"{form}.txt"
            file.write_text(unicodedata.normalize(form, "\n".join(lines)))
            counts: Counter[str] = count_words(map(str.split, read_lines(file)))
            take_lines(counts)
            composed = Counter({unicodedata.normalize("NFC", word): n for word, n in counts.items() if n > 1})
            seconds: dict[str | None, list[float]] = {None: [], "NFC": []}
            for _ in range(_ROUNDS):
                for unicode_form, times in seconds.items():
                    vocabulary = Vocabulary.from_words(choose_words(composed.copy(), 1).words)
                    vocabulary.unicode_form = unicode_form
                    start = time.process_time()
                    n_tokens = count_corpus([file], vocabulary).n_tokens
                    for _block in sentence_stream([file], vocabulary, Order(), endless=False):
                        pass
                    times.append(time.process_time() - start)
            plain, formed = (min(times) for times in seconds.values())
            click.echo(
                f"text in {form}: {n_tokens / plain:,.0f} tokens/s of one core without a form, "
                f"{plain / formed:.2f} of that with NFC"
            )


if __name__ == "__main__":
    main()
