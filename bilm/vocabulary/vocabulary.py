"""Vocabularies: conversion of words to ids and to rows of character ids."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import repeat

import numpy as np

from bilm.errors import OptionsError, VocabularyError, checked, require_words
from bilm.io import PathLike, outputs
from bilm.options.parameters import UnicodeForm
from bilm.vocabulary.vocabulary_file import BOS, EOS, SPECIAL_TOKENS, UNK, vocabulary_words

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(256, 261)


class PackedWords:
    """Rows of character ids of words, stored consecutively without padding, two bytes per character.

    The row of a word is 258, up to ``width - 2`` bytes of its UTF-8 form, 259, then 260 as padding.

    Args:
        words: the words; surrogates, which are not text, are dropped, as in bilm-tf.
        width: characters of a row.
    """

    def __init__(self, words: Iterable[str], width: int) -> None:
        n_bytes = width - 2
        encoded = [word.encode("utf-8", "ignore")[:n_bytes] for word in words]
        self.lengths = np.fromiter(map(len, encoded), np.int32, len(encoded)) + np.int32(2)
        ends = np.cumsum(self.lengths, dtype=np.int64)
        self._starts = ends - self.lengths
        # Leaves room for the marks, and for a full row after the last word.
        joined = b"".join([b"\0" + b"\0\0".join(encoded), bytes(width + 1)])
        self._characters = np.frombuffer(joined, np.uint8).astype(np.uint16)
        self._characters[self._starts] = BEGIN_WORD
        self._characters[ends - 1] = END_WORD

    def set_mark(self, number: int, mark: int) -> None:
        """Replace the characters of a word, which has at least one byte, by a single mark."""
        start = self._starts[number]
        self._characters[start : start + 3] = BEGIN_WORD, mark, END_WORD
        self.lengths[number] = 3

    def rows(self, numbers: np.ndarray, width: int) -> np.ndarray:
        """Return the first `width` characters of words, int32 (n, width)."""
        flat = self._characters
        views = np.ndarray((len(flat) - width + 1, width), flat.dtype, flat, strides=flat.strides * 2)
        rows = views[self._starts[numbers]]  # `width` characters from the start of each word
        rows[np.arange(width, dtype=np.int32) >= self.lengths[numbers, None]] = PADDING
        return rows.astype(np.int32)


def mark_row(mark: int, width: int) -> np.ndarray:
    """Return the row of a sentence mark, int32 (width,)."""
    row = np.full(width, PADDING, np.int32)
    row[:3] = BEGIN_WORD, mark, END_WORD
    return row


class Vocabulary:
    """Words and their ids, as bilm-tf's class of this name.

    The file is read as in bilm-tf: a repeated word has the id of its last line, a blank line is an empty
    word, a line ``!!!MAXTERMID`` is skipped, and missing special tokens have id -1. A byte order mark and all
    kinds of line ends are accepted. A vocabulary without ``<UNK>`` can encode only texts whose words it
    contains.

    Args:
        filename: the file: UTF-8, one word per line; plain, gzip, xz or zstandard; or a list of the words in
            id order, as in `from_words`.
        validate_file: refuse missing sentence marks, and warn of repeated words and blank lines.

    A word that the file lacks is looked up in its normal form, if the vocabulary has one.

    Attributes:
        filename: the file, as it was named; None without one.
        words: the words in id order; must not be modified.
        unicode_form: Unicode's normal form of the words; None to take texts as they are, as bilm-tf. Setting
            it raises a `VocabularyError` unless all words have it.
        bos: id of ``<S>``, -1 if the file has none.
        eos: id of ``</S>``, -1 if the file has none.
        unk: id of ``<UNK>``, -1 if the file has none.

    Raises:
        VocabularyError: the file cannot be read, is not UTF-8, or fails the validation.

    Example:
        >>> Vocabulary("vocab.txt", validate_file=True).words[:4]
        ['<S>', '</S>', '<UNK>', 'the']
        >>> vocabulary = Vocabulary.from_words(["<S>", "</S>", "<UNK>", "the", "river"])
        >>> vocabulary.encode("the river sang")
        array([0, 3, 4, 2, 1], dtype=int32)
        >>> vocabulary.decode([0, 3, 4, 2, 1])
        '<S> the river <UNK> </S>'
    """

    @checked
    def __init__(self, filename: PathLike | list[str], validate_file: bool = False) -> None:
        self.filename: str | None = None
        if isinstance(filename, list):
            words = filename
        else:
            self.filename = os.fspath(filename)
            data = outputs.read_file(filename, VocabularyError, or_pipe=True)
            words = vocabulary_words(data, self.filename, validate_file)
        self.words: Sequence[str] = words
        self._form: UnicodeForm | None = None
        self._ids = dict(zip(words, range(len(words)), strict=True))
        self.bos, self.eos, self.unk = (self._ids.get(token, -1) for token in SPECIAL_TOKENS)

    @classmethod
    def from_words(cls, words: Iterable[str]) -> "Vocabulary":
        """Make a vocabulary from words in id order, without a file."""
        return cls(require_words("`words`", words))

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self.words)

    @property
    def unicode_form(self) -> UnicodeForm | None:
        """Unicode's normal form of the words, see the class."""
        return self._form

    @unicode_form.setter
    def unicode_form(self, form: str | None) -> None:
        form = None if form is None else UnicodeForm(form)
        if form is not None and not form.is_of(" ".join(self.words)):
            number, word = next((k, word) for k, word in enumerate(self.words) if not form.is_of(word))
            problem = f"{word!r:.80}, id {number}, is not in {form}, which the option unicode_form requires"
            remedy = f"`bilm vocab build --form {form}` writes words in it"
            raise VocabularyError(f"{self.filename or 'the vocabulary'}: {problem}; {remedy}")
        self._form = form

    def in_form(self, words: Sequence[str]) -> Sequence[str]:
        """Return words in the vocabulary's normal form."""
        if (form := self._form) is None or form.is_of(text := " ".join(words)):
            return words
        formed = form.of_text(text).split(" ")  # many times as fast as word by word
        return formed if len(formed) == len(words) else [*map(form.of_text, words)]

    def word_to_id(self, word: str) -> int:
        """Return the id of a word, or `unk` if it is not in the vocabulary."""
        number = int(self.lookup((word,))[0])
        return self.unk if number < 0 else number

    def require_marks(self) -> None:
        """Raise a `VocabularyError` unless the vocabulary has both sentence marks."""
        if min(self.bos, self.eos) < 0:
            raise VocabularyError(f"the vocabulary lacks {BOS} or {EOS}, which surround every sentence")

    def unk_for(self, word: str) -> int:
        """Return the id of ``<UNK>`` for a word that is not in the vocabulary.

        Raises:
            VocabularyError: the vocabulary has no ``<UNK>``; names the word.
        """
        if self.unk < 0:
            remedy = f"add the word or {UNK}"
            raise VocabularyError(f"{word!r:.80} is not in the vocabulary, which has no {UNK}; {remedy}")
        return self.unk

    def id_to_word(self, cur_id: int) -> str:
        """Return the word with an id."""
        return self.words[cur_id]

    def lookup(self, words: Sequence[str]) -> np.ndarray:
        """Return int32 ids (n words,) of words in any form; -1 for words that are not in the vocabulary."""
        ids = np.fromiter(map(self._ids.get, words, repeat(-1)), np.int32, len(words))
        if self._form is not None:  # what was found is in the form
            outside = np.flatnonzero(ids < 0)
            unknown = [words[k] for k in outside.tolist()]
            if (formed := self.in_form(unknown)) is not unknown:
                ids[outside] = self.lookup(formed)
        return ids

    def word_ids(self, words: Sequence[str]) -> np.ndarray:
        """Return int32 ids (n words,), `unk` for words that are not in the vocabulary.

        Raises:
            VocabularyError: a word is unknown and there is no ``<UNK>``.
        """
        ids = self.lookup(words)
        outside = np.flatnonzero(ids < 0)
        if outside.size:
            ids[outside] = self.unk_for(words[outside[0]])
        return ids

    def decode(self, cur_ids: Iterable[int]) -> str:
        """Return the words with these ids, joined by spaces."""
        return " ".join([self.words[cur_id] for cur_id in cur_ids])

    def encode(self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True) -> np.ndarray:
        """Return the ids of a sentence and its marks, int32 (n words + 2,).

        Args:
            sentence: a string, or its words if `split` is false.
            reverse: put ``</S>`` first and ``<S>`` last. The words are not reversed; as in bilm-tf, the
                sentence must be given in reverse order.
            split: split a string at whitespace.

        Raises:
            VocabularyError: a word is unknown and there is no ``<UNK>``.
        """
        ids = self.word_ids(_split(sentence, split))
        first, last = (self.eos, self.bos) if reverse else (self.bos, self.eos)
        return np.concatenate(([first], ids, [last])).astype(np.int32, copy=False)


