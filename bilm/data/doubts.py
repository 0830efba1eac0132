"""Signs that a text, or its vocabulary, is not what a model should be trained on."""

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING

import numpy as np

from bilm.io import PathLike
from bilm.io.lines import invisible_in, read_lines
from bilm.options.parameters import UnicodeForm
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.vocabulary.vocabulary_file import describe_disorder, describe_forms, describe_marks

if TYPE_CHECKING:
    from bilm.data.corpus import CorpusCounts

_N_LINES, _FEWEST_OF_FILE = 2000, 20
_LONG_LINE = 500  # words
_MANY_UNKNOWN = 0.25
_INSIDE_WORDS = "'’-"  # punctuation with which words of some languages end


def first_lines(files: Sequence[PathLike]) -> list[str]:
    """Return the first lines of each file, in all at most 2,000.

    Raises:
        DataError: as `read_lines`.
    """
    n_of_file = max(_FEWEST_OF_FILE, _N_LINES // len(files))
    return [*islice(chain.from_iterable(islice(read_lines(file), n_of_file) for file in files), _N_LINES)]


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
            f"{' '.join(longest)!r:.40}; put one sentence on a line, as `bilm prepare` does"
        )
    n_attached = sum(
        len(word) > 1 and word[-1] not in _INSIDE_WORDS and unicodedata.category(word[-1])[0] == "P"
        for word in words
    )
    if 2 * sum("\t" in line for line in lines) > len(lines):
        yield "most lines have tabs, as in tables and CoNLL files; put the words of a sentence on one line"
    elif n_attached > 0.05 * len(words):
        yield (
            f"{n_attached / len(words):.0%} of the words end with punctuation; tokenise the text, as `bilm "
            "prepare` does, so that a comma is a word"
        )
    if invisible := invisible_in("\n".join(lines)):
        found = ", ".join(f"{number:,} {name}" for name, number in invisible.items())
        yield f"characters that nobody sees, in {len(lines):,} lines: {found}; `bilm prepare` removes them"


def doubts_about_corpus(
    counts: "CorpusCounts", vocabulary: Vocabulary, lines: Sequence[str]
) -> Iterator[str]:
    """Yield a message, with a remedy, for each way in which a text or its vocabulary seems unsuitable.

    Args:
        counts: counts of the text.
        vocabulary: the vocabulary used for counting.
        lines: some lines of the text.
    """
    if counts.oov_rate > _MANY_UNKNOWN:
        yield (
            f"{counts.oov_rate:.0%} of the words are not in the vocabulary; are both of one language, and "
            f"the words separated and capitalised alike?{_other_form(vocabulary, lines)}"
        )
    marks = counts.word_counts[[vocabulary.bos, vocabulary.eos]]
    if n_marks := int(marks.sum()) - 2 * counts.n_sentences:
        yield describe_marks(n_marks)
    if vocabulary.unicode_form is None and (message := describe_forms(vocabulary.words)):
        yield message
    special = {vocabulary.bos, vocabulary.eos, vocabulary.unk}
    by_rank = np.delete(counts.word_counts, [number for number in special if number >= 0])
    if disorder := describe_disorder(by_rank):
        yield disorder
    yield from doubts_about_lines(lines)


def _other_form(vocabulary: Vocabulary, lines: Sequence[str]) -> str:
    """Return what would help if the words were known in another normal form."""
    words = [*chain.from_iterable(map(str.split, lines))]
    n_unknown: dict[UnicodeForm | None, int] = {None: int((vocabulary.lookup(words) < 0).sum())}
    for form in (UnicodeForm.NFC, UnicodeForm.NFD):
        n_unknown[form] = int((vocabulary.lookup([*map(form.of_word, words)]) < 0).sum())
    best = min(n_unknown, key=lambda form: n_unknown[form])
    if n_unknown[best] > 0.9 * n_unknown[None]:
        return ""
    return (
        f" In the normal form {best}, {n_unknown[best] / len(words):.0%} would be unknown: `bilm prepare "
        f"--tokens --form {best}` writes the text in it"
    )
