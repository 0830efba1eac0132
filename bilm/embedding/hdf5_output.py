"""Files of embeddings in HDF5, written in parts until they are complete."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.atomic import replacing, require_room, sync
from bilm.io.hdf5 import opened_hdf5
from bilm.io.json import parse_json
from bilm.io.locks import FileLock, HeldError
from bilm.io.messages import os_errors_as, reason, shown
from bilm.io.outputs import check_output, require_file

_PART = re.compile(r"part-\d{12}\.hdf5")
_UNFINISHED = re.compile(rf"{_PART.pattern}\.\w{{8}}\.tmp")
_LOCK = "lock"

_LOG = logging.getLogger(__name__)


def parts_directory(outfile: Path) -> Path:
    """Where the parts of an unfinished file are: beside what it leads to, if it is a symlink."""
    target = Path(os.path.realpath(outfile)) if outfile.is_symlink() else outfile
    return target.with_name(target.name + ".parts")


def part_file(outfile: Path, start: int) -> Path:
    """The part whose first line has this number."""
    return parts_directory(outfile) / f"part-{start:012}.hdf5"


def unfinished_part(outfile: Path, start: int) -> Path:
    """Make the file that the part is while it is written.

    Raises:
        OSError: from the file system.
    """
    part = part_file(outfile, start)
    handle, name = tempfile.mkstemp(prefix=f"{part.name}.", suffix=".tmp", dir=part.parent)
    os.close(handle)
    return Path(name)


def part_files(outfile: Path) -> list[Path]:
    """The parts that there are, in the order of their lines."""
    return sorted(file for file in parts_directory(outfile).glob("part-*") if _PART.fullmatch(file.name))


def remove_parts(outfile: Path) -> None:
    """Forget an unfinished file; what else lies in its directory stays."""
    for file in part_files(outfile):
        file.unlink()


@contextmanager
def parts_held(outfile: Path) -> Iterator[None]:
    """Make the directory, and keep other processes out of it; nothing of it stays that is no part.

    Raises:
        DataError: another process writes the file, or nothing can be written there.
    """
    directory = parts_directory(outfile)
    require_file(outfile)
    try:
        directory.mkdir(exist_ok=True)
        lock = FileLock(directory / _LOCK)
    except HeldError as error:
        raise _held(outfile, error) from None
    except OSError as error:
        with suppress(OSError):
            directory.rmdir()
        raise DataError(f"{outfile}: cannot be written: {error.strerror or error}") from error
    try:
        _take_over(outfile, lock.is_supported)
        yield
    finally:
        lock.release()
        with suppress(OSError):  # there are parts in it, or files of the user's
            directory.rmdir()


def _take_over(outfile: Path, is_alone: bool) -> None:
    """Remove what a process that was killed was writing."""
    if not is_alone:
        _LOG.warning("%s: this file system has no locks; make sure that only one process writes it", outfile)
        return
    for file in parts_directory(outfile).glob("part-*"):
        if _UNFINISHED.fullmatch(file.name):
            file.unlink()


def check_embeddings(
    outfile: Path, overwrite: bool, resume: bool, inputs: Iterable[PathLike | int | None] = ()
) -> None:
    """Refuse a file of embeddings that cannot be written, or by which something else would be lost.

    Args:
        outfile: the file.
        overwrite: whether it, or what there is of it, may be replaced.
        resume: whether it may be continued.
        inputs: see `bilm.io.outputs.refuse_inputs`.

    Raises:
        DataError: says why not.
    """
    check_output(outfile, True, inputs)
    directory = parts_directory(outfile)
    if directory.exists() and not directory.is_dir():
        raise DataError(
            f"{directory}: is in the way of the directory for the finished parts of {outfile.name}"
        )
    _refuse_held(outfile)
    if not (overwrite or resume):
        refuse_existing(outfile)


def refuse_existing(outfile: Path) -> None:
    """Refuse to write where something is.

    Raises:
        DataError: the file exists, or an unfinished one does.
    """
    if outfile.exists():
        raise DataError(f"{outfile}: exists; overwrite=True replaces it, resume=True continues it")
    if part_files(outfile):
        raise DataError(
            f"{parts_directory(outfile)}: holds an unfinished file; resume=True finishes it, "
            "overwrite=True starts again"
        )


def _refuse_held(outfile: Path) -> None:
    lock = parts_directory(outfile) / _LOCK
    try:
        with os_errors_as(DataError, f"{outfile}: cannot be written: {lock}"):
            if lock.is_file():
                FileLock(lock).release()
    except HeldError as error:
        raise _held(outfile, error) from None


def _held(outfile: Path, error: HeldError) -> DataError:
    return DataError(
        f"{outfile}: is being written by {error.holder}; wait for it to finish, or give another name"
    )


_SETTINGS, _TEXT, _LINES = "bilm_settings", "bilm_text", "bilm_lines"
"""Attributes of a file: how and of what it was made."""


@dataclass(frozen=True)
class Part:
    """Embeddings of consecutive lines, whole on the disk.

    Attributes:
        path: the file.
        end: number of the line after its last, from 0.
        digest: of the lines' text.
    """

    path: Path
    end: int
    digest: str


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
        DataError: it was written with other settings, or cannot be read.
    """
    paths = part_files(outfile)
    if outfile.exists() and part_file(outfile, 0) not in paths:
        paths.insert(0, outfile)  # else it is what the parts will replace
    parts: list[Part] = []
    for path in paths:
        part = read_part(path, settings)
        if part.end < (parts[-1].end if parts else 0):
            raise DataError(f"{path}: damaged, as it ends at line {part.end}, before the previous part does")
        parts.append(part)
    return parts


