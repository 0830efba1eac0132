"""Embedding texts into a directory of Parquet files, in one process; `bilm.ray` does it in many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.embedding_files.chunks import Embedder, Layers
from bilm.embedding_files.embed_file import EmbeddingReport
from bilm.embedding_files.parquet_directory import parquet_directory, part_name, write_options
from bilm.embedding_files.vector_tables import TOKENS, embedded, sentence_tables
from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.in_order import map_in_order
from bilm.io.prefetch import prefetch

if TYPE_CHECKING:
    import pyarrow as pa

_PART_BYTES = 1 << 28


def embed_parquet(
    embedder: Embedder,
    texts: Iterable[tuple[str, Iterable[str]]],
    directory: PathLike,
    layers: Layers = "all",
    dtype: str = "float16",
    compression: str | None = None,
    callback: Callable[[EmbeddingReport], None] | None = None,
) -> EmbeddingReport:
    """Embed texts and write a row for each of their lines: `file`, `line`, `sentence`, `tokens`, `vectors`.

    Args:
        embedder: makes the vectors.
        texts: a name, for the column `file`, and the lines of each.
        directory: of the files, whole or not at all; see `bilm.embedding_files.parquet_directory`.
        layers: which layers.
        dtype: ``float32`` or ``float16``.
        compression: a codec of Parquet's, or None.
        callback: told of every few thousand words.

    Returns:
        What was done.

    Raises:
        DataError: there is no line, or the files cannot be written.
    """
    started = time.monotonic()
    counts = {"n_lines": 0, "n_blank": 0, "n_tokens": 0}

    def report() -> EmbeddingReport:
        return EmbeddingReport(**counts, n_kept=0, seconds=time.monotonic() - started)

    def tables() -> Iterable[pa.Table]:
        for name, lines in texts:
            found = sentence_tables(name, lines, embedder.is_chunk)
            yield from map_in_order(
                lambda table: embedded(embedder, table, layers, dtype), found, embedder.n_at_once
            )

    about = about_embeddings(layers, dtype)
    with parquet_directory(directory, about) as place, _Parts(place, write_options(compression)) as parts:
        for table in prefetch(tables(), depth=1):
            parts.write(table)
            n_words = [len(tokens) for tokens in table[TOKENS]]
            counts["n_lines"] += len(n_words)
            counts["n_blank"] += n_words.count(0)
            counts["n_tokens"] += sum(n_words)
            if callback is not None:
                callback(report())
        if not counts["n_lines"]:
            raise DataError("there are no sentences to embed: the text is empty")
        about["lines"] = counts["n_lines"]
    return report()


def about_embeddings(layers: Layers, dtype: str) -> dict[str, Any]:
    """What a directory of embeddings says of itself."""
    return {"layers": layers, "dtype": dtype}


class _Parts:
    """Writes tables, a row group each, into files of bounded size; a context manager."""

    def __init__(self, directory: Path, options: dict[str, Any]) -> None:
        self._directory, self._options = directory, options
        self._writer: Any = None
        self._n_parts = self._n_bytes = 0

    def write(self, table: pa.Table) -> None:
        import pyarrow.parquet as pq

        if self._writer is None:
            file = self._directory / part_name(self._n_parts)
            self._writer = pq.ParquetWriter(file, table.schema, **self._options)
        self._writer.write_table(table)
        self._n_bytes += table.nbytes
        if self._n_bytes >= _PART_BYTES:
            self.finish()

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer, self._n_bytes = None, 0
            self._n_parts += 1

    def __enter__(self) -> _Parts:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()
        elif self._writer is not None:
            with suppress(OSError):
                self._writer.close()
