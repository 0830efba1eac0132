"""Batches for training: ``sentence_stream -> Rows.windows -> compact``.

Sentences are laid out in the rows of windows for truncated backpropagation through time. Each row reads its
own stream of sentences ``<S> ... </S>`` and takes the next sentence of the corpus when its own ends. A
sentence that does not end in a window continues in the same row of the next window. A sentence of n words
gives n + 1 pairs of input and target. The backward direction reads the same sentences reversed, ``</S>``
first.

A batch has the ids of its tokens, and the characters of each distinct word once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from bilm.data import stream
from bilm.io import PathLike
from bilm.options import CharCNNOptions, Options
from bilm.vocabulary import vocabulary


class Rows:
    """Rows that take sentences from a stream.

    Args:
        blocks: the sentences.
        vocab: the vocabulary that encoded them.
        unfinished: the sentence with which each row begins, if any.
    """

    def __init__(
        self,
        blocks: Iterable[stream.Block],
        vocab: vocabulary.Vocabulary,
        unfinished: Sequence[stream.Unfinished | None],
    ) -> None:
        n_rows = len(unfinished)
        self._blocks = iter(blocks)
        self._vocab = vocab
        self._current = np.arange(n_rows)
        # A row without a sentence has read one without words.
        self._offsets = np.array([row.offset if row else 1 for row in unfinished], np.int64)
        self._following = n_rows
        self._firsts: list[int] = []  # number of each block's first sentence in `_sentences`
        self._places: list[stream.Place] = []  # their places
        self._sentences: stream.Sentences  # the current sentences of the rows, then the following ones
        self._set_sentences(stream.encode_sentences((row.text if row else "" for row in unfinished), vocab))

    def _set_sentences(self, sentences: stream.Sentences) -> None:
        self._sentences = sentences
        self._cumulative = [0, *np.cumsum(sentences.lengths).tolist()]

    @property
    def _place(self) -> stream.Place:
        """Place of the next sentence."""
        number = bisect_right(self._firsts, self._following) - 1
        place, n_read = self._places[number], self._following - self._firsts[number]
        return replace(place, taken=place.taken + n_read, sentence=place.sentence + n_read)

    @property
    def position(self) -> stream.Position:
        """Position of the stream; the rows' unfinished sentences are computed when accessed."""
        rows = _Unfinished(self._sentences, self._vocab, self._current, self._offsets)
        return stream.Position(self._place, rows)

    def _fetch(self, n_tokens: int) -> bool:
        """Fetch sentences with at least `n_tokens` targets, or all that remain; return False at the end."""
        blocks: list[stream.Block] = []
        while n_tokens > 0 and (block := next(self._blocks, None)) is not None:
            blocks.append(block)
            n_tokens -= int(block.sentences.lengths.sum())
        if not blocks:
            return False
        # Drop finished sentences and add those of the blocks.
        n_rows, following = len(self._current), self._following
        waiting = np.arange(following, len(self._sentences))
        kept = self._sentences.select(np.concatenate([self._current, waiting])).packed(self._vocab)
        if self._firsts:
            n_past = bisect_right(self._firsts, following)
            self._places[:n_past], self._firsts[:n_past] = [self._place], [following]
            self._firsts = [first - following + n_rows for first in self._firsts]
        fetched = [block.sentences for block in blocks]
        self._places += [block.place for block in blocks]
        self._firsts += accumulate(map(len, fetched[:-1]), initial=len(kept))
        self._current, self._following = np.arange(n_rows), n_rows
        self._set_sentences(stream.join_sentences([kept, *fetched], self._vocab))
        return True

    def windows(self, n_steps: int, bidirectional: bool) -> "Iterator[Window]":
        """Yield windows in which every row reads its next tokens.

        Rows are filled one after the other, each with the sentences needed for its next steps. Sentences that
        do not fill a window at the end are dropped.

        Args:
            n_steps: tokens of a row in a window.
            bidirectional: add the backward direction.
        """
        n_rows = len(self._current)
        while True:
            while (row_of := self._take(n_steps)) is None:
                if not self._fetch(n_rows * n_steps):
                    return
            # The current sentences and the taken ones, ordered by row.
            rows = np.concatenate([np.arange(n_rows), np.array(row_of, np.int64)])
            in_rows = np.argsort(rows, kind="stable")
            taken = np.arange(self._following, self._following + len(row_of))
            numbers = np.concatenate([self._current, taken])[in_rows]
            offsets = np.concatenate([self._offsets, np.zeros(len(taken), np.int64)])[in_rows]
            lengths = self._sentences.select(numbers).lengths - offsets
            last = np.cumsum(np.bincount(rows, minlength=n_rows)) - 1
            filled = np.diff(np.cumsum(lengths)[last], prepend=0)
            lengths[last] -= np.maximum(filled - n_steps, 0)
            self._following += len(row_of)
            self._current, self._offsets = numbers[last], offsets[last] + lengths[last]
            is_read = lengths > 0
            read = self._sentences.select(numbers[is_read])
            n_directions = 2 if bidirectional else 1
            inputs, targets = read.pairs(self._vocab, n_directions, offsets[is_read], lengths[is_read])
            oov = stream.renumber_oov(inputs, self._vocab.size, read.oov) if read.oov else ()
            inputs, targets = (ids.reshape(-1, n_rows, n_steps) for ids in (inputs, targets))
            if self._following == len(self._sentences):  # a position needs the place of the next sentence
                self._fetch(1)
            yield Window(inputs, targets, oov, self.position)

    def _take(self, n_steps: int) -> list[int] | None:
        """Return the row of each waiting sentence that is taken, or None if there are too few sentences."""
        cumulative, following = self._cumulative, self._following
        current = self._sentences.select(self._current)
        row_of: list[int] = []
        for row, n_missing in enumerate((n_steps - current.lengths + self._offsets).tolist()):
            if n_missing > 0:
                first = following
                following = bisect_left(cumulative, cumulative[first] + n_missing, first)
                if following == len(cumulative):
                    return None
                row_of += [row] * (following - first)
        return row_of


