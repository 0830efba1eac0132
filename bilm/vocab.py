"""Vocabularies: words to ids, words to rows of character ids, building and checking the file.

The file has one word a line; the id of a word is the number of its line from 0. It starts with
``<S>``, ``</S>``, ``<UNK>``, and the words follow by descending frequency, because the sampled
softmax draws its classes from a log-uniform distribution over ids.

Character ids are UTF-8 bytes 0-255 and five marks: 256 begins a sentence, 257 ends it, 258 begins a
word, 259 ends it, 260 pads.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from bilm.atomic import replacing
from bilm.errors import DataError, OptionsError, VocabularyError

PathLike = str | os.PathLike[str]

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"
SPECIAL_TOKENS = (BOS, EOS, UNK)

_SKIPPED_LINE = "!!!MAXTERMID"
_MIN_WORD_LENGTH = 3  # a sentence mark between the two word marks
_ORDER_TOLERANCE = 0.2  # see _check_order


class Vocabulary:
    """Words and their ids, as bilm-tf's class of this name.

    Without validation the file is taken as bilm-tf takes it: missing special tokens have id -1, a
    repeated word has the id of its last line, a blank line is an empty word. A line ``!!!MAXTERMID``
    is skipped. A byte order mark and any line end are accepted.

    Args:
        filename: UTF-8, one word a line.
        validate_file: Refuse missing special tokens, repeated words and blank lines.

    Raises:
        VocabularyError: The file cannot be read, is not UTF-8, or fails the validation.
    """

    def __init__(self, filename: PathLike, validate_file: bool = False) -> None:
        lines = _decode_lines(filename, _read_bytes(filename))
        if validate_file:
            _validate(filename, lines)
        self._set_words([word for word in map(str.strip, lines) if word != _SKIPPED_LINE])

    @classmethod
    def from_words(cls, words: Iterable[str]) -> "Vocabulary":
        """Make a vocabulary of words in id order, without a file."""
        vocabulary = cls.__new__(cls)
        vocabulary._set_words(list(words))
        return vocabulary

    def _set_words(self, words: list[str]) -> None:
        self._words = words
        self._ids = dict(zip(words, range(len(words)), strict=True))
        self._bos, self._eos, self._unk = (self._ids.get(token, -1) for token in SPECIAL_TOKENS)

    @property
    def bos(self) -> int:
        """Id of ``<S>``, -1 if the file has none."""
        return self._bos

    @property
    def eos(self) -> int:
        """Id of ``</S>``, -1 if the file has none."""
        return self._eos

    @property
    def unk(self) -> int:
        """Id of ``<UNK>``, -1 if the file has none."""
        return self._unk

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self._words)

    @property
    def words(self) -> Sequence[str]:
        """The words in id order; not to be modified."""
        return self._words

    @cached_property
    def fingerprint(self) -> str:
        r"""SHA-256, in hexadecimal, of the words joined by ``\n`` in UTF-8."""
        return hashlib.sha256("\n".join(self._words).encode("utf-8", "surrogatepass")).hexdigest()

    def word_to_id(self, word: str) -> int:
        """Return the id of a word, that of ``<UNK>`` if it is not in the vocabulary."""
        return self._ids.get(word, self._unk)

    def id_to_word(self, cur_id: int) -> str:
        """Return the word of an id."""
        return self._words[cur_id]

    def lookup(self, words: Sequence[str]) -> np.ndarray:
        """Return int32 ids (n words,), -1 for words that are not in the vocabulary."""
        return np.fromiter(map(self._ids.get, words, repeat(-1)), np.int32, len(words))

    def decode(self, cur_ids: Iterable[int]) -> str:
        """Join the words of ids with spaces."""
        return " ".join([self._words[cur_id] for cur_id in cur_ids])

    def encode(self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True) -> np.ndarray:
        """Return the int32 ids (n words + 2,) of a sentence between its marks.

        Args:
            sentence: A string, or its words if not `split`.
            reverse: Put ``</S>`` first and ``<S>`` last. The words are not turned: as in bilm-tf,
                the sentence is given reversed already.
            split: Split the string at white space.
        """
        ids = self.lookup(_split(sentence, split))
        ids[ids < 0] = self._unk
        first, last = (self._eos, self._bos) if reverse else (self._bos, self._eos)
        return np.concatenate(([first], ids, [last])).astype(np.int32, copy=False)


class UnicodeCharsVocabulary(Vocabulary):
    """A vocabulary that also gives each word as a row of character ids.

    A word is 258, its UTF-8 bytes cut to ``max_word_length - 2``, 259, then 260 up to
    `max_word_length`; ``<S>`` and ``</S>`` have 256 and 257 for their only byte. Words that are not
    in the vocabulary have rows too. Words are kept end to end, so that the table costs no more than
    twice the file.

    Args:
        filename: As for `Vocabulary`.
        max_word_length: Characters of a row, the two word marks included; at least 3.
        validate_file: As for `Vocabulary`.

    Raises:
        VocabularyError: As for `Vocabulary`.
        OptionsError: `max_word_length` is too small.
    """

    bos_char = 256
    eos_char = 257
    bow_char = 258
    eow_char = 259
    pad_char = 260

    def __init__(self, filename: PathLike, max_word_length: int, validate_file: bool = False) -> None:
        super().__init__(filename, validate_file=validate_file)
        self._set_characters(max_word_length)

    @classmethod
    def from_words(cls, words: Iterable[str], max_word_length: int = 50) -> "UnicodeCharsVocabulary":
        """Make a vocabulary of words in id order, without a file."""
        vocabulary = cls.__new__(cls)
        vocabulary._set_words(list(words))
        vocabulary._set_characters(max_word_length)
        return vocabulary

    def _set_characters(self, max_word_length: int) -> None:
        if max_word_length < _MIN_WORD_LENGTH:
            raise OptionsError(f"max_word_length is {max_word_length}; the least is {_MIN_WORD_LENGTH}")
        self._max_word_length = max_word_length
        self._characters, self._starts, self._lengths = self._pack(self._words)
        self.bos_chars = self._mark_row(self.bos_char)
        self.eos_chars = self._mark_row(self.eos_char)
        for special, row in ((self._bos, self.bos_chars), (self._eos, self.eos_chars)):
            if special >= 0:
                start = self._starts[special]
                self._characters[start : start + 3] = row[:3]
                self._lengths[special] = 3

    def _mark_row(self, mark: int) -> np.ndarray:
        row = np.full(self._max_word_length, self.pad_char, np.int32)
        row[:3] = self.bow_char, mark, self.eow_char
        return row

    @property
    def max_word_length(self) -> int:
        """Characters of a row, the two word marks included."""
        return self._max_word_length

    @cached_property
    def word_char_ids(self) -> np.ndarray:
        """Rows of the whole vocabulary, int32 (size, max_word_length), made when first asked for."""
        return self.character_rows(np.arange(self.size))

    def word_to_char_ids(self, word: str) -> np.ndarray:
        """Return the int32 row (max_word_length,) of any word."""
        return self.character_rows(np.array([self._ids.get(word, self.size)]), (word,))[0]

    def encode_chars(
        self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True
    ) -> np.ndarray:
        """Return the int32 rows (n words + 2, max_word_length) of a sentence between its marks.

        The arguments are those of `encode`.
        """
        words = _split(sentence, split)
        ids = self.lookup(words).astype(np.int64)
        outside = ids < 0
        ids[outside] = self.size + np.flatnonzero(outside)
        first, last = (self.eos_chars, self.bos_chars) if reverse else (self.bos_chars, self.eos_chars)
        return np.vstack([first, self.character_rows(ids, words), last])

    def character_lengths(self, word_ids: np.ndarray, extra_words: Sequence[str] = ()) -> np.ndarray:
        """Return how many characters words have, the two word marks included.

        Args:
            word_ids: (n,); an id of `size` or more is a word of `extra_words`, counted from `size`.
            extra_words: Words that are not in the vocabulary.

        Returns:
            int32 (n,), at most `max_word_length`.
        """
        inside = word_ids < self.size
        lengths = np.empty(len(word_ids), np.int32)
        lengths[inside] = self._lengths[word_ids[inside]]
        extra = [extra_words[k] for k in (word_ids[~inside] - self.size).tolist()]
        lengths[~inside] = [min(len(_utf8(word)) + 2, self._max_word_length) for word in extra]
        return lengths

    def character_rows(
        self, word_ids: np.ndarray, extra_words: Sequence[str] = (), width: int | None = None
    ) -> np.ndarray:
        """Return the rows of words.

        Args:
            word_ids: (n,), as for `character_lengths`.
            extra_words: Words that are not in the vocabulary.
            width: Only the first `width` characters of each row; all by default.

        Returns:
            int32 (n, width).
        """
        width = self._max_word_length if width is None else width
        inside = word_ids < self.size
        known = word_ids[inside]
        known_rows = self._lay_out(self._characters, self._starts[known], self._lengths[known], width)
        if len(known) == len(word_ids):
            return known_rows
        rows = np.empty((len(word_ids), width), np.int32)
        rows[inside] = known_rows
        extra = [extra_words[k] for k in (word_ids[~inside] - self.size).tolist()]
        rows[~inside] = self._lay_out(*self._pack(extra), width)
        return rows

    def _lay_out(self, flat: np.ndarray, starts: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
        """Give each word of a flat buffer a row, int32 (n, width)."""
        is_word = np.arange(width, dtype=np.int32) < lengths[:, None]
        rows = np.lib.stride_tricks.sliding_window_view(flat, width)[starts]
        return np.where(is_word, rows, np.int32(self.pad_char))

    def _pack(self, words: Iterable[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lay the characters of words, with their marks, end to end.

        Returns:
            The characters, uint16, with room after the last word for a whole row; where each word
            starts in them, int64 (n words,); how many it has, int32 (n words,).
        """
        n_bytes = self._max_word_length - 2
        encoded = [_utf8(word)[:n_bytes] for word in words]
        lengths = np.fromiter(map(len, encoded), np.int32, len(encoded)) + np.int32(2)
        ends = np.cumsum(lengths, dtype=np.int64)
        joined = b"".join([b"\0" + b"\0\0".join(encoded), bytes(n_bytes + 3)])
        flat = np.frombuffer(joined, np.uint8).astype(np.uint16)
        flat[ends - lengths] = self.bow_char
        flat[ends - 1] = self.eow_char
        return flat, ends - lengths, lengths


