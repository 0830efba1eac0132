"""Sentences in chunks, and packed back to back in a few rows of nearly equal length."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias, TypeVar

import numpy as np

_Sentence = TypeVar("_Sentence")

Layers = Literal["all", "top", "average"] | int
"""Which layers: all of them, the top one, their plain mean, or one by its number from 0, the word vectors."""


def chunks(
    sentences: Iterable[_Sentence],
    is_enough: Callable[[int, int], bool],
    n_words_of: Callable[[_Sentence], int | None],
) -> Iterator[list[_Sentence]]:
    """Sentences to be worked on together, in their order; none is empty.

    Args:
        sentences: any number of them, with whatever belongs to each.
        is_enough: whether so many sentences, and so many tokens with their marks, are a chunk.
        n_words_of: words in a sentence; None for an item that is no sentence and goes with the others.
    """
    chunk: list[_Sentence] = []
    n_sentences = n_tokens = 0
    for sentence in sentences:
        chunk.append(sentence)
        n_words = n_words_of(sentence)
        n_sentences += n_words is not None
        n_tokens += (n_words or 0) + 2
        if is_enough(n_sentences, n_tokens):
            yield chunk
            chunk, n_sentences, n_tokens = [], 0, 0
    if chunk:
        yield chunk


Lengths: TypeAlias = "Sequence[int] | np.ndarray"
"""Tokens of each sentence."""

_ROWS = tuple(sorted({1, *(n << k for n in (2, 3) for k in range(30))}))
"""The powers of two, and one number between each two of them: an LSTM step is compiled for each number
of rows, see `bilm.backend.on_tensorflow`."""


class Packing:
    """Where each token of some sentences stands among steps and rows.

    A place is ``step * n_rows + row``, so that it counts through a flattened (steps, rows).

    Args:
        lengths: tokens of each sentence, at least 1.
        rows: row of each sentence; those of a row are in their order.
        n_rows: number of rows.

    Attributes:
        n_rows: number of rows.
        n_steps: tokens of the longest row.
        row_lengths: int32 (n_rows,), tokens of each row.
        lengths: int32 (sentences,), tokens of each sentence.
        is_first: bool (tokens,), which tokens, sentence after sentence, begin one.
        is_last: bool (tokens,), which end one.
        is_word: bool (tokens,), which do neither.
    """

    def __init__(self, lengths: Lengths, rows: Sequence[int], n_rows: int) -> None:
        self.n_rows = n_rows
        self.row_lengths = np.zeros(n_rows, np.int32)
        self.lengths = np.asarray(lengths, np.int32)
        self._rows, starts = np.asarray(rows, np.int32), np.empty(len(lengths), np.int32)
        for i, (length, row) in enumerate(zip(lengths, rows, strict=True)):
            starts[i] = self.row_lengths[row]
            self.row_lengths[row] += length
        self._starts, self.n_steps = starts, int(self.row_lengths.max(initial=0))
        ends = np.cumsum(self.lengths)
        forward = np.arange(ends[-1]) + np.repeat(starts - (ends - self.lengths), self.lengths)
        backward = np.repeat(2 * starts + self.lengths - 1, self.lengths) - forward
        row_of_tokens = np.repeat(self._rows, self.lengths)
        self._places = (np.stack([forward, backward]) * n_rows + row_of_tokens).astype(np.int32)
        self.is_first, self.is_last = np.zeros((2, ends[-1]), bool)
        self.is_first[ends - self.lengths] = self.is_last[ends - 1] = True
        self.is_word = ~(self.is_first | self.is_last)

    def places(self, *chosen: np.ndarray) -> np.ndarray:
        """Places of some tokens, int32 (directions, tokens).

        Args:
            chosen: for each direction which tokens, sentence after sentence, bool (tokens,); as many of each.
        """
        return np.stack([places[some] for places, some in zip(self._places, chosen, strict=False)])

    def fill(self, values: np.ndarray, n_directions: int) -> np.ndarray:
        """Numbers of the tokens at their places, (directions, steps, rows), 0 where there is no token."""
        filled = np.zeros((n_directions, self.n_steps * self.n_rows), values.dtype)
        for row, places in zip(filled, self._places, strict=False):
            row[places] = values
        return filled.reshape(n_directions, self.n_steps, self.n_rows)

    @property
    def begins(self) -> np.ndarray:
        """Where a sentence begins, bool (steps, rows)."""
        marks = np.zeros((self.n_steps, self.n_rows), bool)
        marks[self._starts, self._rows] = True
        return marks


_MAX_ROWS = 128  # more make a step no faster
_ROWS_OF_A_STEP = 16  # that a step costs beside its rows


_STRETCH_TOKENS = 1000  # perplexities are within 0.03% of those of a text that is read in one row


def enough_rows(n_rows: int) -> int:
    """The smallest number of rows that steps are compiled for and that is no smaller."""
    return next(n for n in _ROWS if n >= n_rows)


def pack(lengths: Lengths, max_rows: int | None = None) -> Packing:
    """Put sentences in as many rows as make the least work.

    Args:
        lengths: tokens of each sentence, at least one.
        max_rows: most rows, 128 by default.
    """
    most = min(len(lengths), max_rows or _MAX_ROWS)
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    tries = (_to_shortest_row(lengths, longest_first, n_rows) for n_rows in _ROWS if n_rows <= most)
    return min(tries, key=lambda packing: packing.n_steps * (packing.n_rows + _ROWS_OF_A_STEP))


def pack_as_rows_end(lengths: Lengths, n_rows: int) -> Packing:
    """Give the next sentence to the row that is the first to have ended its own, as bilm-tf's batches do."""
    return _to_shortest_row(lengths, range(len(lengths)), n_rows)


def _to_shortest_row(lengths: Lengths, order: Iterable[int], n_rows: int) -> Packing:
    """Put each sentence, in the order of their numbers, in the row with the fewest tokens."""
    filled = [(0, row) for row in range(n_rows)]
    rows = [0] * len(lengths)
    for i in order:
        n_tokens, rows[i] = filled[0]
        heapq.heapreplace(filled, (n_tokens + int(lengths[i]), rows[i]))
    return Packing(lengths, rows, n_rows)


def stretches(lengths: Lengths) -> list[int]:
    """Tokens of stretches of consecutive sentences, at least 1,000 each but the last, from the sentences'."""
    sums: list[int] = []
    for length in lengths:
        if not sums or sums[-1] >= _STRETCH_TOKENS:
            sums.append(0)
        sums[-1] += int(length)
    return sums


def pack_in_turn(lengths: Lengths, n_rows: int) -> Packing:
    """Give the rows a sentence each in turn, as batches of so many sentences whose state is carried."""
    return Packing(lengths, [i % n_rows for i in range(len(lengths))], n_rows)


def number_types(tokens: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Distinct words in their order, and of each token the number of its word, int32 (tokens,)."""
    types = {word: i for i, word in enumerate(dict.fromkeys(tokens))}
    return list(types), np.fromiter((types[token] for token in tokens), np.int32, len(tokens))
