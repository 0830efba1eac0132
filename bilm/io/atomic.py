"""Outputs that are either written whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bilm.io.outputs import require_directory, require_file
from bilm.io.staging import Staging


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary file, which takes the place of `path` when the block succeeds.

    Its bytes are flushed to the disk before it gets its name. If the block fails, the temporary file
    is removed and whatever was at `path` is untouched. The target of a symlink is replaced, not the link.

    Raises:
        DataError: there is a directory, a device or the like at `path`, or a dangling symlink.
        OSError: from the file system; the caller knows what was being written.
    """
    with replacing_together(path) as (temporary,):
        yield temporary


@contextmanager
def replacing_together(*paths: str | Path) -> Iterator[list[Path]]:
    """As `replacing`, for files that belong together: all of them take their places, or none does.

    Raises:
        DataError: as `replacing`.
        OSError: as `replacing`.
    """
    with ExitStack() as stack:
        stagings = [stack.enter_context(Staging(require_file(path))) for path in paths]
        for staging in stagings:
            staging.new.touch()
        yield [staging.new for staging in stagings]
        for staging in stagings:
            sync(staging.new)
        _publish(stagings)


def _publish(stagings: Sequence[Staging]) -> None:
    *first, last = stagings
    try:
        for staging in first:
            _publish_first(staging)
        last.publish()
        for staging in stagings:
            sync(staging.target.parent)
    except BaseException:
        if not last.is_published:
            for staging in first:
                staging.withdraw()
        raise


def _publish_first(staging: Staging) -> None:
    """Publish one of several files; its error names it, as the caller may name only the last."""
    try:
        staging.publish(keep_old=True)
    except OSError as error:
        raise OSError(error.errno, f"{staging.target}: {error.strerror}") from error


@contextmanager
def replacing_directory(path: str | Path) -> Iterator[Path]:
    """As `replacing`, for a directory, which the block makes: nothing is there yet.

    The caller has made sure that the directory at `path` may go.

    Raises:
        DataError: there is a file at `path`, or a dangling symlink.
        OSError: as `replacing`.
    """
    with Staging(require_directory(path)) as staging:
        yield staging.new
        for inner in staging.new.rglob("*"):
            sync(inner)
        sync(staging.new)
        staging.publish()
        sync(staging.target.parent)


def sync(path: Path) -> None:
    """Flush a file, or a directory's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def require_room(directory: Path, n_bytes: int) -> None:
    """Raise the system's error early: HDF5 crashes the process if the disk fills up while it closes a file.

    Args:
        directory: on the disk to be written to.
        n_bytes: to be written, including what the format adds.

    Raises:
        OSError: there is less space.
    """
    if shutil.disk_usage(directory).free < n_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