def _utf8(word: str) -> bytes:
    """Encode a word as bilm-tf does, without the surrogates that are not text."""
    return word.encode("utf-8", "ignore")


def load_vocabulary(path: PathLike, max_word_length: int | None = None) -> Vocabulary:
    """Read and validate a vocabulary file.

    Args:
        path: The file.
        max_word_length: Characters of a row for a model over characters; None for one over words.

    Raises:
        VocabularyError: The file cannot be read or is not valid.
    """
    if max_word_length is None:
        return Vocabulary(path, validate_file=True)
    return UnicodeCharsVocabulary(path, max_word_length, validate_file=True)


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


def build_vocabulary(
    sentences: Iterable[Sequence[str]], min_count: int = 1, max_size: int | None = None
) -> VocabularyCounts:
    """Choose the words of a vocabulary: by descending count, equal counts by code points.

    Args:
        sentences: Words of each sentence; empty ones are not counted. Read once.
        min_count: Leave out words that occur less often.
        max_size: At most so many words, the three special tokens included.

    Raises:
        OptionsError: `min_count` is below 1 or `max_size` below 4.
        DataError: There is not a single word.
    """
    if min_count < 1:
        raise OptionsError(f"min_count is {min_count}; it must be at least 1")
    if max_size is not None and max_size <= len(SPECIAL_TOKENS):
        raise OptionsError(f"max_size is {max_size}; it counts the 3 special tokens and must be at least 4")
    n_sentences = 0

    def counted() -> Iterator[Sequence[str]]:
        nonlocal n_sentences
        for sentence in sentences:
            n_sentences += bool(sentence)
            yield sentence

    corpus = Counter(chain.from_iterable(counted()))
    if not corpus:
        raise DataError("the corpus is empty: there is no word to build a vocabulary from")
    n_tokens, n_types = corpus.total(), len(corpus)
    literal = [corpus.pop(token, 0) for token in SPECIAL_TOKENS]
    corpus.pop(_SKIPPED_LINE, None)  # readers of the file skip such a line
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


