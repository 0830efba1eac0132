"""The directory ``NAME.parts`` of an unfinished file of embeddings; one process writes in it."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.locks import FileLock, HeldError
from bilm.io.outputs import check_output, require_file
from bilm.io.reasons import os_errors_as

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
