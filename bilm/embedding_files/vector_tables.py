"""Arrow tables of sentences and their vectors, as in Parquet files; pyarrow is an optional extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bilm.embedding_files.chunks import Embedder, Layers, chunks, no_vectors
from bilm.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

FILE, LINE, SENTENCE, TOKENS, VECTORS = "file", "line", "sentence", "tokens", "vectors"


def require_pyarrow() -> None:
    """Check that tables can be made, before the work begins.

    Raises:
        DataError: pyarrow is not installed.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise DataError("Parquet needs pyarrow: pip install pyarrow") from error


def sentence_tables(
    file: str, lines: Iterable[str], is_enough: Callable[[int, int], bool]
) -> Iterator[pa.Table]:
    """The lines of a text in tables: `file`, `line` from 0, and `sentence`, the line without its margins.

    Args:
        file: what the column says.
        lines: of the text; a blank one has a row too.
        is_enough: whether so many sentences, and so many tokens with their marks, are a table.
    """
    import pyarrow as pa

    numbered = ((number, line.strip()) for number, line in enumerate(lines))
    for chunk in chunks(numbered, is_enough, lambda one: one[1].split()):
        numbers, sentences = zip(*chunk, strict=True)
        columns = {FILE: [file] * len(chunk), LINE: pa.array(numbers, pa.int64()), SENTENCE: sentences}
        yield pa.table(columns)


def embedded(
    embedder: Embedder, table: pa.Table, layers: Layers, dtype: str, column: str = SENTENCE
) -> pa.Table:
    """A table with two more columns: `tokens`, a list of strings, and `vectors`, see `vector_column`.

    Args:
        embedder: makes the vectors.
        table: a row a sentence.
        layers: which of them.
        dtype: ``float32`` or ``float16``.
        column: the one with the sentences, words separated by whitespace; a blank one has no vectors.

    Raises:
        DataError: `column` is missing or is not text.
    """
    import pyarrow as pa

    sentences = [text.split() for text in texts_of(table, column)]
    found: list[np.ndarray] = []
    for chunk in chunks(sentences, embedder.is_chunk, lambda words: words or None):
        made = iter(embedder.embed_chunk([words for words in chunk if words], layers, dtype))
        found += [next(made) if words else no_vectors(embedder, layers, dtype) for words in chunk]
    table = table.append_column(TOKENS, pa.array(sentences, pa.list_(pa.string())))
    return table.append_column(
        VECTORS, vector_column(found or [no_vectors(embedder, layers, dtype)], len(found))
    )


def texts_of(table: pa.Table, column: str) -> list[str]:
    """The strings of a column.

    Raises:
        DataError: there is no such column, or it is not text.
    """
    if column not in table.column_names:
        raise DataError(f"there is no column {column!r}, only {', '.join(table.column_names)}")
    texts = table[column].to_pylist()
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"column {column!r}: row {number} of a batch is {type(text).__name__}, not text")
    return texts


def vector_column(arrays: Sequence[np.ndarray], n_rows: int | None = None) -> pa.Array:
    """Vectors of sentences as an Arrow array.

    Args:
        arrays: (layers, words, dim) or (words, dim) each, at least one.
        n_rows: how many of them are rows; all by default. None of them gives a column of their type.

    Returns:
        A row is a list of words, each a list of `dim` numbers; for all layers a list of `layers` of those.
    """
    import pyarrow as pa

    n_layers = arrays[0].shape[0] if arrays[0].ndim == 3 else None
    values = pa.array(np.concatenate([array.reshape(-1) for array in arrays]))
    lengths = np.repeat([array.shape[-2] for array in arrays], n_layers or 1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    vectors = pa.FixedSizeListArray.from_arrays(values, arrays[0].shape[-1])
    column = pa.ListArray.from_arrays(offsets, vectors)
    if n_layers is not None:
        column = pa.FixedSizeListArray.from_arrays(column, n_layers)
    return column[:n_rows]


def vectors_of(column: pa.Array | pa.ChunkedArray) -> Iterator[np.ndarray]:
    """The rows of a `vector_column` as arrays, (layers, words, dim) or (words, dim), without a copy.

    Example:
        >>> import pyarrow as pa
        >>> column = vector_column([np.zeros((3, 2, 4)), np.ones((3, 1, 4))])
        >>> [vectors.shape for vectors in vectors_of(pa.chunked_array([column]))]
        [(3, 2, 4), (3, 1, 4)]
    """
    import pyarrow as pa

    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        has_layers = pa.types.is_list(chunk.type.value_type)
        lists = chunk.flatten() if has_layers else chunk
        vectors = lists.flatten()
        dim, n_lists = vectors.type.list_size, chunk.type.list_size if has_layers else 1
        values = vectors.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False).reshape(-1, n_lists)[:, 0]
        ends = np.cumsum(lengths * n_lists)
        for length, end in zip(lengths, ends, strict=True):
            found = values[end - length * n_lists : end]
            yield found.reshape(n_lists, length, dim) if has_layers else found
