"""Files that are either written whole or not at all."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | Path, directory: Path | None = None) -> Iterator[Path]:
    """A temporary name, which takes the place of `path` when the block succeeds.

    The file's bytes reach the disk before its name does. If the block fails, the temporary file is
    removed and whatever stood at `path` is untouched.

    Args:
        path: the file.
        directory: where the temporary name is, on the same disk; by default that of `path`.

    Raises:
        OSError: from the file system; the caller knows what was being written.
    """
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=directory or path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        # mkstemp gives 0600; a user expects the permissions of any other new file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync(path: Path) -> None:
    """Flush a file, or a directory's entries, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def require_room(directory: Path, n_bytes: int) -> None:
    """Raise what the system would: HDF5 crashes the process when a disk gets full as it closes a file.

    Args:
        directory: on the disk that is written to.
        n_bytes: about to be written, with whatever the format adds.

    Raises:
        OSError: there is less.
    """
    if shutil.disk_usage(directory).free < n_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
