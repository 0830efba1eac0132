"""The vocabulary file: one word per line; the id of a word is the number of its line from 0.

It starts with ``<S>``, ``</S>``, ``<UNK>``, and the words follow by descending frequency, because the
sampled softmax draws its classes from a log-uniform distribution over ids.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bilm.errors import DataError, OptionsError, VocabularyError, require_positive
from bilm.io import PathLike
from bilm.io.atomic import replacing
from bilm.io.lines import NotText, decode, decompressed, unify_line_ends
from bilm.io.messages import os_errors_as, quoted
from bilm.io.zip_archive import most_expanded

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"
SPECIAL_TOKENS = (BOS, EOS, UNK)
SKIPPED_LINE = "!!!MAXTERMID"
EMPTY = f"the vocabulary file is empty; it needs {', '.join(SPECIAL_TOKENS)}"


def vocabulary_lines(data: bytes, name: str) -> list[str]:
    """Return the lines of a vocabulary file without their ends; a byte order mark is dropped.

    Args:
        data: What is in the file: plain, gzip, xz or zstandard, recognised by content.
        name: What to call it in an error.

    Raises:
        VocabularyError: The file is damaged or empty, or is not UTF-8.
    """
    try:
        text = decode(vocabulary_bytes(data, name), name)
    except NotText as problem:
        raise VocabularyError(str(problem)) from None
    if not text:
        raise VocabularyError(f"{name}: {EMPTY}")
    return split_lines(text)


def vocabulary_bytes(data: bytes, name: str) -> bytes:
    r"""Return what `vocabulary_lines` splits: decompressed, every line end made ``\n``.

    Raises:
        VocabularyError: The compressed data is damaged, or becomes more than a vocabulary does.
    """
    most = most_expanded(len(data))
    try:
        with decompressed(io.BytesIO(data), name) as stream:
            data = stream.read(most + 1)
    except DataError as error:
        raise VocabularyError(str(error)) from error
    if len(data) > most:
        raise VocabularyError(f"{name}: decompresses to more than {most:,} bytes; this is not a vocabulary")
    return unify_line_ends(data)


def split_lines(text: str) -> list[str]:
    r"""Split text at ``\n`` only."""
    return text.removesuffix("\n").split("\n")


def write_vocabulary(words: Iterable[str], path: PathLike) -> None:
    """Write a vocabulary file, whole or not at all.

    Args:
        words: In id order, the special tokens included.
        path: Replaced if it exists.

    Raises:
        VocabularyError: A word could not be read back unchanged (empty, with whitespace inside, not
            Unicode text), or the file cannot be written.
        DataError: the path is not that of a file, or a dangling symlink.
    """
    path, lines = Path(path), []
    for word in words:
        is_text = word.encode("utf-8", "ignore").decode() == word
        if word.split() != [word] or word == SKIPPED_LINE or not is_text:
            raise VocabularyError(f"{path}: {quoted(word)} cannot be a word of a vocabulary file")
        lines.append(f"{word}\n")
    with os_errors_as(VocabularyError, f"{path}: cannot be written"), replacing(path) as temporary:
        temporary.write_bytes("".join(lines).encode())


@dataclass(frozen=True)
class VocabularyCounts:
    """A vocabulary built from a corpus.

    Attributes:
        words: In file order, the three special tokens first.
        counts: int64 (len(words),), occurrences. ``<S>`` and ``</S>`` count once a sentence, and
            ``<UNK>`` once for each word left out; literal ones in the text add to that.
        n_tokens: Words of the corpus, without sentence marks.
        n_types: Distinct words of the corpus.
        coverage: Fraction of the corpus's words that are in the vocabulary.
    """

    words: tuple[str, ...]
    counts: np.ndarray
    n_tokens: int
    n_types: int
    coverage: float


def choose_words(
    corpus: Counter[str], n_sentences: int, min_count: int = 1, max_size: int | None = None
) -> VocabularyCounts:
    """Choose the words of a vocabulary: by descending count, equal counts by code point.

    Args:
        corpus: How often each word occurs; used up.
        n_sentences: Sentences, without empty ones.
        min_count: Leave out words that occur less often.
        max_size: Maximum number of words, the three special tokens included.

    Raises:
        OptionsError: `min_count` is below 1 or `max_size` below 4.
        DataError: There are no words.

    Example:
        >>> built = choose_words(Counter("the river and the sea".split()), 1, min_count=2)
        >>> built.words
        ('<S>', '</S>', '<UNK>', 'the')
        >>> built.coverage
        0.4
    """
    require_positive(min_count=min_count)
    if max_size is not None and max_size <= len(SPECIAL_TOKENS):
        raise OptionsError(f"max_size is {max_size}; it counts the 3 special tokens and must be at least 4")
    if not corpus:
        raise DataError("the corpus is empty: there are no words to build a vocabulary from")
    n_tokens, n_types = corpus.total(), len(corpus)
    literal = [corpus.pop(token, 0) for token in SPECIAL_TOKENS]
    corpus.pop(SKIPPED_LINE, None)  # readers of the file skip such a line
    kept = [(-count, word) for word, count in corpus.items() if count >= min_count]
    kept.sort()
    if max_size is not None:
        del kept[max_size - len(SPECIAL_TOKENS) :]
    covered = sum(literal) - sum(count for count, _ in kept)
    specials = [literal[0] + n_sentences, literal[1] + n_sentences, literal[2] + n_tokens - covered]
    return VocabularyCounts(
        words=(*SPECIAL_TOKENS, *(word for _, word in kept)),
        counts=np.array(specials + [-count for count, _ in kept], np.int64),
        n_tokens=n_tokens,
        n_types=n_types,
        coverage=covered / n_tokens,
    )
