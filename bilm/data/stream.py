"""A corpus as a stream of encoded sentences: selection, order, and positions from which to resume."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, islice
from typing import Annotated

import numpy as np

from bilm.errors import CheckpointError, DataError
from bilm.io import PathLike, json_objects
from bilm.io.lines import read_lines
from bilm.io.shards import name_files
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary
from bilm.vocabulary.vocabulary_file import EOS

_ENCODE_TOKENS = 1 << 13  # looked up at a time; their strings fit in the processor's cache


_Number = Annotated[int, json_objects.Bounds(least=0, below=1 << 62)]


@dataclasses.dataclass(frozen=True)
class Order:
    """The order in which a corpus is read.

    Attributes:
        shuffle: read the shards in random order and shuffle the sentences within consecutive blocks, which
            may span shards; otherwise, read in file order.
        seed: seed of the order, which depends only on it, the epoch and the number of the block.
        shuffle_buffer: maximum sentences of a block; blocks of very long lines have fewer.
        passage_tokens: shuffle passages of consecutive sentences with about this many tokens, each then
            treated as one sentence; 0 for single sentences.
        part: number of this worker, from 0.
        n_parts: number of workers, each of which reads its own part of the corpus.
    """

    shuffle: bool = False
    seed: int = 0
    shuffle_buffer: int = 100_000
    passage_tokens: int = 0
    part: int = 0
    n_parts: int = 1


@dataclasses.dataclass(frozen=True)
class Place:
    """The place of the next sentence in the stream.

    Attributes:
        epoch: number of the epoch, from 0.
        block: number of the shuffled block in the epoch, from 0.
        shard: number of the shard in which the block begins, from 0 in the order of the epoch.
        line: sentences of this part in that shard before the block.
        taken: sentences of the block before this one.
        sentence: sentences of the epoch before this one.
    """

    epoch: _Number = 0
    block: _Number = 0
    shard: _Number = 0
    line: _Number = 0
    taken: _Number = 0
    sentence: _Number = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Unfinished:
    """A sentence that a row has read in part.

    Attributes:
        text: words of the sentence, separated by spaces.
        offset: number of inputs already read, including ``<S>``; from 1 to the number of words.

    Raises:
        DataError: the offset is beyond the words.
    """

    text: str
    offset: Annotated[int, json_objects.Bounds(least=1)]

    def __post_init__(self) -> None:
        if self.offset > (n_words := len(self.text.split())):
            problem = f"offset: must be at most the {n_words} words of the text"
            raise DataError.listing("invalid position", [problem])


@dataclasses.dataclass(frozen=True, eq=False)
class Position:
    """A position in a stream of batches, from which it can be resumed.

    Attributes:
        place: place of the next sentence.
        rows: the unfinished sentence of each row; None if the row takes the next sentence.
    """

    place: Place
    rows: Sequence[Unfinished | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Sentences:
    """Sentences as ids. The arrays are never modified.

    A sentence of n words has n + 1 ids: its words and ``</S>``; its ``<S>`` is not stored. So the id before
    each sentence, cyclically, is ``</S>``.

    Attributes:
        ids: int32 (n ids,). An out-of-vocabulary word ``oov[k]`` has id ``vocab.size + k`` with a
            character-level vocabulary, otherwise the id of ``<UNK>``.
        starts: int64 (n sentences,), index in `ids` at which each sentence starts, in any order.
        ends: int64 (n sentences,), index at which it ends.
        oov: distinct out-of-vocabulary words, in the vocabulary's normal form.
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    oov: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths(self) -> np.ndarray:
        """Number of ids of each sentence, its words and ``</S>``; int64 (n sentences,)."""
        return self.ends - self.starts

    def select(self, numbers: np.ndarray | slice) -> "Sentences":
        """Return chosen sentences, in the order of their numbers, over the same ids."""
        return Sentences(self.ids, self.starts[numbers], self.ends[numbers], self.oov)

    def in_passages(self, n_tokens: int) -> "Sentences":
        """Join the sentences that start in the same stretch of `n_tokens` ids.

        The sentences must be in the order of their ids. A passage is a sentence with ``</S>`` inside.
        """
        firsts = np.flatnonzero(np.diff(self.starts // n_tokens, prepend=-1))
        lasts = np.append(firsts[1:], len(self)) - 1
        return Sentences(self.ids, self.starts[firsts], self.ends[lasts], self.oov)

    def packed(self, vocab: Vocabulary) -> "Sentences":
        """Return the same sentences over a copy of only their own ids and words."""
        ends = np.cumsum(self.lengths)
        starts = ends - self.lengths
        ids = self.ids[np.arange(self.lengths.sum()) + np.repeat(self.starts - starts, self.lengths)]
        oov = renumber_oov(ids, vocab.size, self.oov)
        return Sentences(ids, starts, ends, oov)

    def pairs(
        self,
        vocab: Vocabulary,
        n_directions: int,
        offsets: np.ndarray | int = 0,
        lengths: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return inputs and targets, in the order of each direction, int32 (2, directions, n tokens).

        Args:
            vocab: vocabulary of the ids; out-of-vocabulary targets are ``<UNK>``.
            n_directions: 1 for the forward direction, 2 for both.
            offsets: int64 (n sentences,), start of a part of each sentence.
            lengths: int64 (n sentences,), tokens of the parts, at least 1; None for whole sentences.
        """
        lengths = self.lengths if lengths is None else lengths
        stops = np.cumsum(lengths)
        forward = np.arange(stops[-1]) + np.repeat(self.starts + offsets + lengths - stops, lengths)
        # Backward from the last word to the first: the target is the preceding word.
        backward = np.repeat(self.starts + self.ends - 1, lengths) - forward
        places = np.stack([forward, backward][:n_directions])
        before, own = self.ids[places - 1], self.ids[places]
        before[before == vocab.eos] = vocab.bos  # before the first word of a sentence
        inputs, targets = np.stack([before[0], *own[1:]]), np.stack([own[0], *before[1:]])
        if self.oov:
            np.copyto(targets, vocab.unk, where=targets >= vocab.size)
        return np.stack([inputs, targets])

    def words(self, number: int, vocab: Vocabulary) -> list[str]:
        """Return the words of a sentence; see `words_of`."""
        return self.words_of(self.ids[self.starts[number] : self.ends[number] - 1], vocab)

    def words_of(self, ids: np.ndarray, vocab: Vocabulary) -> list[str]:
        """Return the words of ids; with a word-level vocabulary, ``<UNK>`` for out-of-vocabulary words."""
        return [vocab.words[k] if k < vocab.size else self.oov[k - vocab.size] for k in ids.tolist()]


def encode_sentences(
    lines: Iterable[str],
    vocab: Vocabulary,
    max_sentences: int | None = None,
    max_tokens: int | None = None,
) -> Sentences:
    """Encode the next sentences.

    Args:
        lines: one sentence each; only the encoded lines are consumed.
        vocab: character-level or word-level vocabulary.
        max_sentences: maximum number of sentences.
        max_tokens: stop after the sentence that reaches this number of tokens, including both marks.

    Raises:
        VocabularyError: the vocabulary lacks a sentence mark, or lacks ``<UNK>`` and a word is unknown.
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


def _encode(tokens: Sequence[str], vocab: Vocabulary, oov: dict[str, int]) -> np.ndarray:
    """Return the ids of tokens; out-of-vocabulary words are added to `oov` with their numbers."""
    if not isinstance(vocab, UnicodeCharsVocabulary):
        return vocab.word_ids(tokens)
    ids = vocab.lookup(tokens)
    outside = np.flatnonzero(ids < 0)
    if outside.size:
        vocab.unk_for(tokens[outside[0]])  # required as target, although the input is read by characters
        words = vocab.in_form([tokens[k] for k in outside.tolist()])
        ids[outside] = [vocab.size + oov.setdefault(word, len(oov)) for word in words]
    return ids


def join_sentences(parts: Sequence[Sentences], vocab: Vocabulary) -> Sentences:
    """Concatenate sentences, with a common numbering of their out-of-vocabulary words."""
    table: dict[str, int] = {}
    ids = np.concatenate([part.ids for part in parts])
    shifts = np.cumsum([0, *(len(part.ids) for part in parts)])
    for part, start, end in zip(parts, shifts, shifts[1:], strict=False):
        numbers = np.array([table.setdefault(word, len(table)) for word in part.oov], np.int32)
        of_part = ids[start:end]
        outside = np.flatnonzero(of_part >= vocab.size)
        of_part[outside] = vocab.size + numbers[of_part[outside] - vocab.size]
    bounds = [np.stack([part.starts, part.ends]) + shift for part, shift in zip(parts, shifts, strict=False)]
    starts, ends = np.concatenate(bounds, axis=1)
    return Sentences(ids, starts, ends, tuple(table))


def renumber_oov(ids: np.ndarray, size: int, oov: Sequence[str]) -> tuple[str, ...]:
    """Renumber the out-of-vocabulary words of `ids`, in place, in order of occurrence.

    Args:
        ids: int32, any shape, contiguous; id ``size + k`` stands for ``oov[k]``.
        size: size of the vocabulary.
        oov: out-of-vocabulary words, which may include words that `ids` lacks.

    Returns:
        The distinct out-of-vocabulary words of `ids`; id ``size + k`` now stands for the k-th of them.
    """
    flat = ids.reshape(-1)
    outside = np.flatnonzero(flat >= size)
    numbers: dict[int, int] = {}
    flat[outside] = [size + numbers.setdefault(k, len(numbers)) for k in (flat[outside] - size).tolist()]
    return tuple(oov[k] for k in numbers)


_MAX_BUFFER_TOKENS = 1 << 25  # second limit of the shuffle buffer, for corpora with very long lines
_FILE_ORDER_TOKENS = 1 << 16  # size of a block without shuffling


@dataclasses.dataclass(frozen=True, slots=True)
class Block:
    """Sentences in the order in which they are read, and the place of the first one."""

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
    """Yield the sentences of a corpus, for one epoch or endlessly.

    Args:
        files: all shards of the corpus; `order` selects this worker's part.
        vocab: character-level or word-level vocabulary.
        order: order of reading.
        endless: start another epoch when one ends.
        keep_blank: read a blank line as an empty sentence, as bilm-tf.
        start: place of the first sentence. Shards before its block are not opened, and lines before its block
            are not encoded.

    Raises:
        CheckpointError: the text has no place `start`.
        DataError: the files cannot be read, or have no sentence (`endless` only).
        VocabularyError: the vocabulary lacks a sentence mark, or lacks ``<UNK>`` and a word is unknown.
    """
    start = start or Place()
    by_shard = len(files) >= order.n_parts
    shards = files[order.part :: order.n_parts] if by_shard else files
    within = dataclasses.replace(order, part=0, n_parts=1) if by_shard else order
    for first in chain([start], map(Place, count(start.epoch + 1))):
        is_empty = not first.sentence
        for block in _epoch(shards, vocab, within, first, keep_blank):
            is_empty = False
            yield block
        if not endless:
            return
        if is_empty:
            reason = ": the corpus is empty"
            if order.n_parts > 1:
                worker = f"worker {order.part} of {order.n_parts} (from 0)"
                reason = f" for {worker}: use fewer workers, or files of similar size"
            raise DataError(f"no sentences in {name_files(shards)}{reason}")


def every_nth(files: Sequence[PathLike], vocab: Vocabulary, n: int) -> Iterator[Sentences]:
    """Yield every n-th sentence of a corpus, in order and in blocks; the others are not encoded.

    Raises:
        DataError: the files cannot be read.
        VocabularyError: as `sentence_stream`.
    """
    lines = chain.from_iterable(map(read_lines, files))
    chosen = islice(filter(str.strip, lines), 0, None, n)
    while sentences := encode_sentences(chosen, vocab, None, _FILE_ORDER_TOKENS):
        yield sentences


def _epoch(
    shards: Sequence[PathLike], vocab: Vocabulary, order: Order, start: Place, keep_blank: bool
) -> Iterator[Block]:
    """Yield the blocks of one epoch, from a place; `order` selects a part of the sentences of each shard."""
    seed = (order.seed, start.epoch)
    if order.shuffle:
        shards = [shards[k] for k in np.random.default_rng(seed).permutation(len(shards))]
    if start.shard >= max(1, len(shards)):
        raise _changed(f"there are {len(shards)} files to read, and {start.shard} were read before")
    shard, line = start.shard, start.line  # place of the next line

    def texts() -> Iterator[str]:
        nonlocal shard, line
        for number in range(start.shard, len(shards)):
            lines = read_lines(shards[number])
            if not keep_blank:
                lines = (text for text in lines if text and not text.isspace())
            lines = islice(lines, order.part, None, order.n_parts)
            if number == start.shard:
                _skip(lines, start.line)
            else:
                shard, line = number, 0
            for text in lines:
                line += 1
                yield text

    source = texts()
    sentence, behind = start.sentence, start.taken
    if not order.shuffle:  # without shuffling, a block may begin anywhere
        _skip(source, behind)
        behind = 0
    max_tokens = _MAX_BUFFER_TOKENS if order.shuffle else _FILE_ORDER_TOKENS
    for number in count(start.block):
        place = Place(start.epoch, number, shard, line, behind, sentence)
        sentences = encode_sentences(source, vocab, order.shuffle_buffer, max_tokens)
        if not len(sentences):
            return
        if order.shuffle and order.passage_tokens:
            sentences = sentences.in_passages(order.passage_tokens)
        if len(sentences) < behind:
            raise _changed(f"a block has {len(sentences)} sentences instead of {behind}")
        if order.shuffle:
            shuffled = np.random.default_rng((*seed, number)).permutation(len(sentences))
            sentences = sentences.select(shuffled[behind:])
        sentence += len(sentences)
        behind = 0
        yield Block(sentences, place)


def _skip(lines: Iterator[str], n_lines: int) -> None:
    n_skipped = sum(1 for _ in islice(lines, n_lines))
    if n_skipped < n_lines:
        raise _changed(f"there are {n_skipped} sentences where {n_lines} were read before")


def _changed(problem: str) -> CheckpointError:
    return CheckpointError(f"the text has changed: {problem}; restore it, or continue with `bilm restart`")
