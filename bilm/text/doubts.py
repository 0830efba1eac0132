"""Signs that a text is not one sentence of words on each line."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from bilm.io import PathLike, in_groups
from bilm.io.lines import invisible_in, read_lines

_N_LINES, _FEWEST_OF_FILE, _MOST_CHARACTERS = 2000, 20, 1 << 22
_LONG_LINE = 500  # words
_INSIDE_WORDS = "'’-"  # punctuation with which words of some languages end
_FEWEST_ROWS = 5
_STOP, _STOP_APART = re.compile(r"[.,。，、](\s|$)"), re.compile(r"\s[.,。，、](\s|$)")
_MISREAD = re.compile("Ã ?[©¨³¶¼¤±§]|â ?€")  # of é è ó ö ü ä ñ ç, and of quotation marks and dashes
_TAG = re.compile(r"< ?/ ?(?!S\b)\w+ ?>")  # that closes an element


def first_lines(files: Sequence[PathLike]) -> list[str]:
    """Return the first lines of each file, in all at most 2,000, or four million characters.

    Raises:
        DataError: as `read_lines`.
    """
    n_of_file = max(_FEWEST_OF_FILE, _N_LINES // len(files))
    lines = islice(chain.from_iterable(islice(read_lines(file), n_of_file) for file in files), _N_LINES)
    return next(in_groups(lines, len, _MOST_CHARACTERS), [])


def most_have_tabs(lines: Sequence[str]) -> bool:
    """Return whether most lines have tabs, as in a table."""
    return 2 * sum("\t" in line for line in lines) > len(lines)


def are_rows(lines: Sequence[str]) -> bool:
    """Return whether most lines have tabs, or the same number of semicolons or commas, as in a table."""
    if len(lines) < _FEWEST_ROWS or most_have_tabs(lines):
        return most_have_tabs(lines)
    commonest = (Counter(line.count(mark) for line in lines).most_common(1)[0] for mark in ";,")
    return any(n_marks >= 2 and 2 * n_lines > len(lines) for n_marks, n_lines in commonest)


def are_tokenised(lines: Sequence[str]) -> bool:
    """Return whether full stops and commas stand apart in most lines that have any."""
    n_marked = sum(_STOP.search(line) is not None for line in lines)
    return 2 * sum(_STOP_APART.search(line) is not None for line in lines) > n_marked > 0


def doubts_about_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield a message, with a remedy, for each way in which lines are not one sentence of words each.

    Args:
        lines: some lines of the text.
    """
    sentences = [*map(str.split, lines)]
    words = [*chain.from_iterable(sentences)]
    longest = max(sentences, key=len, default=[])
    if sum(len(sentence) for sentence in sentences if len(sentence) > _LONG_LINE) > 0.01 * len(words):
        yield (
            f"there are lines of more than {_LONG_LINE} words, the longest of {len(longest):,}, which begins "
            f"{' '.join(longest)[:40]!r}; a line should be one sentence"
        )
    n_attached = sum(
        word[-1] not in _INSIDE_WORDS
        and unicodedata.category(word[-1])[0] == "P"
        and any(map(str.isalnum, word))
        for word in words
    )
    if most_have_tabs(lines):
        yield "most lines have tabs, as in tables and CoNLL files; put the words of a sentence on one line"
    elif n_attached > 0.05 * len(words):
        yield (
            f"{n_attached / len(words):.0%} of the words end with punctuation; tokenise the text, as `bilm "
            "prepare` does, so that a comma is a word"
        )
    if sum(_MISREAD.search(line) is not None for line in lines) > 0.001 * len(lines):
        yield "the text has letters such as Ã© for é; read the original as UTF-8 and save it again"
    if sum(_TAG.search(line) is not None for line in lines) > 0.05 * len(lines):
        yield "the text has markup tags; remove them"
    if invisible := invisible_in("\n".join(lines)):
        found = ", ".join(f"{number:,} {name}" for name, number in invisible.items())
        yield f"the text has {found}; `bilm prepare` removes invisible characters"
