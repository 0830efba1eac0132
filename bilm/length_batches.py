"""Sentences of a length side by side, in batches of few different numbers of rows.

An LSTM step is compiled for each number of rows, see `bilm.layers.lstm_loop`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_ROWS = tuple(sorted({1, *(n << k for n in (2, 3) for k in range(30))}))
"""The powers of two, and one number between each two of them."""


def length_batches(
    lengths: Sequence[int], max_tokens: int, max_rows: int | None = None
) -> Iterator[list[int]]:
    """Numbers of the sentences of each batch, the longest first.

    Args:
        lengths: tokens of each sentence.
        max_tokens: most tokens of a batch, padding included; a longer sentence is a batch alone.
        max_rows: most sentences of a batch.
    """
    order = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    start = 0
    while start < len(order):
        fits = max(1, max_tokens // max(1, lengths[order[start]]))
        n_rows = max(rows for rows in _ROWS if rows <= min(fits, max_rows or fits))
        yield order[start : start + n_rows]
        start += n_rows


def padded_rows(n_sentences: int) -> int:
    """Rows of a batch of so many sentences, the others left empty."""
    return min(rows for rows in _ROWS if rows >= n_sentences)
