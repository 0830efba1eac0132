"""Counting the words of texts on Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from bilm.embedding.parquet_output import SENTENCE
from bilm.ray.cluster import Cluster
from bilm.ray.pipeline import in_order, read_pieces, rows_of
from bilm.ray.texts import text_files
from bilm.ray.workers import as_table

if TYPE_CHECKING:
    import pyarrow as pa

_WORDS_OF_A_PIECE = 1 << 20  # the more, the fewer counts of the same word the driver adds


@dataclass
class WordCounts:
    """What is in texts.

    Attributes:
        words: how often each occurs.
        n_lines: lines of the texts.
        n_blank: of them, lines without words.
    """

    words: Counter[str] = field(default_factory=Counter)
    n_lines: int = 0
    n_blank: int = 0


def count_words(texts: Sequence[str], cluster: Cluster | None = None) -> WordCounts:
    """Count the words of texts: the workers count pieces, and the driver adds their counts.

    Args:
        texts: files, directories and globs, or URLs.
        cluster: where, see `Cluster`; a worker needs no model, and by default one CPU.

    Raises:
        BilmError: a text cannot be read, with file and line; there is no Ray; or it failed.
    """
    files = text_files(texts)
    total = WordCounts()
    with (cluster or Cluster()).connected(has_model=False) as workers, in_order():
        found = read_pieces(files, workers, _WORDS_OF_A_PIECE).map_batches(
            count_pieces,
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=workers.reserved_cpus,
            concurrency=workers.n,
        )
        for row in rows_of(found, "words", "counts", "n_lines", "n_blank"):
            total.words.update(dict(zip(row["words"], row["counts"], strict=True)))
            total.n_lines += row["n_lines"]
            total.n_blank += row["n_blank"]
    return total


def count_pieces(batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
    """The counts of pieces, in one row."""
    import pyarrow as pa

    lines = [line.split() for piece in as_table(batch)[SENTENCE].to_pylist() for line in piece]
    words = Counter(chain.from_iterable(lines))
    return pa.table(
        {
            "words": pa.array([list(words)], pa.list_(pa.string())),
            "counts": pa.array([list(words.values())], pa.list_(pa.int64())),
            "n_lines": [len(lines)],
            "n_blank": [lines.count([])],
        }
    )
