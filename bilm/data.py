"""Batches for truncated back-propagation through time: compact ones, and bilm-tf's.

Each row of a batch reads its own stream of sentences ``<S> ... </S>``. A row takes the next sentence
of the corpus when its own runs out; a sentence that does not end in a window goes on in the same row
of the next one. A sentence of n words gives n + 1 pairs of input and target. The backward direction
reads the same sentences reversed, ``</S>`` first.

The compact road, ``sentence_stream -> pack_windows -> compact``, carries word ids and the characters
of each distinct word of a window once. `LMDataset` and `BidirectionalLMDataset` give bilm-tf's
dictionaries with the characters of every token.
"""

import os
import queue
import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from bilm.batching import Batcher, TokenBatcher
from bilm.corpus import find_files, read_sentences
from bilm.errors import DataError, OptionsError, VocabularyError
from bilm.vocab import BOS, EOS, UnicodeCharsVocabulary, Vocabulary

__all__ = [
    "Batch",
    "Batcher",
    "BidirectionalLMDataset",
    "EncodedSentence",
    "InvalidNumberOfCharacters",
    "LMDataset",
    "TokenBatcher",
    "UnicodeCharsVocabulary",
    "Vocabulary",
    "Window",
    "compact",
    "encode_sentences",
    "evaluation_batches",
    "length_buckets",
    "pack_windows",
    "prefetch",
    "sentence_stream",
    "training_batches",
]

PathLike = str | os.PathLike[str]
Item = TypeVar("Item")

_ENCODE_TOKENS = 1 << 13
_MAX_BUFFER_TOKENS = 1 << 25  # a second limit of the shuffle buffer, for corpora of very long lines
_BUCKET_LENGTHS = (6, 8, 10, 13, 18, 26)


class InvalidNumberOfCharacters(OptionsError):
    """``n_characters`` is not what training (261) or inference (262) needs."""


@dataclass(frozen=True, slots=True)
class EncodedSentence:
    """A sentence as ids.

    Attributes:
        ids: int32 (n words + 2,), from ``<S>`` to ``</S>``. With a vocabulary over characters an
            out-of-vocabulary word is ``vocab.size + k`` for ``oov[k]``; otherwise it is ``<UNK>``.
        oov: The out-of-vocabulary words in order of occurrence.
    """

    ids: np.ndarray
    oov: tuple[str, ...] = ()


@dataclass(frozen=True)
class Window:
    """Consecutive tokens of every row, row-major, word ids only.

    Attributes:
        inputs: int32 (directions, rows, steps); an id of ``vocab.size + k`` is ``oov[k]``.
        targets: int32 (directions, rows, steps); out-of-vocabulary words are ``<UNK>``.
        weights: float32 (rows, steps): 1 where there is a token, 0 (and ids 0) where the row ran out.
        oov: Distinct out-of-vocabulary words of the window.
    """

    inputs: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    oov: tuple[str, ...]


@dataclass(frozen=True)
class Batch:
    """What a step of the model takes, time-major.

    Attributes:
        type_characters: One int32 (n types, width) for each of `length_buckets`, perhaps without
            rows: character ids of the distinct words, of both directions together. Empty tuple for a
            vocabulary over words.
        token_types: int32 (directions, steps, rows): the token's row in the concatenation of
            `type_characters`; for a vocabulary over words its id.
        targets: int32 (directions, steps, rows): id of the word to predict.
        weights: float32 (steps, rows): 1 where there is a target to score, 0 elsewhere (there
            `token_types` and `targets` are 0); the same for both directions.
    """

    type_characters: tuple[np.ndarray, ...]
    token_types: np.ndarray
    targets: np.ndarray
    weights: np.ndarray


