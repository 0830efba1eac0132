"""Padding batches to few distinct shapes, since each is compiled separately."""

from __future__ import annotations

import numpy as np

from bilm.data.batch import Batch


class TypePadding:
    """Fills the length buckets of batches up with rows that no token uses.

    The rows of a bucket are a power of two that never falls, so that there are soon no new shapes.
    """

    def __init__(self) -> None:
        self._n_rows: list[int] = []

    def __call__(self, batch: Batch) -> Batch:
        """The same tokens, with more distinct words."""
        buckets = batch.type_characters
        if not buckets:
            return batch
        sizes = [len(rows) for rows in buckets]
        known = self._n_rows or [1] * len(sizes)
        self._n_rows = [
            max(before, 1 << (size - 1).bit_length() if size else 1)
            for before, size in zip(known, sizes, strict=True)
        ]
        missing = np.array(self._n_rows) - sizes
        padded = tuple(
            np.pad(rows, ((0, n), (0, 0))) for rows, n in zip(buckets, missing.tolist(), strict=True)
        )
        # A word moves by the rows put in before its bucket.
        moved = np.arange(sum(sizes)) + np.repeat(np.cumsum(missing) - missing, sizes)
        token_types = moved.astype(np.int32)[batch.token_types]
        return batch._replace(type_characters=padded, token_types=token_types)
