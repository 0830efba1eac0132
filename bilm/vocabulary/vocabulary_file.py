"""The vocabulary file: one word per line; the id of a word is its line number, from 0.

The file starts with ``<S>``, ``</S>`` and ``<UNK>``. The words follow by descending frequency, because the
sampled softmax draws classes from a log-uniform distribution over ids.
"""

import io
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bilm.errors import DataError, OptionsError, VocabularyError, require_positive
from bilm.io import PathLike, archives
from bilm.io.lines import decode, decompressed, invisible_in, unify_line_ends
from bilm.options.parameters import UnicodeForm

_LOG = logging.getLogger(__name__)

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"
SPECIAL_TOKENS = (BOS, EOS, UNK)
SKIPPED_LINE = "!!!MAXTERMID"


def vocabulary_words(data: bytes, name: str, validate: bool) -> list[str]:
    """Return the words of a vocabulary file in id order.

    Args:
        data: content of the file: plain, gzip, xz or zstandard, recognised by content.
        name: name of the file in errors.
        validate: refuse missing sentence marks, and warn of repeated words and blank lines.

    Raises:
        VocabularyError: the file is damaged or empty, is not UTF-8, or fails the validation.
    """
    lines = _vocabulary_lines(data, name)
    if validate:
        for finding in _check_marks(lines):
            if finding.severity == "error":
                raise VocabularyError(f"{name}: {finding.message}")
        for finding in _check_rows(lines):
            _LOG.warning("%s: %s", name, finding.message)
    return [word for word in map(str.strip, lines) if word != SKIPPED_LINE]


def _vocabulary_lines(data: bytes, name: str) -> list[str]:
    """Return the lines of a vocabulary file.

    Raises:
        VocabularyError: the compressed data is damaged, or expands to more than a vocabulary can have; or the
            file is empty or not UTF-8.
    """
    most = archives.most_expanded(len(data))
    try:
        with decompressed(io.BytesIO(data), name) as stream:
            content = stream.read(most + 1)
        if len(content) > most:
            raise DataError(f"{name}: decompresses to more than {most:,} bytes; this is not a vocabulary")
        text = decode(unify_line_ends(content), name)
    except DataError as error:
        raise VocabularyError(str(error)) from error
    if not text:
        raise VocabularyError(f"{name}: the vocabulary file is empty; it needs {', '.join(SPECIAL_TOKENS)}")
    return text.removesuffix("\n").split("\n")


def vocabulary_text(words: Iterable[str], path: PathLike) -> bytes:
    """Return the content of a vocabulary file; `path` is its name in errors.

    Raises:
        VocabularyError: a word could not be read back unchanged: it is empty, contains whitespace or is not
            Unicode text.
    """
    words = list(words)
    for word in words:
        is_text = word.encode("utf-8", "ignore").decode() == word
        if word.split() != [word] or word == SKIPPED_LINE or not is_text:
            raise VocabularyError(f"{path}: {word!r:.80} cannot be a word of a vocabulary file")
    return "".join(f"{word}\n" for word in words).encode()


@dataclass(frozen=True)
class VocabularyCounts:
    """A vocabulary built from a corpus.

    Attributes:
        words: words in file order, the three special tokens first.
        counts: int64 (len(words),), occurrences. ``<S>`` and ``</S>`` count once per sentence, ``<UNK>`` once
            per omitted word; literal occurrences in the text are added.
        n_tokens: words of the corpus, without sentence marks.
        n_types: distinct words of the corpus.
        coverage: fraction of the corpus's words that are in the vocabulary.
        n_merged: words that became another word of the corpus in the normal form.
    """

    words: tuple[str, ...]
    counts: np.ndarray
    n_tokens: int
    n_types: int
    coverage: float
    n_merged: int = 0


