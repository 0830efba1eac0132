"""The texts of a job: local files and those of pyarrow's file systems, read in pieces by Ray's workers.

``ray.data.read_text`` has no numbers of lines, and holds a file in memory whole; this reads as all of bilm.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bilm.data.corpus import find_files
from bilm.embedding.parquet_output import FILE, LINE, SENTENCE, sentence_tables
from bilm.errors import DataError
from bilm.io import is_url
from bilm.io.lines import read_lines, read_stream_lines
from bilm.io.messages import os_errors_as

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES_OF_A_WORD = 5.5
_PIECES_OF_A_WORKER = 8
_LEAST_WORDS = 1 << 11


def file_system(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path there.

    Raises:
        DataError: pyarrow knows no such file system.
    """
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        return FileSystem.from_uri(url)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise DataError(f"{url}: {str(error).splitlines()[0]}") from error


def text_files(patterns: Sequence[str]) -> list[str]:
    """The files of texts in their order: local ones by their absolute paths, others by URL.

    Args:
        patterns: files, directories and globs; of other file systems, files and directories.

    Raises:
        DataError: there is no such file.
    """
    found: list[str] = []
    for pattern in patterns:
        if is_url(pattern):
            found += _remote_files(pattern)
        else:
            found += [os.path.abspath(file) for file in find_files([pattern])]
    return list(dict.fromkeys(found))


def _remote_files(url: str) -> list[str]:
    from pyarrow.fs import FileSelector, FileType

    system, path = file_system(url)
    with os_errors_as(DataError, url):
        info = system.get_file_info(path)
        if info.type is FileType.File:
            return [url]
        if info.type is not FileType.Directory:
            raise DataError(f"{url}: No such file or directory")
        inner = sorted(one.path for one in system.get_file_info(FileSelector(path)) if one.is_file)
    if not inner:
        raise DataError(f"{url}: the directory has no files")
    return [url.rstrip("/") + one.removeprefix(path.rstrip("/")) for one in inner]


def words_of_a_piece(files: Sequence[str], n_workers: int, most: int) -> int:
    """How many words a worker gets at a time: fewer of small texts, so that there is some for each."""
    n_bytes = sum(map(_size, files))
    words = n_bytes / _BYTES_OF_A_WORD / (n_workers * _PIECES_OF_A_WORKER)
    return int(min(max(words, _LEAST_WORDS), most))


def _size(file: str) -> int:
    if not is_url(file):
        return os.path.getsize(file)
    system, path = file_system(file)
    return system.get_file_info(path).size or 0


def lines_of(file: str) -> Iterator[str]:
    """The lines of a file without their ends, decompressed by content.

    Raises:
        DataError: as `bilm.io.lines.read_lines`.
    """
    if not is_url(file):
        yield from read_lines(file)
        return
    system, path = file_system(file)
    with os_errors_as(DataError, file):
        stream = system.open_input_stream(path, compression=None)
    with stream:
        yield from read_stream_lines(stream, file)


def pieces(batch: Mapping[str, Any], n_words: int) -> Iterator[pa.Table]:
    """Read files in pieces, a row of their own each: `file`, `line` of the first, and `sentence`, a list.

    Args:
        batch: the files, as `item`; for ``map_batches``.
        n_words: of a piece, with marks, and whole sentences.
    """
    import pyarrow as pa

    for file in map(str, batch["item"]):
        for table in sentence_tables(file, lines_of(file), lambda _, n_tokens: n_tokens >= n_words):
            sentences = pa.array([table[SENTENCE].to_pylist()], pa.list_(pa.string()))
            yield pa.table({FILE: [file], LINE: table[LINE][:1], SENTENCE: sentences})


def sentences_of(table: pa.Table) -> pa.Table:
    """The rows of `pieces` as a row a sentence."""
    import pyarrow as pa

    parts = [
        table.schema.empty_table().select([FILE, LINE]).append_column(SENTENCE, pa.array([], pa.string()))
    ]
    for row in table.to_pylist():
        numbers = range(row[LINE], row[LINE] + len(row[SENTENCE]))
        columns = {
            FILE: pa.array([row[FILE]] * len(numbers), pa.string()),
            LINE: pa.array(numbers, pa.int64()),
        }
        parts.append(pa.table({**columns, SENTENCE: pa.array(row[SENTENCE], pa.string())}))
    return pa.concat_tables(parts).combine_chunks()
