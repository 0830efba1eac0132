"""Embedding of texts into a directory of Parquet files, in one process; `bilm.ray` uses several.

Raises:
    DataError: pyarrow is not installed.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.data.packing import VectorForm
from bilm.embedding.hdf5_output import EmbeddingReport
from bilm.embedding.word_output import occurrences
from bilm.errors import DataError
from bilm.io import PathLike, atomic, background, in_groups, is_url, messages, outputs

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow.fs import FileSelector, FileSystem
except ImportError as error:
    raise DataError("Parquet needs pyarrow: pip install pyarrow") from error

if TYPE_CHECKING:
    from bilm.embedding.chunk_embedder import ChunkEmbedder

FILE, LINE, SENTENCE, TOKENS, VECTORS = "file", "line", "sentence", "tokens", "vectors"
POSITION, WORD, VECTOR = "position", "word", "vector"


def sentence_tables(file: str, lines: Iterable[str], least: int, multiple: int = 1) -> Iterator[pa.Table]:
    """Yield tables of a text's lines: `file`, `line` from 0, and `sentence`, the stripped line.

    Args:
        file: value of the column `file`.
        lines: lines of the text; a blank line gets a row too.
        least: tokens of a table, with the marks of its sentences; only the last one may have fewer.
        multiple: divisor of the number of lines of all tables but the last.
    """
    numbered = enumerate(map(str.strip, lines))
    for chunk in in_groups(numbered, lambda line: len(line[1].split()) + 2, least, multiple):
        numbers, sentences = zip(*chunk, strict=True)
        columns = {FILE: [file] * len(chunk), LINE: pa.array(numbers, pa.int64()), SENTENCE: sentences}
        yield pa.table(columns)


def embedded(
    embedder: "ChunkEmbedder", table: pa.Table, form: VectorForm, column: str = SENTENCE
) -> pa.Table:
    """Add two columns to a table: `tokens`, a list of strings, and `vectors`, see `vector_column`.

    Args:
        embedder: embedder of the sentences.
        table: table with one sentence per row.
        form: form of the vectors.
        column: name of the column of sentences, words separated by whitespace; a blank one gets no vectors.

    Raises:
        DataError: `column` is missing or is not text, or the table has one of the two columns.
    """
    sentences = [text.split() for text in texts_of(table, column, (TOKENS, VECTORS))]
    embedded_chunks = embedder.in_chunks(sentences, lambda words: words, form)
    vectors = [array for chunk in embedded_chunks for _, array in chunk]
    table = table.append_column(TOKENS, pa.array(sentences, pa.list_(pa.string())))
    with_blank = vector_column([*vectors, embedder.no_vectors(form)], is_pooled=form.pooling is not None)
    return table.append_column(VECTORS, with_blank[:-1])


def texts_of(table: pa.Table, column: str, added: Collection[str]) -> list[str]:
    """Return the strings of a column of a table to which columns will be added.

    Raises:
        DataError: there is no such column, or it is not text; or one of the others exists.
    """
    if taken := [name for name in added if name in table.column_names]:
        raise DataError(f"there is a column {taken[0]!r}, which would be added; give it another name")
    if column not in table.column_names:
        raise DataError(f"there is no column {column!r}, only {', '.join(table.column_names)}")
    texts = table[column].to_pylist()
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"column {column!r}: row {number} of a batch is {type(text).__name__}, not text")
    return texts


def vector_column(arrays: Sequence[np.ndarray], is_pooled: bool = False) -> pa.Array:
    """Convert vectors of sentences to an Arrow array.

    Args:
        arrays: at least one array, (layers, words, dim) or (words, dim) each.
        is_pooled: the arrays are (layers, dim) or (dim,), since the words of a sentence were pooled.

    Returns:
        One row per sentence: a list of words, each a list of `dim` numbers; for all layers a list of these.
    """
    shape = arrays[0].shape
    column = pa.array(np.concatenate([array.reshape(-1) for array in arrays]))
    for axis in reversed(range(len(shape))):
        if is_pooled or axis != len(shape) - 2:
            column = pa.FixedSizeListArray.from_arrays(column, shape[axis])
        else:  # the words
            lengths = np.repeat([array.shape[axis] for array in arrays], shape[0] if axis else 1)
            offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
            column = pa.ListArray.from_arrays(offsets, column)
    return column


def vectors_of(column: pa.Array | pa.ChunkedArray) -> Iterator[np.ndarray]:
    """Yield the rows of a `vector_column` as arrays, of the shapes given there, without a copy.

    Example:
        >>> import pyarrow as pa
        >>> column = vector_column([np.zeros((3, 2, 4)), np.ones((3, 1, 4))])
        >>> [vectors.shape for vectors in vectors_of(pa.chunked_array([column]))]
        [(3, 2, 4), (3, 1, 4)]
    """
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        sizes, values, lengths = [], chunk, np.ones(len(chunk), int)
        while pa.types.is_nested(values.type):
            if pa.types.is_fixed_size_list(values.type):
                sizes.append(values.type.list_size)
            else:  # the words: as many in each layer
                lengths = values.value_lengths().to_numpy(zero_copy_only=False)[:: math.prod(sizes)]
                sizes.append(-1)
            values = values.flatten()
        numbers = values.to_numpy(zero_copy_only=False)
        n_numbers = lengths * abs(math.prod(sizes))
        for n, end in zip(n_numbers, np.cumsum(n_numbers), strict=True):
            yield numbers[end - n : end].reshape(sizes)


ABOUT = "_bilm.json"
"""Name of the file that describes the others; Parquet readers skip names that begin with an underscore."""
_PART = re.compile(r"part-\d{6}(-[\da-f]{32,}(-\d+)?)?\.parquet")
_PART_BYTES = 1 << 28


def part_name(number: int) -> str:
    """Return the name of a file by its number from 0; names sort in that order."""
    return f"part-{number:06}.parquet"


def write_options(compression: str | None) -> dict[str, Any]:
    """Return pyarrow's options for the tables; dictionaries of vectors would only add to the size."""
    tables = {"use_dictionary": ["file"], "write_statistics": ["line"], "write_page_checksum": True}
    return {"compression": compression or "none", **tables}