def training_batches(
    files: Sequence[PathLike],
    vocab: Vocabulary,
    *,
    batch_size: int,
    unroll_steps: int,
    bidirectional: bool,
    max_filter_width: int | None = None,
    n_replicas: int = 1,
    shuffle: bool = True,
    seed: int = 0,
    shuffle_buffer: int = 100_000,
    skip: int = 0,
) -> Iterator[tuple[Batch, ...]]:
    """Yield batches without end, as many at a time as there are replicas.

    Args:
        files: The shards of the corpus.
        vocab: Over characters or over words.
        batch_size: Rows of one replica.
        unroll_steps: Tokens of a row in a batch.
        bidirectional: Whether there is a second, backward direction.
        max_filter_width: Of the character CNN; needed for a vocabulary over characters only.
        n_replicas: Replica k has rows ``k * batch_size`` to ``(k + 1) * batch_size`` of one window.
        shuffle: See `sentence_stream`, as the two arguments after it.
        seed: Seed of the shuffling.
        shuffle_buffer: Sentences shuffled together.
        skip: Start after so many batches, with the very ones that would have followed. The text is
            read again for it, some millions of tokens a second.

    Raises:
        DataError: The files cannot be read or have no sentence.
        OptionsError: An argument that must be positive is not.
        VocabularyError: The vocabulary has not all three special tokens.
    """
    _require_positive(n_replicas=n_replicas, batch_size=batch_size)
    sentences = sentence_stream(
        files, vocab, shuffle=shuffle, seed=seed, shuffle_buffer=shuffle_buffer, endless=True
    )
    windows = pack_windows(
        sentences,
        vocab,
        n_rows=n_replicas * batch_size,
        n_steps=unroll_steps,
        bidirectional=bidirectional,
        tail="drop",
        skip=skip,
    )
    parts = [slice(k * batch_size, (k + 1) * batch_size) for k in range(n_replicas)]
    for window in windows:
        yield tuple(compact(window, vocab, max_filter_width, rows) for rows in parts)


def evaluation_batches(
    files: Sequence[PathLike],
    vocab: Vocabulary,
    *,
    batch_size: int,
    unroll_steps: int,
    bidirectional: bool,
    max_filter_width: int | None = None,
    compat: bool = False,
) -> Iterator[Batch]:
    """Yield one pass over the files, in order, every target once.

    Args:
        files: As for `training_batches`, as the arguments not described here.
        vocab: Over characters or over words.
        batch_size: Rows; they only change how the state of the model is carried.
        unroll_steps: Tokens of a row in a batch.
        bidirectional: Whether there is a second, backward direction.
        max_filter_width: Of the character CNN.
        compat: Read exactly the tokens bilm-tf's test reads at unroll 1 and this batch size: blank
            lines are empty sentences, files come as in ``LMDataset(test=True)``, and all is over
            when a row finds no further sentence. The one-step windows are joined, so that long
            windows give the same numbers. Less than one full row each yields nothing.

    Raises:
        DataError: The files cannot be read.
        OptionsError: An argument that must be positive is not.
        VocabularyError: The vocabulary has not all three special tokens.
    """
    if compat:
        files = tuple(reversed(files))
    windows = pack_windows(
        encode_sentences(files, vocab, keep_blank=compat),
        vocab,
        n_rows=batch_size,
        n_steps=unroll_steps,
        bidirectional=bidirectional,
        tail="drop" if compat else "mask",
        pull_steps=1 if compat else None,
    )
    for window in windows:
        yield compact(window, vocab, max_filter_width)


def encode_sentences(
    files: Iterable[PathLike], vocab: Vocabulary, keep_blank: bool = False
) -> Iterator[EncodedSentence]:
    """Yield the sentences of files as ids.

    Args:
        files: Read in the order given.
        vocab: Over characters or over words, with all three special tokens.
        keep_blank: Take a blank line for an empty sentence, as bilm-tf does.

    Raises:
        DataError: A file cannot be read.
        VocabularyError: A special token is missing.
    """
    if min(vocab.bos, vocab.eos, vocab.unk) < 0:
        raise VocabularyError("the vocabulary has not all of <S>, </S>, <UNK>")
    tokens: list[str] = []
    ends: list[int] = []
    for path in files:
        for words in read_sentences(path, keep_blank):
            tokens.append(BOS)
            tokens += words
            tokens.append(EOS)
            ends.append(len(tokens))
            if len(tokens) >= _ENCODE_TOKENS:
                yield from _encode(tokens, ends, vocab)
                tokens, ends = [], []
    yield from _encode(tokens, ends, vocab)


