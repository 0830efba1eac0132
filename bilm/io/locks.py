"""Advisory locks on files: one process at a time; a lock ends with its process, however that ends."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
from contextlib import suppress
from pathlib import Path

from bilm.errors import DataError
from bilm.io import PathLike

# The errors of a file system without locks.
_UNSUPPORTED = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_HOLDER_BYTES = 300


class HeldError(Exception):
    """Another process has the lock.

    Attributes:
        holder: who has it, in words: the host and the process id.
    """

    def __init__(self, holder: str) -> None:
        super().__init__(f"held by {holder}")
        self.holder = holder


def held_by(error: HeldError, output: PathLike) -> DataError:
    """Return the error of a second writer of an output, which names the first."""
    return DataError(
        f"{output}: is being written by {error.holder}; wait for it to finish, or give another name"
    )


class FileLock:
    """An advisory lock (``flock``), held from its construction to `release`; a context manager.

    The file says who holds the lock. It is removed when the lock is released; a killed process leaves
    it behind, unlocked.

    Args:
        path: of the lock file; its directory exists.

    Attributes:
        is_supported: whether the file system has locks; without them the lock has no effect.

    Raises:
        HeldError: another process holds it, or another `FileLock` of this one.
        OSError: the file cannot be made.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            try:
                self.is_supported = _lock(handle)
                if _is_still(path, handle):
                    _sign(handle)
                    break
            except BlockingIOError:
                holder = os.pread(handle, _HOLDER_BYTES, 0).decode("utf-8", "replace").strip()
                os.close(handle)
                raise HeldError(holder or "another process") from None
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # its holder released and removed it just now
        self._handle: int | None = handle

    def release(self) -> None:
        """Release the lock; a second call does nothing, or what is left to do after a signal."""
        if (handle := self._handle) is None:
            return
        with suppress(OSError):
            if _is_still(self.path, handle):
                self.path.unlink()
        self._handle = None
        os.close(handle)

    def __enter__(self) -> FileLock:
        """Hold it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Release it."""
        self.release()


def _sign(handle: int) -> None:
    """Write who has the lock; ignored if the disk is full."""
    with suppress(OSError):
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"host {socket.gethostname()}, process {os.getpid()}\n".encode(), 0)


def _lock(handle: int) -> bool:
    """Lock an open file; whether its file system can."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        return False
    return True


def _is_still(path: Path, handle: int) -> bool:
    """Whether a path still names an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False
