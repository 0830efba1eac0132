"""Sentences laid out in the rows of windows for truncated backpropagation through time.

Each row reads its own stream of sentences ``<S> ... </S>``. A row takes the next sentence of the
corpus when its own ends; a sentence that does not end in a window continues in the same row of the
next one. A sentence of n words gives n + 1 pairs of input and target. The backward direction reads
the same sentences reversed, ``</S>`` first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bilm.data.position import Place, Unfinished
from bilm.data.row_reader import Rows, Segments
from bilm.data.sentences import Sentences, renumber_oov
from bilm.data.stream import Block
from bilm.errors import OptionsError, require_positive
from bilm.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True)
class Window:
    """Consecutive tokens of every row, row-major, word ids only.

    Attributes:
        inputs: int32 (directions, rows, steps); an id of ``vocab.size + k`` is ``oov[k]``.
        targets: int32 (directions, rows, steps); out-of-vocabulary words are ``<UNK>``.
        weights: float32 (rows, steps): 1 where there is a token, 0 (and ids 0) where the row ran out.
        oov: Distinct out-of-vocabulary words of the window.
        place: The next sentence after the window.
        unfinished: The sentence that each row has not finished with the window. It keeps the sentences of
            the window's block in memory; a copy of it, ``list(unfinished)``, does not.
    """

    inputs: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    oov: tuple[str, ...]
    place: Place
    unfinished: Sequence[Unfinished | None]


def pack_windows(
    blocks: Iterable[Block],
    vocab: Vocabulary,
    *,
    n_rows: int,
    n_steps: int,
    bidirectional: bool,
    tail: Literal["mask", "drop"],
    pull_steps: int | None = None,
    unfinished: Sequence[Unfinished | None] | None = None,
) -> Iterator[Window]:
    """Lay a stream of sentences out in rows.

    Rows are filled one after the other, each with the sentences it needs for its next steps.

    Args:
        blocks: Read once, for both directions.
        vocab: The one that encoded the sentences.
        n_rows: Rows.
        n_steps: Tokens of a row in a window.
        bidirectional: Whether there is a second, backward direction.
        tail: When a row finds no further sentence, ``"mask"`` lets the others continue to their ends,
            so that every target comes exactly once; ``"drop"`` stops and drops the unfinished
            window, as bilm-tf does.
        pull_steps: Give each row the sentences for this many steps before the next row's turn, instead
            of for `n_steps`, which it must divide. 1 reads as windows of one step do. With ``"drop"``
            only the unfinished part of that length is dropped and the rest of the window is masked.
        unfinished: The sentence that each row begins with; none by default.

    Raises:
        OptionsError: A number that must be positive is not, or `tail` or `pull_steps` is none of these.
    """
    pull_steps = n_steps if pull_steps is None else pull_steps
    require_positive(n_rows=n_rows, n_steps=n_steps, pull_steps=pull_steps)
    if tail not in ("mask", "drop") or n_steps % pull_steps:
        raise OptionsError(f"tail '{tail}' must be 'mask' or 'drop', and {pull_steps} divide {n_steps}")
    rows = Rows(blocks, vocab, [None] * n_rows if unfinished is None else unfinished)
    while True:
        segments = rows.deal(n_steps, pull_steps, tail == "drop")
        if not len(segments.lengths):
            return
        yield _window(rows, segments, n_steps, vocab, bidirectional)
        if tail == "drop" and segments.filled[0] < n_steps:
            return


def _window(rows: Rows, segments: Segments, n_steps: int, vocab: Vocabulary, bidirectional: bool) -> Window:
    """Make the arrays of a window."""
    sentences, starts, ends, offsets, lengths, filled = segments
    stops = np.cumsum(lengths)  # of the segments, among the tokens of the window
    forward = np.arange(stops[-1]) + np.repeat(starts + offsets + lengths - stops, lengths)
    is_first = offsets == 0
    early, late = _pairs(sentences, forward, stops[is_first] - lengths[is_first], vocab.bos)
    inputs, targets = early[None], late[None]
    if bidirectional:  # from the last word to the first: the target is the word before
        backward = np.repeat(starts + ends - 1, lengths) - forward
        is_last = starts + offsets + lengths == ends
        first, second = _pairs(sentences, backward, stops[is_last] - 1, vocab.bos)
        inputs, targets = np.stack([early, second]), np.stack([late, first])
    oov: tuple[str, ...] = ()
    if sentences.oov:
        oov = renumber_oov(inputs, vocab.size, sentences.oov)
        np.copyto(targets, vocab.unk, where=targets >= vocab.size)
    is_token = np.arange(n_steps) < filled[:, None]
    return Window(
        _spread(inputs, is_token),
        _spread(targets, is_token),
        is_token.astype(np.float32),
        oov,
        rows.place,
        rows.unfinished,
    )


def _pairs(
    sentences: Sentences, places: np.ndarray, marks: np.ndarray, bos: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return each id's predecessor and the id; for those at `marks` it is ``<S>``."""
    forerunners = sentences.ids[places - 1]
    forerunners[marks] = bos
    return forerunners, sentences.ids[places]


def _spread(flat: np.ndarray, is_token: np.ndarray) -> np.ndarray:
    """Put (directions, n tokens) in rows, 0 where there is no token."""
    if flat.shape[1] == is_token.size:
        return flat.reshape(-1, *is_token.shape)
    spread = np.zeros((len(flat), *is_token.shape), flat.dtype)
    spread[:, is_token] = flat
    return spread