def write_vocabulary(words: Iterable[str], path: PathLike) -> None:
    """Write a vocabulary file, whole or not at all.

    Args:
        words: In id order, the special tokens included.
        path: Replaced if it exists.

    Raises:
        VocabularyError: A word would not come back as it is (empty, with white space inside, not
            Unicode text), or the file cannot be written.
    """
    path = Path(path)
    lines = []
    for word in words:
        if word.split() != [word] or word == _SKIPPED_LINE:
            raise VocabularyError(f"{path}: {word!r} cannot be a word of a vocabulary file")
        lines.append(word)
    try:
        data = "".join([f"{word}\n" for word in lines]).encode("utf-8")
    except UnicodeEncodeError as error:
        raise VocabularyError(f"{path}: a word is not Unicode text: {error}") from error
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise VocabularyError(f"{path}: cannot be written: {error.strerror or error}") from error


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One remark about a vocabulary file.

    Attributes:
        severity: Errors keep the file from being used; warnings make a worse model.
        line: The first line concerned, from 1, or None.
        message: What it is.
    """

    severity: Severity
    line: int | None
    message: str


def check_vocabulary(
    path: PathLike, sentences: Iterable[Sequence[str]] | None = None, max_word_length: int = 50
) -> list[Finding]:
    """Examine a vocabulary file, and how it fits a corpus; all problems, not only the first.

    Args:
        path: The file.
        sentences: Words of each sentence of the corpus that the model is to be trained on, if any.
        max_word_length: Characters of a row, the two word marks included.

    Returns:
        Findings about the file, then about the corpus.

    Raises:
        VocabularyError: The file is missing or may not be read.
        DataError: From reading the sentences.
    """
    data = _read_bytes(path)
    try:
        lines, findings = _decode_lines(path, data), []
    except VocabularyError as error:
        message = str(error).removeprefix(f"{os.fspath(path)}: ")
        bad_line = _first_bad_line(data)
        findings = [Finding(Severity.ERROR, bad_line, message)]
        if data.startswith((b"\xff\xfe", b"\xfe\xff")) or not data:
            return findings
        lines = _split_lines(data.decode("utf-8", "replace"))
    findings += _check_lines(lines) + _check_words(lines, max_word_length)
    if sentences is not None:
        findings += _check_corpus(lines, sentences)
    return findings


def _read_bytes(path: PathLike) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise VocabularyError(f"{os.fspath(path)}: cannot be read: {error.strerror or error}") from error


def _decode_lines(path: PathLike, data: bytes) -> list[str]:
    """Decode a vocabulary file into its lines."""
    name = os.fspath(path)
    if not data.removeprefix(b"\xef\xbb\xbf"):
        raise VocabularyError(f"{name}: the vocabulary file is empty; it needs {', '.join(SPECIAL_TOKENS)}")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise VocabularyError(f"{name}: line 1: the file is UTF-16, not UTF-8; convert it with iconv")
    try:
        return _split_lines(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line, byte = _first_bad_line(data), data[error.start]
        raise VocabularyError(f"{name}: line {line}: not UTF-8 (byte 0x{byte:02x}: {error.reason})") from None


def _split_lines(text: str) -> list[str]:
    r"""Split text at ``\n``, ``\r\n`` and ``\r`` only, and drop a byte order mark."""
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n")


def _first_bad_line(data: bytes) -> int | None:
    """Return the first line that is not UTF-8, from 1."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return len(_split_lines(data[: error.start].decode("utf-8") + "."))
    return None


