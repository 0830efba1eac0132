"""Packing of sentences into rows of nearly equal length, and the form of their vectors."""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from bilm.errors import OptionsError, require_kind
from bilm.io import in_groups
from bilm.options.parameters import Pooling

Layers = Literal["all", "top", "average", "concat", "characters"] | int
"""Choice of layers: all, the top one, their unweighted mean, or one by its number (0: the word vectors); the
output of the character convolutions, before highways and projection, with a dimension for each filter; or
``concat``, the layers from the word vectors up and then the convolutions end to end."""


@dataclass(frozen=True)
class VectorForm:
    """Form of the vectors of a sentence: (layers, words, dim) for all layers, else (words, dim).

    Attributes:
        layers: layers to return.
        dtype: ``float32`` or ``float16``.
        pooling: ``mean`` or ``max`` over the words, which leaves out their dimension, zeros without words; or
            None.

    Raises:
        OptionsError: there is no such pooling or type, or `layers` is neither a string nor an integer.
    """

    layers: Layers = "all"
    dtype: str = "float32"
    pooling: str | None = None

    def __post_init__(self) -> None:
        require_kind("layers", self.layers, str | int)
        if not isinstance(self.layers, str):
            object.__setattr__(self, "layers", int(self.layers))  # NumPy's integers too
        if self.pooling is not None:
            Pooling(self.pooling)
        if self.dtype not in ("float32", "float16"):
            raise OptionsError(f"dtype is {self.dtype!r:.80}; give float32 or float16, as a string")

    def pooled(self, vectors: np.ndarray) -> np.ndarray:
        """Pool the vectors of a sentence if wanted."""
        if self.pooling is None:
            return vectors
        if not vectors.shape[-2]:
            vectors = np.pad(vectors, [*[(0, 0)] * (vectors.ndim - 2), (0, 1), (0, 0)])
        return (vectors.mean(-2) if self.pooling == "mean" else vectors.max(-2)).astype(self.dtype)


ALL_LAYERS = VectorForm()


Lengths: TypeAlias = "Sequence[int] | np.ndarray"
"""Tokens of each sentence."""

_ROWS = tuple(sorted({1, *(n << k for n in (2, 3) for k in range(30))}))
"""Numbers of rows for which LSTM steps are compiled, see `bilm.backend.on_tensorflow`: 1, 2, 3, 4, 6, 8, 12
and so on."""


class Packing:
    """The places of tokens when sentences are packed into rows.

    A place is ``step * n_rows + row``, an index into a flattened (steps, rows).

    Args:
        lengths: tokens of each sentence, at least 1.
        rows: row of each sentence; sentences of a row follow in their order.
        n_rows: number of rows.

    Attributes:
        n_rows: number of rows.
        n_steps: tokens of the longest row.
        row_lengths: int32 (n_rows,), tokens of each row.
        lengths: int32 (sentences,), tokens of each sentence.
        is_first: bool (tokens,), tokens that begin a sentence, in the order of the sentences.
        is_word: bool (tokens,), tokens that neither begin nor end a sentence.
    """

    def __init__(self, lengths: Lengths, rows: Sequence[int], n_rows: int) -> None:
        self.n_rows = n_rows
        self.row_lengths = np.zeros(n_rows, np.int32)
        self.lengths = np.asarray(lengths, np.int32)
        starts = np.empty(len(lengths), np.int32)
        for i, (length, row) in enumerate(zip(lengths, rows, strict=True)):
            starts[i] = self.row_lengths[row]
            self.row_lengths[row] += length
        self.n_steps = int(self.row_lengths.max(initial=0))
        ends = np.cumsum(self.lengths)
        forward = np.arange(ends[-1]) + np.repeat(starts - (ends - self.lengths), self.lengths)
        backward = np.repeat(2 * starts + self.lengths - 1, self.lengths) - forward
        row_of_tokens = np.repeat(np.asarray(rows, np.int32), self.lengths)
        self._places = (np.stack([forward, backward]) * n_rows + row_of_tokens).astype(np.int32)
        self.is_first = np.zeros(ends[-1], bool)
        self.is_first[ends - self.lengths] = True
        self.is_word = ~self.is_first
        self.is_word[ends - 1] = False

    def places(self, *chosen: np.ndarray) -> np.ndarray:
        """Return the places of chosen tokens, int32 (directions, chosen tokens).

        Args:
            *chosen: bool (tokens,), the tokens of each direction; the same number in each.
        """
        return np.stack([places[some] for places, some in zip(self._places, chosen, strict=False)])

    def fill(self, values: np.ndarray, n_directions: int) -> np.ndarray:
        """Put one value per token at the tokens' places, (directions, steps, rows); 0 without a token."""
        filled = np.zeros((n_directions, self.n_steps * self.n_rows), values.dtype)
        for row, places in zip(filled, self._places, strict=False):
            row[places] = values
        return filled.reshape(n_directions, self.n_steps, self.n_rows)


