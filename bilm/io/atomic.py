"""Atomic outputs: each is made in a locked directory beside its target, then renamed."""

import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from bilm.errors import DataError
from bilm.io import messages, outputs

# Errors from a file system without locks.
_UNSUPPORTED = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_HOLDER_BYTES = 300


class HeldError(Exception):
    """Another process holds the lock; the message has its host and process id."""


class FileLock(AbstractContextManager["FileLock"]):
    """An advisory lock (``flock``), held from construction to `release`; a context manager.

    One process holds the lock at a time, and the end of the process, even by a kill, releases it. The file
    names the holder. It is removed on release; a killed process leaves it behind, unlocked.

    Args:
        path: the lock file; its directory must exist.

    Attributes:
        is_supported: the file system has locks; otherwise the lock has no effect.

    Raises:
        HeldError: another process, or another `FileLock` of this process, holds the lock.
        OSError: the file cannot be created.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            try:
                self.is_supported = _lock(handle)
                if _is_still(path, handle):
                    break
            except BlockingIOError:
                holder = os.pread(handle, _HOLDER_BYTES, 0).decode("utf-8", "replace").strip()
                os.close(handle)
                raise HeldError(holder or "another process") from None
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)  # the holder has just released and removed the file: try again
        self._handle: int | None = handle
        with suppress(OSError):  # the disk may be full
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"host {socket.gethostname()}, process {os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; a second call completes an interrupted one, otherwise does nothing."""
        if (handle := self._handle) is None:
            return
        with suppress(OSError):
            if _is_still(self.path, handle):
                self.path.unlink()
        self._handle = None
        os.close(handle)

    def __exit__(self, *error: object) -> None:
        """Release the lock."""
        self.release()


def _lock(handle: int) -> bool:
    """Lock an open file; return whether its file system supports locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        return False
    return True


def _is_still(path: Path, handle: int) -> bool:
    """Return whether a path still refers to an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


_LOCK, _NEW, _OLD = "lock", "new", "old"


class Staging:
    """The directory ``.NAME.tmp`` beside an output, locked by the process that writes the output.

    A context manager: the directory is created, or taken over, on entry and removed at exit. After a process
    was killed, the next writer of the output takes over its directory, restores an old output that had been
    moved there, and removes the rest.

    Args:
        target: the output, which may exist; its directory must exist.

    Attributes:
        target: the output.
        new: path in the directory for the new output; `publish` renames it to `target`.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self._directory = target.with_name(f".{target.name}.tmp")
        self.new, self._old = self._directory / _NEW, self._directory / _OLD
        self._lock: FileLock | None = None

    def hold(self) -> None:
        """Create and lock the directory, and clear remains of a killed process.

        Raises:
            DataError: another process or thread is writing the output, or a foreign file is in the way.
            OSError: from the file system.
        """
        while self._lock is None:
            with suppress(FileExistsError):
                self._directory.mkdir()
            if self._directory.is_symlink() or not self._directory.is_dir():
                raise self._in_the_way(self._directory)
            try:
                self._lock = FileLock(self._directory / _LOCK)
            except HeldError as error:
                raise DataError(
                    f"{self.target}: is being written by {error}; wait for it to finish, or give another name"
                ) from error
            except FileNotFoundError:
                continue  # another process has just finished and removed the directory
        for name in os.listdir(self._directory):
            if name not in (_LOCK, _NEW, _OLD):
                raise self._in_the_way(self._directory / name)
        self._clear()

    def _in_the_way(self, path: Path) -> DataError:
        return DataError(f"{path}: is in the way of the temporary files for {self.target.name}; move it")

    def publish(self, keep_old: bool = False) -> None:
        """Rename the new output to its target.

        A directory cannot be replaced in one step, so an old one is first moved aside. If the rename fails
        it is moved back when the directory is cleared; after a kill, by the next writer.

        Args:
            keep_old: move an old file aside too, for `withdraw`.

        Raises:
            OSError: from the file system.
        """
        if keep_old or self.target.is_dir():
            with suppress(FileNotFoundError):
                os.rename(self.target, self._old)
        os.replace(self.new, self.target)

    def withdraw(self) -> None:
        """Remove a published file; clearing the directory then restores the one that `publish` kept."""
        if not os.path.lexists(self.new):
            self.target.unlink()

    def _clear(self) -> None:
        """Restore an old output whose target is missing, then remove the rest."""
        if os.path.lexists(self._old) and not os.path.lexists(self.target):
            os.rename(self._old, self.target)
        for path in (self.new, self._old):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Clear and remove the directory; a second call does nothing."""
        if self._lock is not None:
            self._clear()
            self._lock.release()
            self._lock = None
        with suppress(OSError):  # another process holds the directory, or a foreign file is in it
            self._directory.rmdir()

    def __enter__(self) -> "Staging":
        """Create and lock the directory."""
        try:
            self.hold()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Remove the directory, even if a signal interrupts the removal."""
        try:
            self.close()
        except BaseException:
            self.close()
            raise


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` if the block succeeds.

    The file is flushed to the disk before it is renamed. If the block fails, the temporary file is removed
    and `path` is unchanged. For a symlink, its target is replaced, not the link.

    Raises:
        DataError: `path` is a directory, a device or the like, or a dangling symlink; or another process or
            thread is writing it.
        OSError: from the file system; the caller adds the name of the output.
    """
    with replacing_together(path) as (temporary,):
        yield temporary