def _encode(tokens: list[str], ends: list[int], vocab: Vocabulary) -> Iterator[EncodedSentence]:
    """Encode sentences that lie end to end."""
    ids = vocab.lookup(tokens)
    spans = pairwise([0, *ends])
    outside = np.flatnonzero(ids < 0)
    if not outside.size or not isinstance(vocab, UnicodeCharsVocabulary):
        ids[outside] = vocab.unk
        for start, end in spans:
            yield EncodedSentence(ids[start:end])
        return
    bounds = np.searchsorted(outside, [0, *ends])  # of each sentence in `outside`
    ids[outside] = vocab.size + np.arange(outside.size) - np.repeat(bounds[:-1], np.diff(bounds))
    words = [tokens[position] for position in outside.tolist()]
    for (start, end), (first, last) in zip(spans, pairwise(bounds.tolist()), strict=True):
        yield EncodedSentence(ids[start:end], tuple(words[first:last]))


def sentence_stream(
    files: Sequence[PathLike],
    vocab: Vocabulary,
    *,
    shuffle: bool,
    seed: int,
    shuffle_buffer: int = 100_000,
    endless: bool,
) -> Iterator[EncodedSentence]:
    """Yield sentences, one epoch or without end.

    Args:
        files: The shards.
        vocab: Over characters or over words, with all three special tokens.
        shuffle: Take the shards in random order and shuffle the sentences within consecutive blocks;
            a block may go over shards. Without it: file order.
        seed: The order depends on it, the epoch and the number of the block only.
        shuffle_buffer: Sentences of a block; blocks of very long lines are ended sooner.
        endless: Start another epoch when one ends.

    Raises:
        DataError: The files cannot be read, or have no sentence (`endless` only).
        VocabularyError: A special token is missing.
    """
    _require_positive(shuffle_buffer=shuffle_buffer)
    for epoch in count():
        is_empty = True
        for sentence in _epoch(files, vocab, (seed, epoch) if shuffle else None, shuffle_buffer):
            is_empty = False
            yield sentence
        if not endless:
            return
        if is_empty:
            names = ", ".join(str(path) for path in files[:3]) + (", ..." if len(files) > 3 else "")
            raise DataError(f"no sentence in {names or 'no files'}: the corpus is empty")


def _epoch(
    files: Sequence[PathLike], vocab: Vocabulary, seed: tuple[int, int] | None, shuffle_buffer: int
) -> Iterator[EncodedSentence]:
    """Yield one epoch, in file order without a seed."""
    if seed is None:
        yield from encode_sentences(files, vocab)
        return
    shards = [files[k] for k in np.random.default_rng(seed).permutation(len(files))]
    for number, block in enumerate(_blocks(encode_sentences(shards, vocab), shuffle_buffer)):
        for k in np.random.default_rng((*seed, number)).permutation(len(block)).tolist():
            yield block[k]


def _blocks(sentences: Iterator[EncodedSentence], n_sentences: int) -> Iterator[list[EncodedSentence]]:
    """Cut a stream into lists of `n_sentences`, fewer where these are very long."""
    block: list[EncodedSentence] = []
    n_tokens = 0
    for sentence in sentences:
        block.append(sentence)
        n_tokens += len(sentence.ids)
        if len(block) == n_sentences or n_tokens >= _MAX_BUFFER_TOKENS:
            yield block
            block, n_tokens = [], 0
    if block:
        yield block


