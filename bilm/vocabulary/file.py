"""The vocabulary file: one word per line; the id of a word is the number of its line from 0.

It starts with ``<S>``, ``</S>``, ``<UNK>``, and the words follow by descending frequency, because the
sampled softmax draws its classes from a log-uniform distribution over ids.
"""

from __future__ import annotations

import enum
import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from bilm.errors import DataError, OptionsError, VocabularyError, require_positive
from bilm.io import PathLike, atomic, messages, outputs, zip_archive
from bilm.io.lines import NotText, decode, decompressed, unify_line_ends

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"
SPECIAL_TOKENS = (BOS, EOS, UNK)
SKIPPED_LINE = "!!!MAXTERMID"
EMPTY = f"the vocabulary file is empty; it needs {', '.join(SPECIAL_TOKENS)}"


def vocabulary_lines(data: bytes, name: str) -> list[str]:
    """Return the lines of a vocabulary file without their ends; a byte order mark is dropped.

    Args:
        data: what is in the file: plain, gzip, xz or zstandard, recognised by content.
        name: what to call it in an error.

    Raises:
        VocabularyError: the file is damaged or empty, or is not UTF-8.
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
        VocabularyError: the compressed data is damaged, or becomes more than a vocabulary does.
    """
    most = zip_archive.most_expanded(len(data))
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
        words: in id order, the special tokens included.
        path: replaced if it exists.

    Raises:
        VocabularyError: a word could not be read back unchanged (empty, with whitespace inside, not
            Unicode text), or the file cannot be written.
        DataError: the path is not that of a file, or a dangling symlink.
    """
    path, lines = Path(path), []
    for word in words:
        is_text = word.encode("utf-8", "ignore").decode() == word
        if word.split() != [word] or word == SKIPPED_LINE or not is_text:
            raise VocabularyError(f"{path}: {messages.quoted(word)} cannot be a word of a vocabulary file")
        lines.append(f"{word}\n")
    with (
        messages.os_errors_as(VocabularyError, f"{path}: cannot be written"),
        atomic.replacing(path) as temporary,
    ):
        temporary.write_bytes("".join(lines).encode())


@dataclass(frozen=True)
class VocabularyCounts:
    """A vocabulary built from a corpus.

    Attributes:
        words: in file order, the three special tokens first.
        counts: int64 (len(words),), occurrences. ``<S>`` and ``</S>`` count once a sentence, and
            ``<UNK>`` once for each word left out; literal ones in the text add to that.
        n_tokens: words of the corpus, without sentence marks.
        n_types: distinct words of the corpus.
        coverage: fraction of the corpus's words that are in the vocabulary.
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
        corpus: how often each word occurs; used up.
        n_sentences: sentences, without empty ones.
        min_count: leave out words that occur less often.
        max_size: maximum number of words, the three special tokens included.

    Raises:
        OptionsError: `min_count` is below 1 or `max_size` below 4.
        DataError: there are no words.

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


# Unicode's Cc without those that are whitespace.
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f]")