def _split(sentence: str | Sequence[str], split: bool) -> Sequence[str]:
    return sentence.split() if split and isinstance(sentence, str) else sentence


def _validate(path: PathLike, lines: Sequence[str]) -> None:
    """Raise a VocabularyError of everything that keeps the lines from being a vocabulary."""
    problems = [finding for finding in _check_lines(lines) if finding.severity is Severity.ERROR]
    if problems:
        text = "; ".join(
            f"line {problem.line}: {problem.message}" if problem.line else problem.message
            for problem in problems
        )
        raise VocabularyError(f"{os.fspath(path)}: {text}")


def _check_lines(lines: Sequence[str]) -> list[Finding]:
    """Find missing, misplaced and repeated tokens and blank lines."""
    first_line: dict[str, int] = {}
    repeated: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        word = line.strip()
        if word != _SKIPPED_LINE and first_line.setdefault(word, number) != number and word:
            repeated.setdefault(word, number)
    findings = []
    missing = [token for token in SPECIAL_TOKENS if token not in first_line]
    if missing:
        message = f"missing special tokens: {', '.join(missing)} (a vocabulary starts with <S>, </S>, <UNK>)"
        findings.append(Finding(Severity.ERROR, None, message))
    elif [first_line[token] for token in SPECIAL_TOKENS] != [1, 2, 3]:
        places = ", ".join(f"{token} on line {first_line[token]}" for token in SPECIAL_TOKENS)
        message = f"the special tokens are not the first three lines in the order <S>, </S>, <UNK>: {places}"
        findings.append(Finding(Severity.WARNING, None, message))
    if repeated:
        word, number = next(iter(repeated.items()))
        more = f", and {len(repeated) - 1} more words are repeated" if len(repeated) > 1 else ""
        message = f"{word!r} is on lines {first_line[word]} and {number}{more}"
        findings.append(Finding(Severity.ERROR, number, message))
    if "" in first_line:
        n_blank = sum(not line.strip() for line in lines)
        more = f", and {n_blank - 1} more lines are" if n_blank > 1 else ""
        findings.append(Finding(Severity.ERROR, first_line[""], f"the line is blank{more}"))
    return findings


