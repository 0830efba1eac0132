"""Encoded sentences end to end in one array, without a Python object per sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bilm.vocabulary.file import EOS
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary

_ENCODE_TOKENS = 1 << 13  # looked up at a time: few enough for their strings to stay in the cache


@dataclass(frozen=True, slots=True)
class Sentences:
    """Sentences as ids. The arrays are never modified.

    A sentence of n words takes n + 1 ids: its words and ``</S>``; the ``<S>`` before it is not kept.

    Attributes:
        ids: int32 (n ids,). With a character-level vocabulary an out-of-vocabulary word is
            ``vocab.size + k`` for ``oov[k]``; otherwise it is ``<UNK>``.
        starts: int64 (n sentences,), where each sentence begins in `ids`, in any order.
        ends: int64 (n sentences,), where it ends.
        oov: Distinct out-of-vocabulary words.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    oov: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> np.ndarray:
        """Ids of each sentence, int64 (n sentences,): its words and ``</S>``."""
        return self.ends - self.starts

    def select(self, which: np.ndarray | slice) -> Sentences:
        """Some of the sentences in some order, over the same ids."""
        return Sentences(self.ids, self.starts[which], self.ends[which], self.oov)

    def packed(self, vocab: Vocabulary) -> Sentences:
        """The same sentences over ids and words of their own, without those of any other."""
        ends = np.cumsum(self.lengths)
        starts = ends - self.lengths
        ids = self.ids[np.arange(self.lengths.sum()) + np.repeat(self.starts - starts, self.lengths)]
        oov = renumber_oov(ids, vocab.size, self.oov)
        return Sentences(ids, starts, ends, oov)

    def words(self, number: int, vocab: Vocabulary) -> list[str]:
        """The words of one sentence, those out of the vocabulary as far as they were kept."""
        ids = self.ids[self.starts[number] : self.ends[number] - 1].tolist()
        return [vocab.words[k] if k < vocab.size else self.oov[k - vocab.size] for k in ids]


def encode_sentences(
    lines: Iterable[str],
    vocab: Vocabulary,
    max_sentences: int | None = None,
    max_tokens: int | None = None,
) -> Sentences:
    """Encode the next sentences.

    Args:
        lines: One sentence each; no more of them are read than are encoded.
        vocab: Character-level or word-level, with both sentence marks.
        max_sentences: Maximum number of sentences.
        max_tokens: Stop after the sentence that reaches this number of tokens, both marks included.

    Raises:
        VocabularyError: A sentence mark is missing, or ``<UNK>`` where a word is unknown.
    """
    vocab.require_marks()
    pieces: list[np.ndarray] = [np.zeros(0, np.int32)]
    oov: dict[str, int] = {}
    lengths: list[int] = []
    tokens: list[str] = []
    n_tokens = 0
    for line in islice(lines, max_sentences):
        words = line.split()
        tokens += words
        tokens.append(EOS)
        lengths.append(len(words) + 1)
        n_tokens += len(words) + 2
        if len(tokens) >= _ENCODE_TOKENS:
            pieces.append(_encode(tokens, vocab, oov))
            tokens = []
        if max_tokens is not None and n_tokens >= max_tokens:
            break
    pieces.append(_encode(tokens, vocab, oov))
    ends = np.cumsum(lengths, dtype=np.int64)
    starts = ends - np.array(lengths, np.int64)
    return Sentences(np.concatenate(pieces), starts, ends, tuple(oov))


def _encode(tokens: list[str], vocab: Vocabulary, oov: dict[str, int]) -> np.ndarray:
    """Ids of tokens; words that are not in the vocabulary are numbered in `oov`."""
    ids = vocab.lookup(tokens)
    outside = np.flatnonzero(ids < 0)
    if not outside.size:
        return ids
    unk = vocab.unk_for(tokens[outside[0]])  # the target, whatever the input is
    if not isinstance(vocab, UnicodeCharsVocabulary):
        ids[outside] = unk
    else:
        ids[outside] = [vocab.size + oov.setdefault(tokens[k], len(oov)) for k in outside.tolist()]
    return ids


def join_sentences(parts: Sequence[Sentences], vocab: Vocabulary) -> Sentences:
    """Concatenate sentences, with one numbering of their out-of-vocabulary words."""
    table: dict[str, int] = {}
    ids = np.concatenate([part.ids for part in parts])
    shifts = np.cumsum([0, *(len(part.ids) for part in parts)])
    for part, start, end in zip(parts, shifts, shifts[1:], strict=False):
        numbers = np.array([table.setdefault(word, len(table)) for word in part.oov], np.int32)
        of_part = ids[start:end]
        outside = np.flatnonzero(of_part >= vocab.size)
        of_part[outside] = vocab.size + numbers[of_part[outside] - vocab.size]
    return Sentences(
        ids,
        np.concatenate([part.starts + shift for part, shift in zip(parts, shifts, strict=False)]),
        np.concatenate([part.ends + shift for part, shift in zip(parts, shifts, strict=False)]),
        tuple(table),
    )


def renumber_oov(ids: np.ndarray, size: int, oov: Sequence[str]) -> tuple[str, ...]:
    """Number the out-of-vocabulary words of `ids` again, in place, in order of occurrence.

    Args:
        ids: int32, any shape, contiguous; an id of ``size + k`` is ``oov[k]``.
        size: Of the vocabulary.
        oov: Words, perhaps of other ids too.

    Returns:
        The words, distinct: ``size + k`` is the k-th of them now.
    """
    flat = ids.reshape(-1)
    outside = np.flatnonzero(flat >= size)
    numbers: dict[int, int] = {}
    flat[outside] = [size + numbers.setdefault(k, len(numbers)) for k in (flat[outside] - size).tolist()]
    return tuple(oov[k] for k in numbers)
