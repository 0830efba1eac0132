"""The text that the benchmarks read where none is given, and its vocabulary."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click

from bilm.data.corpus import read_sentences
from bilm.options import PRESETS
from bilm.vocabulary.file import choose_words
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary
from examples.docstring_corpus import DEFAULT_SOURCES, build_corpus, find_source

WIKITEXT = Path("wikitext-2")
preset_flag = click.option("--preset", type=click.Choice(list(PRESETS)), default="small", show_default=True)
text_flag = click.option(
    "--text",
    type=click.Path(path_type=Path),
    help="One sentence per line.  [default: WikiText-2 or docstrings]",
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


def words_of(files: Iterable[Path]) -> tuple[str, ...]:
    """The words of files, by descending count."""
    corpus = Counter(word for file in files for words in read_sentences(file) for word in words)
    return choose_words(corpus, 1).words


def vocabulary_of_size(words: tuple[str, ...], size: int) -> UnicodeCharsVocabulary:
    """The first of the words, or all and as many others as are missing."""
    others = [f"\N{SECTION SIGN}{i}" for i in range(size - len(words))]
    return UnicodeCharsVocabulary.from_words([*words, *others][:size])