class Severity(enum.Enum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One remark about a vocabulary file.

    Attributes:
        severity: files with errors cannot be used; warnings make the model worse.
        line: number of the first line concerned, from 1, or None.
        message: what it is.
    """

    severity: Severity
    line: int | None
    message: str


def check_vocabulary(
    path: PathLike, sentences: Iterable[Sequence[str]] | None = None, max_word_length: int = 50
) -> list[Finding]:
    """Check a vocabulary file, and how it fits a corpus; all problems, not only the first.

    Args:
        path: the file.
        sentences: words of each sentence of the corpus that the model is to be trained on, if any.
        max_word_length: characters of a row, the two word marks included.

    Returns:
        Findings about the file, then about the corpus.

    Raises:
        VocabularyError: the file is missing or may not be read.
        DataError: from reading the sentences.
    """
    data = vocabulary_bytes(outputs.read_file(path, VocabularyError), os.fspath(path))
    findings = []
    try:
        text = decode(data, "")
    except NotText as problem:
        findings.append(Finding(Severity.ERROR, problem.line, problem.message))
        text = data.decode("utf-8-sig", "replace")
    if not text:
        return [Finding(Severity.ERROR, None, EMPTY)]
    lines = split_lines(text)
    findings += [*_check_lines(lines), *_check_words(lines, max_word_length)]
    return findings if sentences is None else [*findings, *_check_corpus(lines, sentences)]


def require_valid(name: str, lines: Sequence[str]) -> None:
    """Refuse lines that are not a vocabulary.

    Raises:
        VocabularyError: lists everything that is wrong.
    """
    problems = [finding for finding in _check_lines(lines) if finding.severity is Severity.ERROR]
    if problems:
        texts = (f"line {one.line}: {one.message}" if one.line else one.message for one in problems)
        raise VocabularyError(f"{name}: {'; '.join(texts)}")


def _check_lines(lines: Sequence[str]) -> Iterator[Finding]:
    """Find missing, misplaced and repeated tokens and blank lines."""
    numbered = [(line.strip(), number) for number, line in enumerate(lines, start=1)]
    first_line = dict(reversed(numbered))
    missing = [token for token in SPECIAL_TOKENS if token not in first_line]
    places = ", ".join(f"{token} on line {first_line.get(token)}" for token in SPECIAL_TOKENS)
    if missing == [UNK]:
        message = f"no {UNK}: a text with a word that is not in the vocabulary cannot be used"
        yield Finding(Severity.WARNING, None, message)
    elif missing:
        message = f"missing special tokens: {', '.join(missing)} (a vocabulary starts with <S>, </S>, <UNK>)"
        yield Finding(Severity.ERROR, None, message)
    elif [first_line[token] for token in SPECIAL_TOKENS] != [1, 2, 3]:
        message = f"the special tokens are not the first three lines in the order <S>, </S>, <UNK>: {places}"
        yield Finding(Severity.WARNING, None, message)
    repeated = [one for one in numbered if first_line[one[0]] != one[1] and one[0] not in ("", SKIPPED_LINE)]
    if repeated:
        word, number = repeated[0]
        more = f", and {len(repeated) - 1} more lines repeat a word" if len(repeated) > 1 else ""
        message = f"{messages.quoted(word)} is on lines {first_line[word]} and {number}{more}"
        yield Finding(Severity.ERROR, number, message)
    if "" in first_line:
        n_blank = sum(not word for word, _ in numbered)
        more = f", and {n_blank - 1} more lines are" if n_blank > 1 else ""
        yield Finding(Severity.ERROR, first_line[""], f"the line is blank{more}")


def _check_words(lines: Sequence[str], max_word_length: int) -> Iterator[Finding]:
    """Find whitespace around or inside words, control characters, and words longer than a row."""
    n_bytes = max_word_length - 2
    words = [line.strip() for line in lines]
    around = [bool(word) and word != line for word, line in zip(words, lines, strict=True)]
    inside = [len(word.split()) > 1 for word in words]
    control = [_CONTROL_CHARACTER.search(word) is not None for word in words]
    long = [len(word.encode()) > n_bytes for word in words]
    for are_so, severity, text in (
        (around, Severity.WARNING, "whitespace before or after the word, which is ignored"),
        (inside, Severity.WARNING, "whitespace inside the word, which no token of a corpus has"),
        (control, Severity.WARNING, "NUL or other control characters, usually a sign of damaged text"),
        (long, Severity.INFO, f"more than {n_bytes} bytes; the rest of the word is not read"),
    ):
        if any(are_so):
            yield _of_lines(severity, text, lines, [k for k, is_so in enumerate(are_so, start=1) if is_so])


def _of_lines(severity: Severity, text: str, lines: Sequence[str], numbers: Sequence[int]) -> Finding:
    """A finding that counts lines and shows the first few."""
    first = ", ".join(f"line {number} {messages.quoted(lines[number - 1])}" for number in numbers[:3])
    return Finding(severity, numbers[0], f"{text} ({len(numbers)} in all: {first})")


def _check_corpus(lines: Sequence[str], sentences: Iterable[Sequence[str]]) -> Iterator[Finding]:
    """Compare a vocabulary with a corpus: unknown words, unseen words, order."""
    counts = Counter(chain.from_iterable(sentences))
    n_words = counts.total()
    if not n_words:
        yield Finding(Severity.WARNING, None, "the corpus is empty")
        return
    place = {line.strip(): number for number, line in enumerate(lines, start=1)}
    n_oov = n_words - sum(counts[word] for word in place)
    message = f"{n_oov:,} of {n_words:,} words of the corpus are out of vocabulary ({n_oov / n_words:.2%})"
    yield Finding(Severity.INFO, None, message)
    if n_oov and UNK not in place:
        word = next(word for word in counts if word not in place)
        message = f"{word[:60]!r} of the corpus is not in the vocabulary, which has no {UNK}"
        yield Finding(Severity.ERROR, None, message)
    if n_marks := counts[BOS] + counts[EOS]:
        yield Finding(Severity.WARNING, None, describe_marks(n_marks))
    ordered = [(word, number) for word, number in place.items() if word and word not in SPECIAL_TOKENS]
    unseen = [number for word, number in ordered if word not in counts]
    if unseen:
        message = f"words never seen in the corpus, {len(unseen) / len(ordered):.1%} of the vocabulary"
        yield _of_lines(Severity.INFO, message, lines, unseen)
    if disorder := describe_disorder(np.array([counts[word] for word, _ in ordered], np.int64)):
        yield Finding(Severity.WARNING, None, disorder)


def describe_marks(n_marks: int) -> str:
    """Say that so many words of a text are sentence marks."""
    return f"{n_marks:,} words of the text are <S> or </S>, which are added to every sentence; remove them"


def describe_disorder(counts: np.ndarray) -> str | None:
    """Say that a vocabulary is not sorted by frequency, if a text shows it; a short text may.

    Sorted by frequency, the first half of a vocabulary covers nearly all words of any text of its kind; in
    random or alphabetical order it covers about half of them.

    Args:
        counts: (n words,), occurrences in the text of each word of the vocabulary, special words left out.
    """
    covered = counts[: len(counts) // 2].sum() / max(counts.sum(), 1)
    if len(counts) < 1000 or covered >= 0.7 or not counts.any():
        return None
    return (
        f"the first half of the vocabulary covers only {covered:.0%} of its words in the text; the sampled "
        "softmax assumes that frequent words come first, as `bilm vocab build` sorts them"
    )
