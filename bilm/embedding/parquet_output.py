"""Embedding texts into a directory of Parquet files, in one process; `bilm.ray` does it in many.

Raises:
    DataError: pyarrow is not installed, which importing this needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.data.packing import Layers, chunks
from bilm.embedding.hdf5_output import EmbeddingReport
from bilm.errors import DataError
from bilm.io import PathLike, atomic, is_url, messages, outputs
from bilm.io.background import map_in_order, prefetch

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow.fs import FileSelector, FileSystem
except ImportError as error:
    raise DataError("Parquet needs pyarrow: pip install pyarrow") from error

if TYPE_CHECKING:
    from bilm.embedding.packed_embedder import Embedder

FILE, LINE, SENTENCE, TOKENS, VECTORS = "file", "line", "sentence", "tokens", "vectors"


def sentence_tables(
    file: str, lines: Iterable[str], is_enough: Callable[[int, int], bool]
) -> Iterator[pa.Table]:
    """The lines of a text in tables: `file`, `line` from 0, and `sentence`, the line without its margins.

    Args:
        file: what the column says.
        lines: of the text; a blank one has a row too.
        is_enough: whether so many sentences, and so many tokens with their marks, are a table.
    """
    numbered = ((number, line.strip()) for number, line in enumerate(lines))
    for chunk in chunks(numbered, is_enough, lambda line: len(line[1].split())):
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
    sentences = [text.split() for text in texts_of(table, column)]
    embedded_chunks = embedder.in_chunks(sentences, lambda words: words or None, layers, dtype)
    vectors = [of_sentence for chunk in embedded_chunks for _, of_sentence in chunk]
    table = table.append_column(TOKENS, pa.array(sentences, pa.list_(pa.string())))
    return table.append_column(VECTORS, vector_column([*vectors, embedder.no_vectors(layers, dtype)])[:-1])


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


def vector_column(arrays: Sequence[np.ndarray]) -> pa.Array:
    """Vectors of sentences as an Arrow array.

    Args:
        arrays: (layers, words, dim) or (words, dim) each, at least one.

    Returns:
        A row is a list of words, each a list of `dim` numbers; for all layers a list of `layers` of those.
    """
    n_layers = arrays[0].shape[0] if arrays[0].ndim == 3 else None
    values = pa.array(np.concatenate([array.reshape(-1) for array in arrays]))
    lengths = np.repeat([array.shape[-2] for array in arrays], n_layers or 1)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    vectors = pa.FixedSizeListArray.from_arrays(values, arrays[0].shape[-1])
    column = pa.ListArray.from_arrays(offsets, vectors)
    return column if n_layers is None else pa.FixedSizeListArray.from_arrays(column, n_layers)


def vectors_of(column: pa.Array | pa.ChunkedArray) -> Iterator[np.ndarray]:
    """The rows of a `vector_column` as arrays, (layers, words, dim) or (words, dim), without a copy.

    Example:
        >>> import pyarrow as pa
        >>> column = vector_column([np.zeros((3, 2, 4)), np.ones((3, 1, 4))])
        >>> [vectors.shape for vectors in vectors_of(pa.chunked_array([column]))]
        [(3, 2, 4), (3, 1, 4)]
    """
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        has_layers = pa.types.is_list(chunk.type.value_type)
        lists = chunk.flatten() if has_layers else chunk
        vectors = lists.flatten()
        dim, n_lists = vectors.type.list_size, chunk.type.list_size if has_layers else 1
        values = vectors.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False).reshape(-1, n_lists)[:, 0]
        ends = np.cumsum(lengths * n_lists)
        for length, end in zip(lengths, ends, strict=True):
            row = values[end - length * n_lists : end]
            yield row.reshape(n_lists, length, dim) if has_layers else row


ABOUT = "_bilm.json"
"""The file that says how the others were made; readers of Parquet pass over names with an underscore."""
_PART = re.compile(r"part-\d{6}(-[\da-f]{32,}(-\d+)?)?\.parquet")
_WRITTEN_BY = b'"written_by": "bilm embed"'
_PART_BYTES = 1 << 28


def part_name(number: int) -> str:
    """The name of a file, which sorts by its number from 0."""
    return f"part-{number:06}.parquet"


def write_options(compression: str | None) -> dict[str, Any]:
    """Options of pyarrow for the tables: vectors hold no value twice, so that dictionaries only cost."""
    return {"compression": compression or "none", "use_dictionary": ["file"], "write_statistics": ["line"]}


def about_embeddings(layers: Layers, dtype: str, n_lines: int) -> str:
    """The content of `ABOUT`."""
    about = {"written_by": "bilm embed", "layers": layers, "dtype": dtype, "lines": n_lines}
    return json.dumps(about, indent=2) + "\n"


def file_system(path: str) -> tuple[Any, str]:
    """The file system of a URL or an absolute path, and the path there.

    Raises:
        DataError: pyarrow knows no such file system.
    """
    try:
        return FileSystem.from_uri(path)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise DataError(f"{path}: {str(error).splitlines()[0]}") from error


def names_in(system: Any, directory: str) -> list[str]:  # noqa: ANN401
    """The names in a directory of a file system, sorted; none if it is not there."""
    found = system.get_file_info(FileSelector(directory, allow_not_found=True))
    return sorted(file.base_name for file in found)


def check_parquet(path: PathLike, overwrite: bool) -> None:
    """Refuse a directory that cannot be made, or by which something else would be lost.

    Args:
        path: the directory, or its URL.
        overwrite: whether a directory that we wrote may be there already, with nothing else in it.

    Raises:
        DataError: says why not.
    """
    what = "a directory of embeddings"
    if not is_url(path):
        outputs.check_directory_output(path, overwrite, (), _is_ours, what)
    elif names_in(*file_system(str(path))) and not (overwrite and _is_ours(path)):
        raise DataError(
            f"{path}: exists; overwrite=True replaces it if it is {what} that bilm wrote, with nothing else "
            "in it"
        )


def _is_ours(directory: PathLike) -> bool:
    """Whether the files of a directory were written by us, by their names and the content of `ABOUT`."""
    system, place = file_system(str(directory))
    names = names_in(system, place)
    if ABOUT not in names or not all(name == ABOUT or _PART.fullmatch(name) for name in names):
        return False
    with system.open_input_stream(f"{place}/{ABOUT}") as stream:
        return _WRITTEN_BY in stream.read()


@contextmanager
def parquet_directory(path: PathLike, overwrite: bool) -> Iterator[Path]:
    """A directory to write the files into, which takes the place of `path` when the block succeeds.

    No other process can write there from the start to the end.

    Args:
        path: was checked by `check_parquet`, which is done again.
        overwrite: see `check_parquet`.

    Raises:
        DataError: the system refuses to write, or another process is writing there.
    """
    failures = messages.os_errors_as(DataError, f"{path}: cannot be written")
    with failures, atomic.replacing_directory(Path(path)) as directory:
        check_parquet(path, overwrite)
        directory.mkdir()
        yield directory


def embed_parquet(
    embedder: Embedder,
    texts: Iterable[tuple[str, Iterable[str]]],
    directory: PathLike,
    layers: Layers = "all",
    dtype: str = "float16",
    compression: str | None = None,
    overwrite: bool = False,
    callback: Callable[[EmbeddingReport], None] | None = None,
) -> EmbeddingReport:
    """Embed texts and write a row for each of their lines: `file`, `line`, `sentence`, `tokens`, `vectors`.

    Args:
        embedder: makes the vectors.
        texts: a name, for the column `file`, and the lines of each.
        directory: of the files, whole or not at all; see `bilm.embedding.parquet_output`.
        layers: which layers.
        dtype: ``float32`` or ``float16``.
        compression: a codec of Parquet's, or None.
        overwrite: see `check_parquet`.
        callback: told of every few thousand words.

    Returns:
        What was done.

    Raises:
        DataError: there is no line, or the files cannot be written, or another process is writing them.
    """

    def tables() -> Iterator[pa.Table]:
        for name, lines in texts:
            sentences = sentence_tables(name, lines, embedder.is_chunk)
            yield from map_in_order(
                lambda table: embedded(embedder, table, layers, dtype), sentences, embedder.n_at_once
            )

    report = EmbeddingReport()
    n_parts = n_bytes = 0
    writer: Any = None
    with parquet_directory(directory, overwrite) as place, ExitStack() as open_file:
        for table in prefetch(tables(), depth=1):
            if writer is None or n_bytes >= _PART_BYTES:
                open_file.close()
                file = pq.ParquetWriter(
                    place / part_name(n_parts), table.schema, **write_options(compression)
                )
                writer = open_file.enter_context(file)
                n_parts, n_bytes = n_parts + 1, 0
            writer.write_table(table)
            n_bytes += table.nbytes
            n_words = [len(tokens) for tokens in table[TOKENS]]
            report.count(len(n_words), n_words.count(0), sum(n_words))
            if callback is not None:
                callback(report)
        if not report.n_lines:
            raise DataError("there are no sentences to embed: the text is empty")
        (place / ABOUT).write_text(about_embeddings(layers, dtype, report.n_lines), encoding="utf-8")
    report.count()
    return report
