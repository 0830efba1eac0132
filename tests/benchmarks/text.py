"""The text that the benchmarks read where none is given, its vocabulary, and the flags of several."""

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import click

from bilm.cli.flags import key_and_value
from bilm.io.lines import read_lines
from bilm.options import PRESETS, Precision
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary
from bilm.vocabulary.vocabulary_file import choose_words
from examples.docstring_corpus import DEFAULT_SOURCES, build_corpus, find_source

WIKITEXT = Path("wikitext-2")
preset_flag = click.option("--preset", type=click.Choice(list(PRESETS)), default="small", show_default=True)
precisions_flag = click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=click.Choice([one.value for one in Precision]),
    default=["float32"],
    help="Several take turns.",
)
sentences_flag = click.option("--sentences", "n_sentences", default=5000, show_default=True)
set_flag = click.option(
    "--set", "changes", multiple=True, callback=lambda *own: dict(map(key_and_value, own[2]))
)
text_flag = click.option(
    "--text", type=click.Path(path_type=Path), help="[default: WikiText-2 or docstrings]"
)


def benchmark_text(directory: Path, part: str = "train") -> Path:
    """A file or a directory of sentences: ``wikitext-2`` where it is here, else the docstrings installed.

    Args:
        directory: where the docstrings may be written.
        part: ``train``, or ``valid`` or ``test``, which are the same of docstrings.
    """
    if (WIKITEXT / f"{part}.txt").is_file():
        return WIKITEXT / f"{part}.txt"
    corpus = directory / "docstrings"
    if not corpus.exists():
        build_corpus(corpus, [root for source in DEFAULT_SOURCES for root in find_source(source)])
    return corpus / ("train" if part == "train" else "heldout.txt")


def first_lines(n_sentences: int, text: Path | None, directory: Path) -> tuple[list[str], int]:
    """The first sentences of a text, and their number of words."""
    lines = read_lines(text or benchmark_text(directory, "valid"))
    sentences = [*islice(filter(None, map(str.split, lines)), n_sentences)]
    return [" ".join(words) for words in sentences], sum(map(len, sentences))


def words_of(files: Iterable[Path]) -> tuple[str, ...]:
    """The words of files, by descending count."""
    corpus = Counter(word for file in files for line in read_lines(file) for word in line.split())
    return choose_words(corpus, 1).words


def vocabulary_of(words: tuple[str, ...], size: int) -> UnicodeCharsVocabulary:
    """The first of the words, or all and as many others as are missing."""
    others = [f"\N{SECTION SIGN}{i}" for i in range(size - len(words))]
    return UnicodeCharsVocabulary.from_words([*words, *others][:size])
