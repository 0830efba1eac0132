"""Files of embeddings: HDF5, one dataset a sentence, as AllenNLP 0.9's ``elmo`` command wrote them.

While a file is being made it is a directory ``NAME.parts`` of HDF5 files, each whole when it has its
name; the parts become one file at the end. So there is never a file that cannot be read, whenever
the process is stopped, and what is done need not be done again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np

from bilm.embedding.part import Part, read_part, write_attributes
from bilm.embedding.parts_directory import (
    part_file,
    part_files,
    parts_directory,
    remove_parts,
    unfinished_part,
)
from bilm.errors import DataError
from bilm.io.atomic import replacing, require_room, sync
from bilm.io.reasons import reason

_PART_BYTES = 1 << 27
_PART_SECONDS = 10.0  # of work that is lost if the process is killed


class TextDigest:
    """SHA-256 of lines."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, line: str) -> None:
        """Add a line without its end."""
        self._hash.update(line.encode("utf-8", "surrogatepass") + b"\n")

    def hexdigest(self) -> str:
        """The sum so far."""
        return self._hash.hexdigest()


def find_parts(outfile: Path, settings: Mapping[str, Any]) -> list[Part]:
    """What there is of a file, in the order of its lines.

    Raises:
        DataError: it was made otherwise, or cannot be read.
    """
    paths = part_files(outfile)
    if outfile.exists() and part_file(outfile, 0) not in paths:
        paths.insert(0, outfile)  # else it is what the parts will replace
    parts: list[Part] = []
    for path in paths:
        part = read_part(path, settings)
        if part.end < (parts[-1].end if parts else 0):
            raise DataError(f"{path}: ends at line {part.end}, before the part before it; it is damaged")
        parts.append(part)
    return parts


class PartsWriter:
    """Writes the parts of a file; a context manager, which keeps what is whole even if it is left early.

    Their directory is there, and this process's own, see `bilm.embedding.parts_directory.parts_held`.

    Args:
        outfile: the file they will be.
        settings: how they are made, JSON.
        start: number of the first line, from 0.
        compression: ``gzip``, ``lzf`` or None.

    Raises:
        DataError: nothing can be written there.
    """

    def __init__(
        self, outfile: Path, settings: Mapping[str, Any], start: int, compression: str | None = None
    ) -> None:
        self.parts: list[Part] = []
        self._outfile, self._settings, self._compression = outfile, settings, compression
        self._start = self._end = start
        self._file: h5py.File | None = None
        self._temporary = Path()
        self._bytes = self._n_datasets = 0

    def __enter__(self) -> PartsWriter:
        """Begin."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the part that is being written, unless it was that which failed."""
        if kind is None:
            self.finish()
            return
        try:
            self.finish()
        except DataError:
            self._discard()

    def write(self, lines: Sequence[str], arrays: Mapping[str, np.ndarray]) -> None:
        """Add the embeddings of the next lines.

        Raises:
            DataError: they could not be written; the lines before them are kept.
        """
        n_bytes = sum(array.nbytes for array in arrays.values())
        with _writing(self._outfile):  # before anything is half written
            # HDF5 writes what it adds to the arrays when it closes the file.
            n_added = _overhead(self._n_datasets + len(arrays), self._compression)
            require_room(parts_directory(self._outfile), n_bytes + n_added)
        try:
            with _writing(self._outfile):
                file = self._file = self._file or self._open()
                for key, array in arrays.items():
                    compression = self._compression if array.size else None
                    file.create_dataset(key, data=array, compression=compression)
        except DataError:
            self._discard()
            raise
        for line in lines:
            self._digest.add(line)
        self._end += len(lines)
        self._bytes += n_bytes
        self._n_datasets += len(arrays)
        if self._bytes >= _PART_BYTES or time.monotonic() - self._since >= _PART_SECONDS:
            self.finish()

    def _open(self) -> h5py.File:
        self._temporary = unfinished_part(self._outfile, self._start)
        self._digest = TextDigest()
        self._bytes, self._n_datasets, self._since = 0, 0, time.monotonic()
        return h5py.File(self._temporary, "w")

    def finish(self) -> None:
        """Give the part that is being written its name.

        Raises:
            DataError: it could not be written; the parts before it are kept.
        """
        if self._file is None:
            return
        digest = self._digest.hexdigest()
        path = part_file(self._outfile, self._start)
        try:
            with _writing(self._outfile):
                write_attributes(self._file, self._settings, digest, self._end)
                self._file.close()
                sync(self._temporary)
                self._temporary.replace(path)
        except DataError:
            self._discard()
            raise
        self.parts.append(Part(path, self._end, digest))
        self._file, self._start, self._n_datasets = None, self._end, 0

    def _discard(self) -> None:
        """Give up the part that is being written, back to the last one that is whole."""
        if self._file is not None:
            _give_up(self._file)
            self._temporary.unlink(missing_ok=True)
        self._file, self._end, self._n_datasets = None, self._start, 0


