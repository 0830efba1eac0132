"""A corpus as a stream of encoded sentences: selection, order and the position from which it is resumed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Annotated

import numpy as np

from bilm.errors import CheckpointError, DataError
from bilm.io import PathLike
from bilm.io.json import Bounds
from bilm.io.lines import read_lines
from bilm.io.shards import name_files
from bilm.vocabulary.file import EOS
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary

_ENCODE_TOKENS = 1 << 13  # looked up at a time: few enough for their strings to stay in the cache


_Number = Annotated[int, Bounds(least=0, below=1 << 62)]


@dataclasses.dataclass(frozen=True)
class Order:
    """The order in which a corpus is read.

    Attributes:
        shuffle: take the shards in random order and shuffle the sentences within consecutive blocks;
            a block may span shards. Without it: file order.
        seed: the order depends only on it, the epoch and the number of the block.
        shuffle_buffer: sentences of a block; blocks of very long lines are shorter.
        part: number of this worker among several, from 0.
        n_parts: workers, each of which reads its own part of the corpus.
    """

    shuffle: bool = False
    seed: int = 0
    shuffle_buffer: int = 100_000
    part: int = 0
    n_parts: int = 1


@dataclasses.dataclass(frozen=True)
class Place:
    """The next sentence to take.

    Attributes:
        epoch: from 0.
        block: number of its shuffled block in the epoch, from 0.
        shard: where the block begins: shard, from 0 in the order of the epoch.
        line: sentences of this part in that shard before the block.
        taken: sentences of the block taken before it.
        sentence: sentences of the epoch taken before it.
    """

    epoch: _Number = 0
    block: _Number = 0
    shard: _Number = 0
    line: _Number = 0
    taken: _Number = 0
    sentence: _Number = 0

    def after(self, n_sentences: int) -> Place:
        """The place after that many more sentences of the same block."""
        taken, sentence = self.taken + n_sentences, self.sentence + n_sentences
        return dataclasses.replace(self, taken=taken, sentence=sentence)


@dataclasses.dataclass(frozen=True, slots=True)
class Unfinished:
    """A sentence that a row has begun and not finished.

    Attributes:
        text: its words with spaces between them.
        offset: number of its inputs already read, ``<S>`` the first; at least 1, at most its words.
    """

    text: str
    offset: Annotated[int, Bounds(least=1)]

    def contradictions(self) -> list[str]:
        """Contradictions between the values."""
        n_words = len(self.text.split())
        return [f"offset: must be at most the {n_words} words of the text"] if self.offset > n_words else []


@dataclasses.dataclass(frozen=True, eq=False)
class Position:
    """The position of a stream of batches, which goes on in the same order.

    Attributes:
        place: the next sentence.
        rows: the unfinished sentence of each row; None where the next sentence is due.
    """

    place: Place
    rows: Sequence[Unfinished | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Sentences:
    """Sentences as ids. The arrays are never modified.

    A sentence of n words takes n + 1 ids: its words and ``</S>``; the ``<S>`` before it is not kept.

    Attributes:
        ids: int32 (n ids,). With a character-level vocabulary an out-of-vocabulary word is
            ``vocab.size + k`` for ``oov[k]``; otherwise it is ``<UNK>``.
        starts: int64 (n sentences,), where each sentence begins in `ids`, in any order.
        ends: int64 (n sentences,), where it ends.
        oov: distinct out-of-vocabulary words.
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
        return self.words_of(self.ids[self.starts[number] : self.ends[number] - 1], vocab)

    def words_of(self, ids: np.ndarray, vocab: Vocabulary) -> list[str]:
        """The words of some ids, those out of the vocabulary as far as they were kept."""
        return [vocab.words[k] if k < vocab.size else self.oov[k - vocab.size] for k in ids.tolist()]


def encode_sentences(
    lines: Iterable[str],
    vocab: Vocabulary,
    max_sentences: int | None = None,
    max_tokens: int | None = None,
) -> Sentences:
    """Encode the next sentences.

    Args:
        lines: one sentence each; no more of them are read than are encoded.
        vocab: character-level or word-level, with both sentence marks.
        max_sentences: maximum number of sentences.
        max_tokens: stop after the sentence that reaches this number of tokens, both marks included.

    Raises:
        VocabularyError: a sentence mark is missing, or ``<UNK>`` where a word is unknown.
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
        size: of the vocabulary.
        oov: words, perhaps of other ids too.

    Returns:
        The words, distinct: ``size + k`` is the k-th of them now.
    """
    flat = ids.reshape(-1)
    outside = np.flatnonzero(flat >= size)
    numbers: dict[int, int] = {}
    flat[outside] = [size + numbers.setdefault(k, len(numbers)) for k in (flat[outside] - size).tolist()]
    return tuple(oov[k] for k in numbers)