def about_embeddings(form: VectorForm, n_lines: int) -> str:
    """Return the content of `ABOUT`."""
    about = {"written_by": "bilm embed", **dataclasses.asdict(form), "lines": n_lines}
    return json.dumps(about, indent=2) + "\n"


def file_system(path: str) -> tuple[Any, str]:
    """Return the file system of a URL or an absolute path, and the path within it.

    Raises:
        DataError: pyarrow knows no such file system.
    """
    with messages.os_errors_as(DataError, path, ValueError, pa.ArrowException):
        return FileSystem.from_uri(path)


def names_in(system: Any, directory: str) -> list[str]:  # noqa: ANN401
    """List the names in a directory of a file system, sorted; empty if it does not exist."""
    files = system.get_file_info(FileSelector(directory, allow_not_found=True))
    return sorted(file.base_name for file in files)


def check_parquet(path: PathLike, overwrite: bool) -> None:
    """Check that a directory can be written without losing other files.

    Args:
        path: the directory, or its URL.
        overwrite: allow a directory with embeddings written by bilm and nothing else.

    Raises:
        DataError: the directory cannot be written; the message says why.
    """
    if not is_url(path):
        outputs.check_output(path, overwrite, kind=_EMBEDDINGS)
    elif names_in(*file_system(str(path))) and not (overwrite and _is_ours(path)):
        raise DataError(
            f"{path}: exists; overwrite=True replaces it if it is {_EMBEDDINGS.name} that bilm wrote, with "
            "nothing else in it"
        )


