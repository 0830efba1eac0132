"""Writing embeddings as they are made, in parts that get their names when they are complete."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np

from bilm.embedding_files.parts import (
    Part,
    TextDigest,
    close_anyway,
    named_failures,
    overhead,
    write_attributes,
)
from bilm.embedding_files.parts_directory import part_file, parts_directory, unfinished_part
from bilm.errors import DataError
from bilm.io.atomic import require_room, sync

_PART_BYTES = 1 << 27
_PART_SECONDS = 10.0  # of work that is lost if the process is killed


class PartsWriter:
    """Writes the parts of a file; a context manager, which keeps what is whole even if it is left early.

    Their directory is there, and this process's own, see `bilm.embedding_files.parts_directory.parts_held`.

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
        with named_failures(self._outfile):  # before anything is half written
            # HDF5 writes what it adds to the arrays when it closes the file.
            n_added = overhead(self._n_datasets + len(arrays), self._compression)
            require_room(parts_directory(self._outfile), n_bytes + n_added)
        try:
            with named_failures(self._outfile):
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
            with named_failures(self._outfile):
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
            close_anyway(self._file)
            self._temporary.unlink(missing_ok=True)
        self._file, self._end, self._n_datasets = None, self._start, 0