_Piece = tuple[EncodedSentence, int, int]  # sentence, first input position, position after the last


def pack_windows(
    sentences: Iterable[EncodedSentence],
    vocab: Vocabulary,
    *,
    n_rows: int,
    n_steps: int,
    bidirectional: bool,
    tail: Literal["mask", "drop"],
    pull_steps: int | None = None,
    skip: int = 0,
) -> Iterator[Window]:
    """Lay a stream of sentences out in rows.

    Rows are filled one after the other, each with the sentences it needs for its next steps.

    Args:
        sentences: Read once, for both directions.
        vocab: The one that encoded the sentences.
        n_rows: Rows.
        n_steps: Tokens of a row in a window.
        bidirectional: Whether there is a second, backward direction.
        tail: When a row finds no further sentence, ``"mask"`` lets the others go on to their ends,
            so that every target comes exactly once; ``"drop"`` ends there and drops the unfinished
            window, as bilm-tf does.
        pull_steps: Give each row the sentences for so many steps before the next row's turn, instead
            of for `n_steps`; a divisor of it. 1 reads as windows of one step do. With ``"drop"`` only
            the unfinished part of that length is dropped and the rest of the window is masked.
        skip: Leave out so many windows at the start.

    Raises:
        OptionsError: A number that must be positive is not, or `tail` or `pull_steps` is none of these.
    """
    pull_steps = n_steps if pull_steps is None else pull_steps
    _require_positive(n_rows=n_rows, n_steps=n_steps, pull_steps=pull_steps)
    if tail not in ("mask", "drop") or n_steps % pull_steps:
        raise OptionsError(f"tail '{tail}' must be 'mask' or 'drop', and {pull_steps} divide {n_steps}")
    padding = EncodedSentence(np.zeros(pull_steps + 1, np.int32))
    turns = _turns(iter(sentences), n_rows, pull_steps, padding, tail == "drop")
    n_turns = n_steps // pull_steps
    turns = islice(turns, skip * n_turns, None)
    while window := list(islice(turns, n_turns)):
        window += [[(padding, 0, pull_steps)] * n_rows] * (n_turns - len(window))
        yield _window(window, (n_turns, n_rows, pull_steps), vocab, bidirectional, padding)


def _turns(
    source: Iterator[EncodedSentence], n_rows: int, n_steps: int, padding: EncodedSentence, drop: bool
) -> Iterator[list[_Piece]]:
    """Yield the pieces of sentences that fill `n_steps` of every row, row after row."""
    current, position = [padding] * n_rows, [n_steps] * n_rows  # a finished sentence each
    while True:
        pieces: list[_Piece] = []
        n_padding = 0
        for row in range(n_rows):
            sentence, start, room = current[row], position[row], n_steps
            while room:
                left = len(sentence.ids) - 1 - start
                if not left:
                    following = next(source, None)
                    if following is None:
                        if drop:
                            return
                        pieces.append((padding, 0, room))
                        n_padding += room
                        break
                    sentence, start, left = following, 0, len(following.ids) - 1
                end = start + min(left, room)
                pieces.append((sentence, start, end))
                room -= end - start
                start = end
            current[row], position[row] = sentence, start
        if n_padding == n_rows * n_steps:
            return
        yield pieces