_MAX_ROWS = 128  # more rows bring no further speed
_ROWS_OF_A_STEP = 16  # fixed cost of a step, as a number of rows


_STRETCH_TOKENS = 1000  # the perplexity differs by at most 0.03% from a text read in one row


def enough_rows(n_rows: int) -> int:
    """Return the smallest number of rows, at least `n_rows`, for which steps are compiled."""
    return next(n for n in _ROWS if n >= n_rows)


def pack(lengths: Lengths, max_rows: int | None = None) -> Packing:
    """Pack sentences into the number of rows with the lowest cost.

    Args:
        lengths: tokens of each sentence, at least one sentence.
        max_rows: maximum number of rows, 128 by default.
    """
    most = min(len(lengths), max_rows or _MAX_ROWS)
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    longest, total = lengths[longest_first[0]], np.sum(lengths)
    # The least that each number of rows can cost, until it is tried.
    costs = {n: max(longest, -(-total // n)) * (n + _ROWS_OF_A_STEP) for n in _ROWS if n <= most}
    tried: dict[int, Packing] = {}
    while (n_rows := min(costs, key=lambda n: costs[n])) not in tried:
        tried[n_rows] = pack_as_rows_end(lengths, n_rows, longest_first)
        costs[n_rows] = tried[n_rows].n_steps * (n_rows + _ROWS_OF_A_STEP)
    return tried[n_rows]


def pack_as_rows_end(lengths: Lengths, n_rows: int, order: Iterable[int] | None = None) -> Packing:
    """Pack each sentence into the row whose last sentence ends first, as bilm-tf's batches do.

    Args:
        lengths: tokens of each sentence.
        n_rows: number of rows.
        order: numbers of the sentences in the order in which they are packed; None for that of the text.
    """
    filled = [(0, row) for row in range(n_rows)]
    rows = [0] * len(lengths)
    for i in range(len(lengths)) if order is None else order:
        n_tokens, rows[i] = filled[0]
        heapq.heapreplace(filled, (n_tokens + int(lengths[i]), rows[i]))
    return Packing(lengths, rows, n_rows)


def stretches(lengths: Lengths) -> list[int]:
    """Return the lengths of stretches of consecutive sentences, each but the last of 1,000 tokens or more."""
    return [int(sum(stretch)) for stretch in in_groups(lengths, int, _STRETCH_TOKENS)]


def pack_in_turn(lengths: Lengths, n_rows: int) -> Packing:
    """Pack sentences into the rows in turn, as batches of `n_rows` sentences whose state is carried over."""
    return Packing(lengths, [i % n_rows for i in range(len(lengths))], n_rows)


def number_types(tokens: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the distinct words in order of occurrence, and each token's index in them, int32 (tokens,)."""
    types = {word: i for i, word in enumerate(dict.fromkeys(tokens))}
    return list(types), np.fromiter((types[token] for token in tokens), np.int32, len(tokens))
