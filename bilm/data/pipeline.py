"""Batches for training and evaluation: ``sentence_stream -> pack_windows -> compact``.

A batch carries word ids, and the characters of each distinct word of its window once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bilm.data.batch import Batch, compact
from bilm.data.position import Order, Position
from bilm.data.stream import Block, sentence_stream
from bilm.data.windows import pack_windows
from bilm.errors import CheckpointError, require_positive
from bilm.io import PathLike
from bilm.options import Options
from bilm.vocabulary.vocabulary import Vocabulary

__all__ = ["Batch", "TrainingBatch", "compact", "evaluation_batches", "training_batches"]


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
    vocab: Vocabulary,
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
            and the filters may be others; what `Position.order` holds may not.

    Raises:
        CheckpointError: The text and the other arguments are not those `start` was made with.
        DataError: The files cannot be read or have no sentence in this part.
        OptionsError: An argument that must be positive is not, or there is no such part.
        VocabularyError: The vocabulary lacks a sentence mark, or ``<UNK>`` where a word is unknown.
    """
    n_rows = options.batch_size
    require_positive(n_replicas=n_replicas, batch_size=n_rows)
    if start is not None:
        _require_same_reading(start, order, n_replicas * n_rows)
    windows = pack_windows(
        sentence_stream(files, vocab, order, endless=True, start=start.place if start else None),
        vocab,
        n_rows=n_replicas * n_rows,
        n_steps=options.unroll_steps,
        bidirectional=options.bidirectional,
        tail="drop",
        unfinished=start.rows if start else None,
    )
    replicas = [slice(k * n_rows, (k + 1) * n_rows) for k in range(n_replicas)]
    for window in windows:
        parts = tuple(compact(window, vocab, options.max_filter_width, rows) for rows in replicas)
        yield TrainingBatch(parts, Position(order, window.place, window.unfinished))


def _require_same_reading(start: Position, order: Order, n_rows: int) -> None:
    """Refuse to resume at a position that means another place under these settings."""
    before, now = vars(start.order) | {"rows": len(start.rows)}, vars(order) | {"rows": n_rows}
    changed = [
        f"{name} was {before[name]} and is now {now[name]}" for name in now if before[name] != now[name]
    ]
    if changed:
        raise CheckpointError(f"reading cannot be resumed: {', '.join(changed)}")


def evaluation_batches(
    files: Sequence[PathLike],
    vocab: Vocabulary,
    options: Options,
    *,
    compat: bool = False,
    max_tokens: int | None = None,
) -> Iterator[Batch]:
    """Yield one pass over the files, in order, every target once.

    Args:
        files: The shards of the corpus.
        vocab: As for `training_batches`.
        options: As for `training_batches`; the rows only change how the state of the model is carried.
        compat: Read exactly the tokens bilm-tf's test reads at unroll 1 and this batch size: blank
            lines are empty sentences, files come as in ``LMDataset(test=True)``, and reading stops
            when a row finds no further sentence. The one-step windows are joined, so that long
            windows give the same numbers. A text that does not fill every row yields nothing.
        max_tokens: Stop after the sentence that reaches this number of targets.

    Raises:
        DataError: The files cannot be read.
        OptionsError: An argument that must be positive is not.
        VocabularyError: The vocabulary lacks a sentence mark, or ``<UNK>`` where a word is unknown.
    """
    files = tuple(reversed(files)) if compat else files
    blocks = sentence_stream(files, vocab, Order(len(files)), endless=False, keep_blank=compat)
    windows = pack_windows(
        blocks if max_tokens is None else _first_tokens(blocks, max_tokens),
        vocab,
        n_rows=options.batch_size,
        n_steps=options.unroll_steps,
        bidirectional=options.bidirectional,
        tail="drop" if compat else "mask",
        pull_steps=1 if compat else None,
    )
    for window in windows:
        yield compact(window, vocab, options.max_filter_width)


def _first_tokens(blocks: Iterator[Block], max_tokens: int) -> Iterator[Block]:
    """Cut a stream after the sentence with target number `max_tokens`."""
    require_positive(max_tokens=max_tokens)
    for block in blocks:
        behind = np.cumsum(block.sentences.lengths)
        needed = int(np.searchsorted(behind, max_tokens)) + 1
        if needed <= len(behind):
            yield Block(block.sentences.select(slice(needed)), block.place)
            return
        yield block
        max_tokens -= int(behind[-1])