def _check_words(lines: Sequence[str], max_word_length: int) -> list[Finding]:
    """Find white space around or inside words, and words longer than a row."""
    around, inside, long = [], [], []
    for number, line in enumerate(lines, start=1):
        word = line.strip()
        if word and word != line:
            around.append(number)
        if len(word.split()) > 1:
            inside.append(number)
        if len(word) * 4 > max_word_length - 2 and len(word.encode("utf-8")) > max_word_length - 2:
            long.append(number)
    found = (
        (around, Severity.WARNING, "white space before or after the word, which is ignored"),
        (inside, Severity.WARNING, "white space inside the word, which no token of a corpus has"),
        (long, Severity.INFO, f"more than {max_word_length - 2} bytes; the rest of the word is not seen"),
    )
    return [
        Finding(severity, numbers[0], f"{text} ({_examples(lines, numbers)})")
        for numbers, severity, text in found
        if numbers
    ]


def _examples(lines: Sequence[str], numbers: Sequence[int]) -> str:
    """Count lines and show the first few."""
    shown = ", ".join(f"line {number} {lines[number - 1][:60]!r}" for number in numbers[:3])
    return f"{len(numbers)} in all: {shown}"


def _check_corpus(lines: Sequence[str], sentences: Iterable[Sequence[str]]) -> list[Finding]:
    """Compare a vocabulary with a corpus: unknown words, unseen words, order."""
    counts = Counter(chain.from_iterable(sentences))
    n_words = counts.total()
    if not n_words:
        return [Finding(Severity.WARNING, None, "the corpus is empty")]
    place = {line.strip(): number for number, line in enumerate(lines, start=1)}
    known = sum(counts[word] for word in place if word in counts)
    n_oov = n_words - known
    message = f"{n_oov:,} of {n_words:,} words of the corpus are out of vocabulary ({n_oov / n_words:.2%})"
    findings = [Finding(Severity.INFO, None, message)]
    ordered = [(word, number) for word, number in place.items() if word and word not in SPECIAL_TOKENS]
    unseen = [number for word, number in ordered if word not in counts]
    if unseen:
        rate = len(unseen) / len(ordered)
        severity = Severity.WARNING if rate > 0.5 else Severity.INFO
        message = f"words never seen in the corpus, {rate:.1%} of the vocabulary"
        findings.append(Finding(severity, unseen[0], f"{message} ({_examples(lines, unseen)})"))
    numbers = np.array([number for _, number in ordered], np.int64)
    return findings + _check_order(lines, numbers, np.array([counts[word] for word, _ in ordered], np.int64))


def _check_order(lines: Sequence[str], numbers: np.ndarray, counts: np.ndarray) -> list[Finding]:
    """Compare the order of words with their counts in the corpus.

    The measure is what the sampled softmax feels: how many nats a token the log-uniform distribution
    over the file's order is a worse model of the corpus than over the best order. As a fraction of
    what a random order loses, this is 0 for the best order, below 0.1 for a file sorted by the counts
    of other text of the same kind, and about 1 for an alphabetical one.
    """
    ranks = np.arange(len(counts)) + len(SPECIAL_TOKENS)
    surprise = -np.log(np.log1p(1 / (ranks + 1)))
    best = np.sort(counts)[::-1]
    excess, of_random = (counts - best) @ surprise, (counts.mean() - best) @ surprise
    if of_random <= 0:
        return []
    excess, disorder = float(excess / counts.sum()), float(excess / of_random)
    rises = counts[1:] - counts[:-1]
    severity = Severity.WARNING if disorder > _ORDER_TOLERANCE else Severity.INFO
    message = (
        f"{(rises > 0).mean():.1%} of neighbours are not in order of descending count, which costs the"
        f" sampled softmax's distribution {excess:.2f} nats a word; disorder {disorder:.2f} (0 is the best"
        " order, 1 a random one)"
    )
    clear = rises > 4 * np.sqrt(counts[1:] + counts[:-1])  # more than chance
    bad = clear if clear.any() else rises > 0
    if not bad.any():
        return [Finding(severity, None, message)]
    first = int(np.argmax(bad))
    low, high = int(numbers[first]), int(numbers[first + 1])
    message += (
        f"; line {low} {lines[low - 1].strip()!r} ({counts[first]} times) is before"
        f" line {high} {lines[high - 1].strip()!r} ({counts[first + 1]} times)"
    )
    return [Finding(severity, high, message)]
