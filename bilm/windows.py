"""Sentences laid out in the rows of windows for truncated back-propagation through time.

Each row reads its own stream of sentences ``<S> ... </S>``. A row takes the next sentence of the
corpus when its own runs out; a sentence that does not end in a window goes on in the same row of the
next one. A sentence of n words gives n + 1 pairs of input and target. The backward direction reads
the same sentences reversed, ``</S>`` first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from bilm.arguments import require_positive
from bilm.errors import OptionsError
from bilm.sentences import EncodedSentence
from bilm.vocab import Vocabulary


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

    Raises:
        OptionsError: A number that must be positive is not, or `tail` or `pull_steps` is none of these.
    """
    pull_steps = n_steps if pull_steps is None else pull_steps
    require_positive(n_rows=n_rows, n_steps=n_steps, pull_steps=pull_steps)
    if tail not in ("mask", "drop") or n_steps % pull_steps:
        raise OptionsError(f"tail '{tail}' must be 'mask' or 'drop', and {pull_steps} divide {n_steps}")
    padding = EncodedSentence(np.zeros(pull_steps + 1, np.int32))
    turns = _turns(iter(sentences), n_rows, pull_steps, padding, tail == "drop")
    n_turns = n_steps // pull_steps
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
    inputs, targets = flat.take(at, axis=1), flat.take(at + 1, axis=1)
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