class PartsJoiner:
    """Makes one file of parts, while the later ones are not there yet; a context manager.

    The file has its name when it is finished; an error leaves nothing but the parts.

    Args:
        outfile: replaced if it exists.
        settings: how the parts were made.
        left_out: datasets that a part may have and the file gets anew.

    Raises:
        DataError: nothing can be written there.
    """

    def __init__(self, outfile: Path, settings: Mapping[str, Any], left_out: Collection[str] = ()) -> None:
        self._outfile, self._settings, self._left_out = outfile, settings, left_out
        self._n_added = 0

    def __enter__(self) -> PartsJoiner:
        """Begin."""
        with _writing(self._outfile):
            with ExitStack() as stack:
                self._temporary = stack.enter_context(replacing(self._outfile))
                self._file = h5py.File(self._temporary, "w")
                self._replace = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give up what is not finished."""
        _give_up(self._file)
        self._replace.__exit__(kind, error, trace)

    def add(self, parts: Sequence[Part]) -> None:
        """Add those parts that are not added yet.

        Args:
            parts: all of them so far, in order.

        Raises:
            DataError: a part cannot be read, or the file not be written.
        """
        for part in parts[self._n_added :]:
            with _writing(self._outfile):
                require_room(self._temporary.parent, part.path.stat().st_size + _overhead(0))
                with h5py.File(part.path, "r") as source:
                    for key in source:
                        if key not in self._left_out:
                            h5py.h5o.copy(source.id, key.encode(), self._file.id, key.encode())
        self._n_added = len(parts)

    def finish(self, parts: Sequence[Part], digest: str, texts: Mapping[str, str]) -> None:
        """Give the file its name and remove the parts.

        Args:
            parts: all of them, in order.
            digest: of the whole text.
            texts: datasets of one string to add.

        Raises:
            DataError: the file cannot be written; the parts are still there.
        """
        self.add(parts)
        with _writing(self._outfile):
            require_room(self._temporary.parent, sum(map(len, texts.values())) + _overhead(0))
            for name, text in texts.items():
                self._file.create_dataset(name, data=[text], dtype=h5py.string_dtype())
            write_attributes(self._file, self._settings, digest, parts[-1].end)
            self._file.close()
            self._replace.close()
        remove_parts(self._outfile)


def _give_up(file: h5py.File) -> None:
    """Close a file that may be one that cannot be written."""
    with suppress(OSError, RuntimeError, ValueError):
        file.close()


def _overhead(n_datasets: int, compression: str | None = None) -> int:
    """Bytes that HDF5 adds to the arrays, at most: measured 380 a dataset, 3,700 a compressed one."""
    return (1 << 16) + n_datasets * (512 if compression is None else 4096)


@contextmanager
def _writing(outfile: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{outfile}: cannot be written: {reason(error)}") from error
