"""The text that the benchmarks read where none is given."""

from pathlib import Path

from examples.docstring_corpus import DEFAULT_SOURCES, build_corpus, find_source

WIKITEXT = Path("../shared/data/wikitext-2")


def benchmark_text(directory: Path, part: str = "train") -> Path:
    """A file or a directory of sentences: WikiText-2 where it is, else the docstrings installed here.

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