def _window(
    turns: list[list[_Piece]],
    shape: tuple[int, int, int],
    vocab: Vocabulary,
    bidirectional: bool,
    padding: EncodedSentence,
) -> Window:
    """Join pieces into the arrays of a window; the shape is (turns, rows, steps of a turn)."""
    pieces = [piece for turn in turns for piece in turn]
    lengths = np.array([end - start for _, start, end in pieces])
    of_piece = np.repeat(np.arange(len(pieces)), lengths)  # piece of each token
    at = np.arange(len(of_piece)) + of_piece  # place of each input among spans one token longer
    spans = [np.concatenate([sentence.ids[start : end + 1] for sentence, start, end in pieces])]
    if bidirectional:
        spans.append(np.concatenate([sentence.ids[::-1][start : end + 1] for sentence, start, end in pieces]))
    flat = np.stack(spans)
    inputs, targets = flat[:, at], flat[:, at + 1]
    oov = _share_oov(inputs, of_piece, pieces, vocab.size)
    targets[targets >= vocab.size] = vocab.unk
    weights = np.ones(len(at), np.float32)
    weights[np.array([sentence is padding for sentence, _, _ in pieces])[of_piece]] = 0
    n_turns, n_rows, n_steps = shape

    def by_row(values: np.ndarray) -> np.ndarray:
        turned = values.reshape(-1, *shape).transpose(0, 2, 1, 3)
        return turned.reshape(*values.shape[:-1], n_rows, n_turns * n_steps)

    return Window(by_row(inputs), by_row(targets), by_row(weights), oov)


def _share_oov(inputs: np.ndarray, of_piece: np.ndarray, pieces: list[_Piece], size: int) -> tuple[str, ...]:
    """Turn ids into the sentences' own out-of-vocabulary words, in place, into ids into one tuple."""
    table: dict[str, int] = {}
    for direction in inputs:
        outside = np.flatnonzero(direction >= size)
        numbers = zip(of_piece[outside].tolist(), (direction[outside] - size).tolist(), strict=True)
        words = [pieces[piece][0].oov[k] for piece, k in numbers]
        direction[outside] = [size + table.setdefault(word, len(table)) for word in words]
    return tuple(table)


def length_buckets(max_characters: int, max_filter_width: int) -> tuple[int, ...]:
    """Return the widths of the length buckets, ascending; the last is `max_characters`.

    A word of L characters (word marks included) belongs in the first bucket of at least
    ``min(max_characters, L + max_filter_width)``: wide enough for a convolution window that lies in
    the padding wholly, so that the maximum over positions is the same as in a full row.

    Args:
        max_characters: Characters of a full row.
        max_filter_width: Of the widest filter.
    """
    widths = {min(max_characters, length + max_filter_width) for length in _BUCKET_LENGTHS}
    return tuple(sorted(widths | {max_characters}))


def compact(
    window: Window, vocab: Vocabulary, max_filter_width: int | None = None, rows: slice | None = None
) -> Batch:
    """Turn a window, or some of its rows, into a batch.

    Args:
        window: Of `pack_windows`.
        vocab: The one that encoded the window.
        max_filter_width: Of the character CNN; needed for a vocabulary over characters only.
        rows: All by default.

    Raises:
        OptionsError: `max_filter_width` is missing.
    """
    rows = slice(None) if rows is None else rows
    weights = np.ascontiguousarray(window.weights[rows].T)  # (steps, rows)
    targets = np.ascontiguousarray(window.targets[:, rows].transpose(0, 2, 1))
    words = np.ascontiguousarray(window.inputs[:, rows].transpose(0, 2, 1))
    if not isinstance(vocab, UnicodeCharsVocabulary):
        return Batch((), words, targets, weights)
    if max_filter_width is None:
        raise OptionsError("max_filter_width is needed for a vocabulary over characters")
    types, token_types = np.unique(words, return_inverse=True)
    most = vocab.max_word_length
    widths = np.array(length_buckets(most, max_filter_width))
    needed = np.minimum(most, vocab.character_lengths(types, window.oov) + max_filter_width)
    bucket = np.searchsorted(widths, needed)
    order = np.argsort(bucket, kind="stable")  # position in the concatenation -> number of the type
    position = np.empty(len(types), np.int32)
    position[order] = np.arange(len(types), dtype=np.int32)
    ends = np.cumsum(np.bincount(bucket, minlength=len(widths)))[:-1]
    characters = tuple(
        vocab.character_rows(members, window.oov, width)
        for members, width in zip(np.split(types[order], ends), widths.tolist(), strict=True)
    )
    rows_of_tokens = position[token_types.reshape(words.shape)]
    rows_of_tokens[:, weights == 0] = 0
    return Batch(characters, rows_of_tokens, targets, weights)