class UnicodeCharsVocabulary(Vocabulary):
    """A vocabulary that also converts words to rows of character ids.

    The row of a word is 258, up to ``max_word_length - 2`` bytes of its UTF-8 form, 259, then 260 as padding;
    ``<S>`` and ``</S>`` have a single character, 256 and 257. Words outside the vocabulary have rows too.

    Args:
        filename: as for `Vocabulary`.
        max_word_length: characters of a row, including the two word marks; at least 3.
        validate_file: as for `Vocabulary`.

    Attributes:
        max_word_length: characters of a row, including the two word marks.

    Raises:
        VocabularyError: as for `Vocabulary`.
        OptionsError: `max_word_length` is less than 3.

    Example:
        >>> vocabulary = UnicodeCharsVocabulary("vocab.txt", max_word_length=8)
        >>> vocabulary.word_to_char_ids("café")
        array([258,  99,  97, 102, 195, 169, 259, 260], dtype=int32)
        >>> vocabulary.encode_chars("the café").shape  # two words and the two marks
        (4, 8)
    """

    bos_char = BEGIN_SENTENCE
    eos_char = END_SENTENCE
    bow_char = BEGIN_WORD
    eow_char = END_WORD
    pad_char = PADDING

    @checked
    def __init__(
        self, filename: PathLike | list[str], max_word_length: int, validate_file: bool = False
    ) -> None:
        super().__init__(filename, validate_file=validate_file)
        if max_word_length < 3:  # a sentence mark between the two word marks
            raise OptionsError(f"max_word_length is {max_word_length}; it must be at least 3")
        self.max_word_length = max_word_length
        self._packed = PackedWords(self.words, max_word_length)
        self.bos_chars = mark_row(self.bos_char, max_word_length)
        self.eos_chars = mark_row(self.eos_char, max_word_length)
        for number, mark in ((self.bos, self.bos_char), (self.eos, self.eos_char)):
            if number >= 0:
                self._packed.set_mark(number, mark)

    @classmethod
    def from_words(cls, words: Iterable[str], max_word_length: int = 50) -> "UnicodeCharsVocabulary":
        """Make a vocabulary from words in id order, without a file."""
        return cls(require_words("`words`", words), max_word_length)

    @cached_property
    def word_char_ids(self) -> np.ndarray:
        """Rows of all words, int32 (size, max_word_length), computed at the first access."""
        return self.character_rows(np.arange(self.size))

    def word_to_char_ids(self, word: str) -> np.ndarray:
        """Return the row of any word, int32 (max_word_length,)."""
        return self.rows_of((word,))[0]

    def rows_of(self, words: Sequence[str]) -> np.ndarray:
        """Return the rows of any words, int32 (n words, max_word_length)."""
        ids = self.lookup(words)
        numbers = np.where(ids < 0, self.size + np.arange(len(words)), ids)
        return self.character_rows(numbers, words)

    def encode_chars(
        self, sentence: str | Sequence[str], reverse: bool = False, split: bool = True
    ) -> np.ndarray:
        """Return the rows of a sentence and its marks, int32 (n words + 2, max_word_length).

        Takes the arguments of `encode`.
        """
        first, last = (self.eos_chars, self.bos_chars) if reverse else (self.bos_chars, self.eos_chars)
        return np.vstack([first, self.rows_of(_split(sentence, split)), last])

    def pack(self, words: Sequence[str]) -> PackedWords:
        """Prepare words for several calls of `character_lengths` and `character_rows`."""
        return PackedWords(self.in_form(words), self.max_word_length)

    def character_lengths(
        self, word_ids: np.ndarray, extra_words: Sequence[str] | PackedWords = ()
    ) -> np.ndarray:
        """Return the numbers of characters of words, including the two word marks.

        Args:
            word_ids: (n,), ids; ``size + k`` is the k-th of `extra_words`.
            extra_words: words outside the vocabulary.

        Returns:
            int32 (n,), at most `max_word_length`.
        """
        return self._taken(word_ids, extra_words, lambda packed, numbers: packed.lengths[numbers])

    def character_rows(
        self, word_ids: np.ndarray, extra_words: Sequence[str] | PackedWords = (), width: int | None = None
    ) -> np.ndarray:
        """Return the rows of words.

        Args:
            word_ids: (n,), as for `character_lengths`.
            extra_words: words outside the vocabulary.
            width: number of characters returned of each row; all by default.

        Returns:
            int32 (n, width).
        """
        columns = self.max_word_length if width is None else width
        return self._taken(word_ids, extra_words, lambda packed, numbers: packed.rows(numbers, columns))

    def _taken(
        self,
        word_ids: np.ndarray,
        extra_words: Sequence[str] | PackedWords,
        take: Callable[[PackedWords, np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """Apply `take` to words in the vocabulary and to extra words, and join the results."""
        inside = word_ids < self.size
        known = take(self._packed, word_ids[inside])
        if len(known) == len(word_ids):
            return known
        extra = extra_words if isinstance(extra_words, PackedWords) else self.pack(extra_words)
        taken = np.empty((len(word_ids), *known.shape[1:]), np.int32)
        taken[inside], taken[~inside] = known, take(extra, word_ids[~inside] - self.size)
        return taken


def _split(sentence: str | Sequence[str], split: bool) -> Sequence[str]:
    if split and isinstance(sentence, str):
        return sentence.split()
    return require_words("`sentence`", sentence)


@checked
def load_vocabulary(vocab_file: PathLike | list[str], max_word_length: int | None = None) -> Vocabulary:
    """Read a vocabulary file; warns of blank lines and repeated words, see `Vocabulary`.

    Args:
        vocab_file: the file, or its words as for `Vocabulary`.
        max_word_length: characters of a row for a character-level model; None for a word-level model.

    Raises:
        VocabularyError: the file cannot be read, or lacks a sentence mark.
    """
    if max_word_length is None:
        return Vocabulary(vocab_file, validate_file=True)
    return UnicodeCharsVocabulary(vocab_file, max_word_length, validate_file=True)