def _is_ours(directory: PathLike) -> bool:
    """Return True if bilm wrote all files of a directory, by their names and the content of `ABOUT`."""
    system, place = file_system(str(directory))
    names = names_in(system, place)
    if ABOUT not in names or not all(name == ABOUT or _PART.fullmatch(name) for name in names):
        return False
    with system.open_input_stream(f"{place}/{ABOUT}") as stream:
        return b'"written_by": "bilm embed"' in stream.read()


_EMBEDDINGS = outputs.Kind("a directory of embeddings", _is_ours)


def parquet_directory(path: str | Path, overwrite: bool) -> AbstractContextManager[list[Path]]:
    """Open one temporary directory for the files, which becomes `path` when the block succeeds.

    `path` is locked against other processes until the end of the block, and checked by `check_parquet`.

    Args:
        path: the directory.
        overwrite: see `check_parquet`.

    Raises:
        DataError: the directory cannot be written, another process is writing it, or it appeared during the
            work; the result is then beside it, under the name in the message.
    """
    return atomic.writing(path, overwrite=overwrite, kind=_EMBEDDINGS, failure=DataError)


def embed_parquet(
    embedder: "ChunkEmbedder",
    texts: Iterable[tuple[str, Iterable[str]]],
    directory: str | Path,
    form: VectorForm,
    compression: str | None = None,
    overwrite: bool = False,
    callback: Callable[[EmbeddingReport], None] = lambda report: None,
    words: Sequence[str] | None = None,
) -> EmbeddingReport:
    """Embed texts and write a row for each of their lines: `file`, `line`, `sentence`, `tokens`, `vectors`.

    With words, a row for each of their occurrences: `file`, `line` and `position` from 0, `word`, `vector`.

    Args:
        embedder: embedder of the lines.
        texts: pairs of a name, for the column `file`, and the text's lines.
        directory: directory of the files, written whole or not at all.
        form: form of the vectors.
        compression: Parquet codec, or None.
        overwrite: see `check_parquet`.
        callback: called with the report every few thousand words.
        words: words to write; None for whole lines.

    Returns:
        The counts of the whole call.

    Raises:
        DataError: there are no lines, or none of the words is in them; the files cannot be written, or
            another process is writing them.
    """

    def tables() -> Iterator[pa.Table]:
        for name, lines in texts:
            if words is not None:
                for chunk in occurrences(embedder, map(str.split, lines), words, form, report):
                    numbers, positions, found, vectors = zip(*chunk, strict=True)
                    places = {LINE: pa.array(numbers, pa.int64()), POSITION: pa.array(positions, pa.int32())}
                    column = vector_column(vectors, is_pooled=True)
                    yield pa.table({FILE: [name] * len(chunk), **places, WORD: found, VECTOR: column})
                continue
            sentences = sentence_tables(name, lines, *embedder.chunk_size)
            yield from background.map_in_order(
                lambda table: embedded(embedder, table, form), sentences, embedder.n_at_once
            )

    report = EmbeddingReport()
    n_parts = n_bytes = 0
    writer: Any = None
    with parquet_directory(directory, overwrite) as (place,), ExitStack() as open_file:
        for table in background.prefetch(tables(), depth=1):
            if writer is None or n_bytes >= _PART_BYTES:
                open_file.close()
                path = place / part_name(n_parts)
                file = pq.ParquetWriter(path, table.schema, **write_options(compression))
                writer = open_file.enter_context(file)
                n_parts, n_bytes = n_parts + 1, 0
            writer.write_table(table)
            n_bytes += table.nbytes
            if words is None:
                n_words = [len(tokens) for tokens in table[TOKENS]]
                report.count(len(n_words), n_words.count(0), sum(n_words))
            callback(report)
        report.require_some(words)
        (place / ABOUT).write_text(about_embeddings(form, report.n_lines), encoding="utf-8")
    report.count()
    return report