@dataclass(frozen=True, eq=False)
class _Unfinished(Sequence[stream.Unfinished | None]):
    """The unfinished sentences of the rows at one time."""

    sentences: stream.Sentences
    vocab: vocabulary.Vocabulary
    current: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.current)

    def __getitem__(self, row: Any) -> Any:  # noqa: ANN401 - one row, no slices
        words = self.sentences.words(int(self.current[row]), self.vocab)
        offset = int(self.offsets[row])
        return stream.Unfinished(" ".join(words), offset) if offset <= len(words) else None


@dataclass(frozen=True)
class Window:
    """Consecutive tokens of every row, row-major, word ids only.

    Attributes:
        inputs: int32 (directions, rows, steps); an id of ``vocab.size + k`` is ``oov[k]``.
        targets: int32 (directions, rows, steps); out-of-vocabulary words are ``<UNK>``.
        oov: distinct out-of-vocabulary words of the window.
        position: position of the stream after the window. Its `rows` keep the window's sentences in memory;
            a copy, ``list(rows)``, does not.
    """

    inputs: np.ndarray
    targets: np.ndarray
    oov: tuple[str, ...]
    position: stream.Position


class Batch(NamedTuple):
    """The input of a step of the model, time-major: arrays, or tensors of the same shapes.

    Attributes:
        type_characters: int32 (n types, width) for each of `CharCNNOptions.bucket_widths`, possibly with no
            rows: character ids of the distinct words of both directions. Empty tuple for a word-level
            vocabulary.
        type_words: int32 (n types,), word id of each distinct word, -1 if it is not in the vocabulary or the
            row is unused. Empty for a word-level vocabulary.
        token_types: int32 (directions, steps, rows), row of each token in the concatenation of
            `type_characters`; its word id for a word-level vocabulary.
        targets: int32 (directions, steps, rows), id of the word to predict.
    """

    type_characters: tuple[np.ndarray, ...]
    type_words: np.ndarray
    token_types: np.ndarray
    targets: np.ndarray