_MAX_BUFFER_TOKENS = 1 << 25  # a second limit of the shuffle buffer, for corpora of very long lines
_FILE_ORDER_TOKENS = 1 << 16  # of a block where nothing is shuffled


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Sentences in the order in which they are read, and the place of the first of them."""

    sentences: Sentences
    place: Place


def sentence_stream(
    files: Sequence[PathLike],
    vocab: Vocabulary,
    order: Order,
    *,
    endless: bool,
    keep_blank: bool = False,
    start: Place | None = None,
) -> Iterator[Block]:
    """Yield the sentences of a corpus, one epoch or without end.

    Args:
        files: all shards, of which a part may be read.
        vocab: character-level or word-level, with both sentence marks.
        order: the order in which they are read.
        endless: start another epoch when one ends.
        keep_blank: read a blank line as an empty sentence, as bilm-tf does.
        start: the sentence to begin with. Shards before its block are not opened, and lines before
            its block not encoded.

    Raises:
        CheckpointError: the text has no place `start`.
        DataError: the files cannot be read, or have no sentence (`endless` only).
        VocabularyError: a sentence mark is missing, or ``<UNK>`` where a word is unknown.
    """
    start = start or Place()
    by_shard = len(files) >= order.n_parts
    shards = files[order.part :: order.n_parts] if by_shard else files
    stride = (0, 1) if by_shard else (order.part, order.n_parts)
    for epoch in count(start.epoch):
        first = start if epoch == start.epoch else Place(epoch)
        is_empty = not first.sentence
        for block in _epoch(shards, stride, vocab, order, first, keep_blank):
            is_empty = False
            yield block
        if not endless:
            return
        if is_empty:
            several = (
                f"for worker {order.part} of {order.n_parts} (from 0): use fewer workers, or fuller shards"
            )
            end = f" {several}" if order.n_parts > 1 else ": the corpus is empty"
            raise DataError(f"no sentences in {name_files(shards)}{end}")


def _epoch(
    shards: Sequence[PathLike],
    stride: tuple[int, int],
    vocab: Vocabulary,
    order: Order,
    start: Place,
    keep_blank: bool,
) -> Iterator[Block]:
    """Yield the blocks of one epoch, from a place."""
    seed = (order.seed, start.epoch)
    if order.shuffle:
        shards = [shards[k] for k in np.random.default_rng(seed).permutation(len(shards))]
    if start.shard >= max(1, len(shards)):
        raise _changed(f"there are {len(shards)} files to read, and {start.shard} were read before")
    shard, line = start.shard, start.line  # how far they were read

    def texts() -> Iterator[str]:
        nonlocal shard, line
        for number in range(start.shard, len(shards)):
            lines = read_lines(shards[number])
            if not keep_blank:
                lines = (text for text in lines if text and not text.isspace())
            lines = islice(lines, stride[0], None, stride[1])
            if number == start.shard:
                _skip(lines, start.line)
            else:
                shard, line = number, 0
            for text in lines:
                line += 1
                yield text

    source = texts()
    sentence, behind = start.sentence, start.taken
    if not order.shuffle:  # without shuffling a block may begin anywhere
        _skip(source, behind)
        behind = 0
    max_tokens = _MAX_BUFFER_TOKENS if order.shuffle else _FILE_ORDER_TOKENS
    for number in count(start.block):
        place = Place(start.epoch, number, shard, line, behind, sentence)
        sentences = encode_sentences(source, vocab, order.shuffle_buffer, max_tokens)
        if len(sentences) < behind:
            raise _changed(f"a block has {len(sentences)} sentences instead of {behind}")
        if not len(sentences):
            return
        if order.shuffle:
            shuffled = np.random.default_rng((*seed, number)).permutation(len(sentences))
            sentences = sentences.select(shuffled[behind:])
        sentence += len(sentences)
        behind = 0
        yield Block(sentences, place)


def _skip(lines: Iterator[str], n_lines: int) -> None:
    found = sum(1 for _ in islice(lines, n_lines))
    if found < n_lines:
        raise _changed(f"there are {found} sentences where {n_lines} were read before")


def _changed(problem: str) -> CheckpointError:
    return CheckpointError(f"the text has changed: {problem}")