def read_part(path: Path, settings: Mapping[str, Any]) -> Part:
    """What a file says of itself.

    Raises:
        DataError: it was not made with these settings, or cannot be read.
    """
    with opened_hdf5(path, DataError) as file:
        if _SETTINGS not in file.attrs:
            raise DataError(f"{path}: was not written by bilm embed and cannot be resumed")
        found = parse_json(_read_attribute(file, _SETTINGS, "S"))
        if found != dict(settings):
            raise DataError(f"{path}: was written with other settings: {_difference(found, settings)}")
        end, digest = _read_attribute(file, _LINES, "iu"), _read_attribute(file, _TEXT, "S")
        return Part(path, int(end), digest.decode())


def _read_attribute(file: h5py.File, name: str, kinds: str) -> Any:  # noqa: ANN401
    """A number or bytes; never text of variable length, for which a damaged file makes HDF5 loop for ever."""
    attribute = file.attrs.get_id(name)
    if attribute.dtype.kind not in kinds or attribute.shape != ():
        raise DataError(f"{file.filename}: its attribute {name} is not what bilm embed writes")
    return file.attrs[name]


def _difference(found: Any, wanted: Mapping[str, Any]) -> str:  # noqa: ANN401
    if not isinstance(found, dict):
        return f"its settings are {shown(found)}"
    different = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    return ", ".join(f"{name} {found.get(name)} instead of {wanted.get(name)}" for name in different)


def write_attributes(file: h5py.File, settings: Mapping[str, Any], digest: str, end: int) -> None:
    """Say how and of what a file was made; see `Part`.

    Raises:
        OSError, RuntimeError: from HDF5.
    """
    text = json.dumps(dict(settings))
    file.attrs.update({_SETTINGS: np.bytes_(text), _TEXT: np.bytes_(digest), _LINES: end})


def close_anyway(file: h5py.File) -> None:
    """Close a file that may be one that cannot be written."""
    with suppress(OSError, RuntimeError, ValueError):
        file.close()


def overhead(n_datasets: int, compression: str | None = None) -> int:
    """Bytes that HDF5 adds to the arrays, at most: measured 380 a dataset, 3,700 a compressed one."""
    return (1 << 16) + n_datasets * (512 if compression is None else 4096)


@contextmanager
def named_failures(outfile: Path) -> Iterator[None]:
    """Name what fails while a file is written.

    Raises:
        DataError: for what HDF5 or the system raised.
    """
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{outfile}: cannot be written: {reason(error)}") from error


_PART_BYTES = 1 << 27
_PART_SECONDS = 10.0  # of work that is lost if the process is killed


class PartsWriter:
    """Writes the parts of a file; a context manager, which keeps what is whole even if it is left early.

    Their directory is there, and this process's own, see `bilm.embedding.hdf5_output.parts_held`.

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
        with named_failures(self._outfile):
            with ExitStack() as stack:
                self._temporary = stack.enter_context(replacing(self._outfile))
                self._file = h5py.File(self._temporary, "w")
                self._replace = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give up what is not finished."""
        close_anyway(self._file)
        self._replace.__exit__(kind, error, trace)

    def add(self, parts: Sequence[Part]) -> None:
        """Add those parts that are not added yet.

        Args:
            parts: all of them so far, in order.

        Raises:
            DataError: a part cannot be read, or the file not be written.
        """
        for part in parts[self._n_added :]:
            with named_failures(self._outfile):
                require_room(self._temporary.parent, part.path.stat().st_size + overhead(0))
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
        with named_failures(self._outfile):
            require_room(self._temporary.parent, sum(map(len, texts.values())) + overhead(0))
            for name, text in texts.items():
                self._file.create_dataset(name, data=[text], dtype=h5py.string_dtype())
            write_attributes(self._file, self._settings, digest, parts[-1].end)
            self._file.close()
            self._replace.close()
        remove_parts(self._outfile)