def prefetch(iterator: Iterable[Item], depth: int = 4) -> Iterator[Item]:
    """Yield the items of an iterator that a background thread runs ahead.

    Args:
        iterator: Run in the thread alone, and closed by it if it can be.
        depth: Items ready at most.

    Raises:
        Exception: Whatever the iterator raises, when the items before it are used up.
    """
    ready: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(depth)
    stop = threading.Event()
    thread = threading.Thread(target=_produce, args=(iterator, ready, stop), name="prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item, ending = ready.get()
            if isinstance(ending, StopIteration):
                return
            if ending is not None:
                raise ending
            yield item  # type: ignore[misc]
    finally:
        stop.set()
        while not ready.empty():  # room for the item the thread may be waiting to put
            ready.get_nowait()


def _produce(iterator: Iterable, ready: queue.Queue, stop: threading.Event) -> None:
    """Put (item, None) for each item, then (None, how it ended), until told to stop."""
    source = iter(iterator)
    try:
        while not stop.is_set():
            _put(ready, (next(source), None), stop)
    except BaseException as error:
        _put(ready, (None, error), stop)
    finally:
        if hasattr(source, "close"):
            source.close()


def _put(ready: queue.Queue, item: tuple, stop: threading.Event) -> None:
    """Put an item as soon as there is room, or drop it when told to stop."""
    while not stop.is_set():
        try:
            ready.put(item, timeout=0.1)
        except queue.Full:
            continue
        return


class LMDataset:
    """bilm-tf's reader of one direction.

    Blank lines are empty sentences. Shards come in random order without end or, in a test, once: from
    the last of the sorted names to the first (bilm-tf takes them from the end of an unsorted list).
    The random numbers come from Python's `random`, seeded there.

    Args:
        filepattern: Patterns for `find_files`.
        vocab: A `UnicodeCharsVocabulary` gives batches with characters.
        reverse: Turn every sentence round.
        test: Read the shards once instead of without end.
        shuffle_on_load: Shuffle the sentences of a shard, which is then held in memory.

    Raises:
        DataError: No file matches; when read, a file is not text or all are empty.
    """

    def __init__(
        self,
        filepattern: PathLike | Sequence[PathLike],
        vocab: Vocabulary,
        reverse: bool = False,
        test: bool = False,
        shuffle_on_load: bool = False,
    ) -> None:
        self._files = find_files(filepattern)
        self._vocab = vocab
        self._reverse = reverse
        self._test = test
        self._shuffle_on_load = shuffle_on_load
        self._random = random.Random(random.getrandbits(64))
        self._sentences = self._read()

    @property
    def vocab(self) -> Vocabulary:
        """The vocabulary."""
        return self._vocab

    @property
    def max_word_length(self) -> int | None:
        """Characters of a word, None for a vocabulary over words."""
        return self._vocab.max_word_length if isinstance(self._vocab, UnicodeCharsVocabulary) else None

    def get_sentence(self) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Yield (ids (n words + 2,), characters (n words + 2, max_word_length) or None), going on."""
        for words in self._sentences:  # not "yield from", which would close it with this generator
            if self._reverse:
                words = words[::-1]
            ids = self._vocab.encode(words, self._reverse, split=False)
            if isinstance(self._vocab, UnicodeCharsVocabulary):
                yield ids, self._vocab.encode_chars(words, self._reverse, split=False)
            else:
                yield ids, None

    def iter_batches(self, batch_size: int, num_steps: int) -> Iterator[dict[str, np.ndarray | None]]:
        """Yield ``token_ids``, ``tokens_characters``, ``next_token_id``.

        The ids are int32 (batch_size, num_steps), the characters int32 (batch_size, num_steps,
        max_word_length) or None. The last batch is dropped unless it is full.
        """
        _require_positive(batch_size=batch_size, num_steps=num_steps)
        return _reference_batches(self.get_sentence(), batch_size, num_steps, self.max_word_length)

    def _read(self) -> Iterator[list[str]]:
        """Yield the words of sentences."""
        while True:
            is_empty = True
            for path in self._shards():
                sentences: Iterable[list[str]] = read_sentences(path, keep_blank=True)
                if self._shuffle_on_load:
                    sentences = list(sentences)
                    self._random.shuffle(sentences)
                for words in sentences:
                    is_empty = False
                    yield words
            if self._test:
                return
            if is_empty:
                raise DataError(f"no sentence in {self._files[0]} (of {len(self._files)} files)")

    def _shards(self) -> list[Path]:
        shards = list(self._files)
        if not self._test:
            self._random.shuffle(shards)
        return shards[::-1]


class BidirectionalLMDataset:
    """bilm-tf's reader of both directions.

    Both read the same sentences in the same order; in bilm-tf they part when there is any shuffling.
    The arguments and errors are those of `LMDataset`.
    """

    def __init__(
        self,
        filepattern: PathLike | Sequence[PathLike],
        vocab: Vocabulary,
        test: bool = False,
        shuffle_on_load: bool = False,
    ) -> None:
        self._forward = LMDataset(filepattern, vocab, False, test, shuffle_on_load)
        self._backward = LMDataset(filepattern, vocab, True, test, shuffle_on_load)
        self._backward._random.setstate(self._forward._random.getstate())

    @property
    def vocab(self) -> Vocabulary:
        """The vocabulary."""
        return self._forward.vocab

    @property
    def max_word_length(self) -> int | None:
        """Characters of a word, None for a vocabulary over words."""
        return self._forward.max_word_length

    def get_sentence(self) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
        """Yield the sentences of the forward direction, as `LMDataset`."""
        return self._forward.get_sentence()

    def iter_batches(self, batch_size: int, num_steps: int) -> Iterator[dict[str, np.ndarray | None]]:
        """Yield what `LMDataset` does, and the same for the backward direction with ``_reverse``."""
        forward = self._forward.iter_batches(batch_size, num_steps)
        backward = self._backward.iter_batches(batch_size, num_steps)
        for batch, turned in zip(forward, backward, strict=False):
            yield batch | {f"{name}_reverse": array for name, array in turned.items()}


def _reference_batches(
    sentences: Iterator[tuple[np.ndarray, np.ndarray | None]], n_rows: int, n_steps: int, width: int | None
) -> Iterator[dict[str, np.ndarray | None]]:
    """Fill bilm-tf's dictionaries; width is that of a word's characters."""
    rows: list[tuple[np.ndarray, np.ndarray | None]] = [(np.zeros(1, np.int32), None)] * n_rows
    while True:
        ids, next_ids = np.zeros((2, n_rows, n_steps), np.int32)
        characters = None if width is None else np.zeros((n_rows, n_steps, width), np.int32)
        for row in range(n_rows):
            filled = 0
            while filled < n_steps:
                if len(rows[row][0]) <= 1:
                    following = next(sentences, None)
                    if following is None:
                        return
                    rows[row] = following
                tokens, token_characters = rows[row]
                taken = min(len(tokens) - 1, n_steps - filled)
                place = slice(filled, filled + taken)
                ids[row, place], next_ids[row, place] = tokens[:taken], tokens[1 : taken + 1]
                if characters is not None and token_characters is not None:
                    characters[row, place] = token_characters[:taken]
                    token_characters = token_characters[taken:]
                rows[row] = tokens[taken:], token_characters
                filled += taken
        yield {"token_ids": ids, "tokens_characters": characters, "next_token_id": next_ids}


def _require_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise OptionsError(f"{name} is {number}; it must be at least 1")