@contextmanager
def replacing_together(*paths: str | Path) -> Iterator[list[Path]]:
    """Yield temporary files that replace all of `paths` or none; as `replacing`.

    Raises:
        DataError: as `replacing`.
        OSError: as `replacing`.
    """
    stagings = [Staging(outputs.require_file(path)) for path in paths]
    with ExitStack() as stack:
        for staging in stagings:
            stack.push(staging)  # before `hold`, so that a signal in between cannot leave it behind
            staging.hold()
            staging.new.touch()
        yield [staging.new for staging in stagings]
        for staging in stagings:
            sync(staging.new)
        _publish(stagings)


def _publish(stagings: list[Staging]) -> None:
    *first, last = stagings
    try:
        for staging in first:
            try:
                staging.publish(keep_old=True)
            except OSError as error:  # the caller names only the last output
                raise OSError(error.errno, f"{staging.target}: {error.strerror}") from error
        last.publish()
        for staging in stagings:
            sync(staging.target.parent)
    except BaseException:
        if os.path.lexists(last.new):
            for staging in first:
                staging.withdraw()
        raise


@contextmanager
def replacing_directory(
    path: str | Path, check: Callable[[], None] = lambda: None, *errors: type[Exception]
) -> Iterator[Path]:
    """Yield a temporary directory, which replaces `path` if the block succeeds.

    Args:
        path: the directory.
        check: raises an error if `path` may not be replaced; called before and after the block, since writing
            takes time.
        *errors: classes of a library's errors in the block that become a `DataError`, as the system's do.

    Raises:
        DataError: the directory cannot be written: `path` is a file or a dangling symlink, another process is
            writing it, or an error of the system.
    """
    failures = messages.os_errors_as(DataError, f"{path}: cannot be written", *errors)
    with failures, Staging(outputs.require_directory(path)) as staging:
        check()
        staging.new.mkdir()
        yield staging.new
        check()
        for inner in (*staging.new.rglob("*"), staging.new):
            sync(inner)
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
    """Raise the system's error for a full disk early: HDF5 crashes if the disk fills up as it closes a file.

    Args:
        directory: a directory on the disk.
        n_bytes: bytes to be written, with the overhead of the format.

    Raises:
        OSError: less space is free.
    """
    if shutil.disk_usage(directory).free < n_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
