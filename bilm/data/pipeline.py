"""Batches for training: ``sentence_stream -> pack_windows -> compact``.

A batch carries word ids, and the characters of each distinct word of its window once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bilm.data.stream import Order, Position, sentence_stream
from bilm.data.windows import Window, pack_windows
from bilm.errors import OptionsError
from bilm.io import PathLike
from bilm.options import Options
from bilm.options.hyper_parameters import length_buckets
from bilm.vocabulary import file, vocabulary

_MARKS = {vocabulary.BEGIN_SENTENCE: file.BOS, vocabulary.END_SENTENCE: file.EOS}


class Batch(NamedTuple):
    """The input of a step of the model, time-major: arrays, or tensors of the same shapes.

    Attributes:
        type_characters: One int32 (n types, width) for each of `length_buckets`, perhaps without
            rows: character ids of the distinct words, of both directions together. Empty tuple for a
            vocabulary over words.
        token_types: int32 (directions, steps, rows): the token's row in the concatenation of
            `type_characters`; for a word-level vocabulary its id.
        targets: int32 (directions, steps, rows): id of the word to predict.
    """

    type_characters: tuple[np.ndarray, ...]
    token_types: np.ndarray
    targets: np.ndarray


@cache
def _bucket_of_length(max_characters: int, max_filter_width: int) -> np.ndarray:
    """Return the number of the bucket of a word of each length, uint8 (max_characters + 1,)."""
    widths = length_buckets(max_characters, max_filter_width)
    needed = np.minimum(max_characters, np.arange(max_characters + 1) + max_filter_width)
    return np.searchsorted(widths, needed).astype(np.uint8)


def compact(
    window: Window,
    vocab: vocabulary.Vocabulary,
    max_filter_width: int | None = None,
    rows: slice | None = None,
) -> Batch:
    """Turn a window, or some of its rows, into a batch.

    Args:
        window: Of `pack_windows`.
        vocab: The one that encoded the window.
        max_filter_width: Of the character CNN; needed for a character-level vocabulary only.
        rows: All by default.

    Raises:
        OptionsError: `max_filter_width` is missing.
    """
    rows = slice(None) if rows is None else rows
    targets = np.ascontiguousarray(window.targets[:, rows].transpose(0, 2, 1))
    words = np.ascontiguousarray(window.inputs[:, rows].transpose(0, 2, 1))
    if not isinstance(vocab, vocabulary.UnicodeCharsVocabulary):
        return Batch((), words, targets)
    if max_filter_width is None:
        raise OptionsError("max_filter_width is needed for a character-level vocabulary")
    return Batch(*_share_types(words, window.oov, vocab, max_filter_width), targets)


def _share_types(
    words: np.ndarray, oov: tuple[str, ...], vocab: vocabulary.UnicodeCharsVocabulary, max_filter_width: int
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Return `Batch.type_characters` and `Batch.token_types` of words."""
    flat = words.reshape(-1)
    numbers = np.arange(flat.size, dtype=np.int32)
    of_word = np.empty(vocab.size + len(oov), np.int32)  # written and read at the words of the window only
    of_word[flat] = numbers
    types = flat[of_word[flat] == numbers]  # each word once, without sorting them
    extra = oov and vocab.pack(oov)
    most = vocab.max_word_length
    buckets = _bucket_of_length(most, max_filter_width)[vocab.character_lengths(types, extra)]
    types = types[np.argsort(buckets, kind="stable")]
    of_word[types] = numbers[: len(types)]
    widths = length_buckets(most, max_filter_width)
    ends = np.cumsum(np.bincount(buckets, minlength=len(widths))).tolist()
    characters = tuple(
        vocab.character_rows(types[start:end], extra, width)
        for (start, end), width in zip(pairwise([0, *ends]), widths, strict=True)
    )
    return characters, of_word[flat].reshape(words.shape)


def batch_lines(batch: Batch, vocab: vocabulary.Vocabulary) -> list[str]:
    """The words that each row of a batch reads in the forward direction, one line per row.

    For a character-level model, words are cut to the characters that it reads.
    """
    words = [_word(row) for rows in batch.type_characters for row in rows] or vocab.words
    return [" ".join(words[k] for k in row) for row in batch.token_types[0].T]


def _word(row: np.ndarray) -> str:
    """The text between the word marks of a row of character ids."""
    ids = row.tolist()
    ids = ids[1 : ids.index(vocabulary.END_WORD)]
    if len(ids) == 1 and ids[0] in _MARKS:
        return _MARKS[ids[0]]
    return bytes(ids).decode("utf-8", errors="replace")


class TrainingBatch(NamedTuple):
    """The input of a training step.

    Attributes:
        parts: One batch per replica.
        position: Position of the stream after them.
    """

    parts: tuple[Batch, ...]
    position: Position


def training_batches(
    files: Sequence[PathLike],
    vocab: vocabulary.Vocabulary,
    options: Options,
    order: Order,
    *,
    n_replicas: int = 1,
    start: Position | None = None,
) -> Iterator[TrainingBatch]:
    """Yield batches without end, as many at a time as there are replicas.

    Args:
        files: The shards of the corpus.
        vocab: Character-level or word-level, as the model of the options.
        options: ``batch_size``, rows of one replica; ``unroll_steps``; the directions; the filters.
        order: The order in which the files are read. Part k of n has the shards k, k + n, k + 2n, ..., or
            these sentences of each shard, where there are fewer shards than parts.
        n_replicas: Replica k has rows ``k * batch_size`` to ``(k + 1) * batch_size`` of one window.
        start: Continue after the batch that had this position: the following batches are the same as
            those of a stream that was never interrupted. The vocabulary, the directions, the steps
            and the filters may be others; files, order and rows may not.

    Raises:
        CheckpointError: The text has no such place as `start`.
        DataError: The files cannot be read or have no sentence in this part.
        OptionsError: An argument that must be positive is not, or there is no such part.
        VocabularyError: The vocabulary lacks a sentence mark, or ``<UNK>`` where a word is unknown.
    """
    n_rows = options.batch_size
    windows = pack_windows(
        sentence_stream(files, vocab, order, endless=True, start=start.place if start else None),
        vocab,
        n_rows=n_replicas * n_rows,
        n_steps=options.unroll_steps,
        bidirectional=options.bidirectional,
        unfinished=start.rows if start else None,
    )
    replicas = [slice(k * n_rows, (k + 1) * n_rows) for k in range(n_replicas)]
    for window in windows:
        parts = tuple(compact(window, vocab, options.max_filter_width, rows) for rows in replicas)
        yield TrainingBatch(parts, Position(window.place, window.unfinished))