def choose_words(
    corpus: Counter[str],
    n_sentences: int,
    min_count: int = 1,
    max_size: int | None = None,
    form: UnicodeForm | None = None,
) -> VocabularyCounts:
    """Choose the words of a vocabulary, by descending count, then by code point.

    Args:
        corpus: occurrences of each word; modified.
        n_sentences: number of non-empty sentences.
        min_count: minimum number of occurrences of a word.
        max_size: maximum number of words, including the three special tokens.
        form: Unicode's normal form of the words; None to leave them as they are.

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
    n_before = len(corpus)
    if form is not None:
        for word in [word for word in corpus if not form.is_of(word)]:
            corpus[form.of_text(word)] += corpus.pop(word)
    n_tokens, n_types = corpus.total(), len(corpus)
    literal = [corpus.pop(token, 0) for token in SPECIAL_TOKENS]
    corpus.pop(SKIPPED_LINE, None)  # skipped when the file is read
    kept = sorted((-count, word) for word, count in corpus.items() if count >= min_count)
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
        n_merged=n_before - n_types,
    )


def form_of_words(words: Iterable[str]) -> UnicodeForm | None:
    """Return the normal form that all words have: NFC, else NFD, else None."""
    text = " ".join(words)
    return next((form for form in (UnicodeForm.NFC, UnicodeForm.NFD) if form.is_of(text)), None)


@dataclass(frozen=True)
class Finding:
    """A finding about a vocabulary file.

    Attributes:
        severity: "error", which makes the file unusable, "warning", which makes the model worse, or "info".
        line: number of the first affected line, from 1, or None.
        message: description of the finding.
    """

    severity: str
    line: int | None
    message: str


def check_vocabulary(data: bytes, name: str) -> list[Finding]:
    """Check a vocabulary file.

    Args:
        data: content of the file, as for `vocabulary_words`.
        name: name of the file in errors.

    Raises:
        VocabularyError: the file is damaged, empty or not UTF-8.
    """
    lines = _vocabulary_lines(data, name)
    return [*_check_marks(lines), *_check_rows(lines), *_check_words(lines)]


def _check_marks(lines: Sequence[str]) -> Iterator[Finding]:
    """Find missing and misplaced special tokens."""
    first_line = {line.strip(): number for number, line in reversed([*enumerate(lines, start=1)])}
    missing = [token for token in SPECIAL_TOKENS if token not in first_line]
    places = ", ".join(f"{token} on line {first_line.get(token)}" for token in SPECIAL_TOKENS)
    if missing == [UNK]:
        message = f"no {UNK}: a text with a word that is not in the vocabulary cannot be used"
        yield Finding("warning", None, message)
    elif missing:
        message = f"missing special tokens: {', '.join(missing)} (a vocabulary starts with <S>, </S>, <UNK>)"
        if len(missing) == len(SPECIAL_TOKENS) and any(len(line.split()) > 1 for line in lines):
            message += "; it has several words on a line: is it a text?"
        yield Finding("error", None, message)
    elif [first_line[token] for token in SPECIAL_TOKENS] != [1, 2, 3]:
        message = f"the special tokens are not the first three lines in the order <S>, </S>, <UNK>: {places}"
        yield Finding("warning", None, message)


def _check_rows(lines: Sequence[str]) -> Iterator[Finding]:
    """Find blank lines and repeated words, whose rows in a model are superfluous."""
    words = [*enumerate(map(str.strip, lines), start=1)]
    first_line = {word: number for number, word in reversed(words)}
    numbers = [k for k, word in words if word != SKIPPED_LINE and (not word or k != first_line[word])]
    if numbers:
        message = (
            "blank line or repeated word; each line keeps its id, and a repeated word has that of its last "
            "line, as in bilm-tf. Remove such lines for a new model; a trained one needs them"
        )
        yield _of_lines(message, lines, numbers)


def _check_words(lines: Sequence[str]) -> Iterator[Finding]:
    """Find whitespace, invisible characters and words in two normal forms."""
    words = [*map(str.strip, lines)]
    for is_odd, text in (
        (lambda word: len(word.split()) > 1, "whitespace inside the word, which no token of a corpus has"),
        (invisible_in, "control, invisible or replacement characters, usually of damaged text"),
    ):
        if numbers := [k for k, word in enumerate(words, start=1) if is_odd(word)]:
            yield _of_lines(text, lines, numbers)
    if forms := describe_forms(words):
        yield Finding("warning", None, forms)


def _of_lines(text: str, lines: Sequence[str], numbers: Sequence[int]) -> Finding:
    """Return a warning that counts lines and shows the first three."""
    first = ", ".join(f"line {number} {lines[number - 1]!r:.80}" for number in numbers[:3])
    return Finding("warning", numbers[0], f"{text} ({len(numbers)} in all: {first})")


MOST_UNKNOWN = 0.25
"""Share of words outside the vocabulary above which a text seems to be another than the model's."""


def describe_unknown(share: float) -> str:
    """Return a message about a text with a large share of words outside the vocabulary."""
    remedy = "check that both are of one language, and the words separated and capitalised alike"
    return f"{share:.0%} of the words are not in the vocabulary; {remedy}"


def describe_marks(n_marks: int) -> str:
    """Return a message about sentence marks among the words of a text."""
    return f"the text contains <S> or </S> {n_marks:,} times; remove them: bilm adds them to every sentence"


def describe_forms(words: Iterable[str]) -> str | None:
    """Return a message if words are the same in Unicode's normal form NFC."""
    words = {*words}
    if not (n_twice := len(words) - len({*map(UnicodeForm.NFC.of_text, words)})):
        return None
    problem = f"words of the vocabulary that look the same, in different Unicode normal forms: {n_twice:,}"
    return f"{problem}; --form NFC of `bilm prepare` or `bilm vocab build` writes them in one"


def describe_disorder(counts: np.ndarray) -> str | None:
    """Return a message if the counts in a text, even a short one, show an order other than by frequency.

    In order of frequency, the first half of a vocabulary covers nearly all words of any text of its kind; in
    random or alphabetical order, about half of them.

    Args:
        counts: int64 (n words,), occurrences in the text of each word, without special tokens.
    """
    covered = counts[: len(counts) // 2].sum() / max(counts.sum(), 1)
    if len(counts) < 1000 or covered >= 0.7 or not counts.any():
        return None
    problem = f"the first half of the vocabulary covers only {covered:.0%} of the text's known words"
    reason = "the sampled softmax assumes that frequent words come first, as `bilm vocab build` sorts them"
    return f"{problem}; {reason}"