@cache
def _bucket_of_length(cnn: CharCNNOptions) -> np.ndarray:
    """Return the index of the bucket for each length of a word, uint8 (max_characters_per_token + 1,)."""
    lengths = np.arange(cnn.max_characters_per_token + 1)
    needed = np.minimum(cnn.max_characters_per_token, lengths + cnn.max_width)
    return np.searchsorted(cnn.bucket_widths, needed).astype(np.uint8)


def compact(
    window: Window, vocab: vocabulary.Vocabulary, cnn: CharCNNOptions | None = None, rows: slice = slice(None)
) -> Batch:
    """Turn a window, or some of its rows, into a batch.

    Args:
        window: window from `Rows.windows`.
        vocab: the vocabulary that encoded the window.
        cnn: options of the character encoder; None for a word-level vocabulary.
        rows: rows of the window; all by default.
    """
    targets = np.ascontiguousarray(window.targets[:, rows].transpose(0, 2, 1))
    words = np.ascontiguousarray(window.inputs[:, rows].transpose(0, 2, 1))
    if cnn is None or not isinstance(vocab, vocabulary.UnicodeCharsVocabulary):
        return Batch((), np.zeros(0, np.int32), words, targets)
    flat, oov = words.reshape(-1), window.oov
    numbers = np.arange(flat.size, dtype=np.int32)
    of_word = np.empty(vocab.size + len(oov), np.int32)  # used at the ids in the window only
    of_word[flat] = numbers
    types = flat[of_word[flat] == numbers]  # distinct words, found without sorting
    extra = oov and vocab.pack(oov)
    buckets = _bucket_of_length(cnn)[vocab.character_lengths(types, extra)]
    types = types[np.argsort(buckets, kind="stable")]
    of_word[types] = numbers[: len(types)]
    widths = cnn.bucket_widths
    ends = np.cumsum(np.bincount(buckets, minlength=len(widths))).tolist()
    bounds = zip(pairwise([0, *ends]), widths, strict=True)
    characters = tuple(vocab.character_rows(types[start:end], extra, width) for (start, end), width in bounds)
    type_words = np.where(types < vocab.size, types, np.int32(-1))
    return Batch(characters, type_words, of_word[flat].reshape(words.shape), targets)


class TrainingBatch(NamedTuple):
    """The input of a training step.

    Attributes:
        parts: one batch per replica.
        position: position of the stream after these batches.
    """

    parts: tuple[Batch, ...]
    position: stream.Position


def training_batches(
    files: Sequence[PathLike],
    vocab: vocabulary.Vocabulary,
    options: Options,
    order: stream.Order,
    *,
    n_replicas: int = 1,
    start: stream.Position | None = None,
) -> Iterator[TrainingBatch]:
    """Yield training batches endlessly, one for each replica at a time.

    Args:
        files: shards of the corpus.
        vocab: character-level or word-level vocabulary, as required by the options.
        options: options of the model; `batch_size` is the number of rows of a replica.
        order: order of reading. Part k of n has the shards k, k + n, k + 2n, ..., or, with fewer shards than
            parts, these sentences of each shard.
        n_replicas: number of replicas; replica k has rows ``k * batch_size`` to ``(k + 1) * batch_size`` of
            each window.
        start: position of a batch after which to continue. The batches that follow are the same as in an
            uninterrupted stream. Files, order and rows must be the same; vocabulary, directions, steps and
            filters may differ.

    Raises:
        CheckpointError: the text has no place `start`.
        DataError: the files cannot be read, or have no sentence in this part.
        VocabularyError: the vocabulary lacks a sentence mark, or lacks ``<UNK>`` and a word is unknown.
    """
    n_rows = options.batch_size
    blocks = stream.sentence_stream(files, vocab, order, endless=True, start=start.place if start else None)
    unfinished = start.rows if start else [None] * (n_replicas * n_rows)
    windows = Rows(blocks, vocab, unfinished).windows(options.unroll_steps, options.bidirectional)
    replicas = [slice(k * n_rows, (k + 1) * n_rows) for k in range(n_replicas)]
    for window in windows:
        parts = tuple(compact(window, vocab, options.char_cnn, rows) for rows in replicas)
        yield TrainingBatch(parts, window.position)
