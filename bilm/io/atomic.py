"""Outputs that are either written whole or not at all, made in locked directories beside their targets."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

from bilm.errors import DataError
from bilm.io.outputs import require_directory, require_file

# The errors of a file system without locks.
_UNSUPPORTED = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_HOLDER_BYTES = 300


class HeldError(Exception):
    """Another process has the lock; as text, its host and process id."""


class FileLock(AbstractContextManager["FileLock"]):
    """An advisory lock (``flock``), held from its construction to `release`; a context manager.

    One process holds it at a time, and it ends with its process, however that ends. The file says who holds
    the lock. It is removed when the lock is released; a killed process leaves it behind, unlocked.

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
        with suppress(OSError):  # of a full disk
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"host {socket.gethostname()}, process {os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Release the lock; a second call does nothing, or what is left to do after a signal."""
        if (handle := self._handle) is None:
            return
        with suppress(OSError):
            if _is_still(self.path, handle):
                self.path.unlink()
        self._handle = None
        os.close(handle)

    def __exit__(self, *error: object) -> None:
        """Release it."""
        self.release()


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


_LOCK, _NEW, _OLD = "lock", "new", "old"


class Staging:
    """The directory ``.NAME.tmp`` beside an output, locked by the process that makes the output.

    A context manager: the directory is made or taken over on entry and removed at the end, however that
    comes. The next writer of the output takes over what a killed process left: an old output that lost its
    name gets it back, the rest is removed.

    Args:
        target: the output, which may exist already; its directory must exist.

    Attributes:
        target: the output.
        new: path in the directory; what is made there takes the name of the output by `publish`.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self._directory = target.with_name(f".{target.name}.tmp")
        self.new, self._old = self._directory / _NEW, self._directory / _OLD
        self._lock: FileLock | None = None

    def hold(self) -> None:
        """Lock the directory, and clear it of what a killed process left.

        Raises:
            DataError: another process or thread writes the output, or something else has the name of the
                directory.
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
                continue  # its process has just finished and removed it
        for name in os.listdir(self._directory):
            if name not in (_LOCK, _NEW, _OLD):
                raise self._in_the_way(self._directory / name)
        self._clear()

    def _in_the_way(self, path: Path) -> DataError:
        return DataError(f"{path}: is in the way of the temporary files for {self.target.name}; move it")

    def publish(self, keep_old: bool = False) -> None:
        """Give the output its name.

        A directory cannot be replaced in one step. The old one, which has no name for a moment, gets
        its name back if the new one does not get it; if the process is killed, from the next writer.

        Args:
            keep_old: so that `withdraw` can put back what stood there.

        Raises:
            OSError: from the file system; what stood there gets its name back.
        """
        if keep_old or self.target.is_dir():
            with suppress(FileNotFoundError):
                os.rename(self.target, self._old)
        os.replace(self.new, self.target)

    @property
    def is_published(self) -> bool:
        """Whether what was made has its name."""
        return not os.path.lexists(self.new)

    def withdraw(self) -> None:
        """Undo a `publish` of a file that kept the old one, as far as it got."""
        if os.path.lexists(self._old):
            os.replace(self._old, self.target)
        elif self.is_published:
            self.target.unlink()

    def _clear(self) -> None:
        """Remove what has no name; an old output that has lost its name gets it back first."""
        if os.path.lexists(self._old) and not os.path.lexists(self.target):
            os.rename(self._old, self.target)
        for path in (self.new, self._old):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the directory; a second call does nothing."""
        if self._lock is not None:
            self._clear()
            self._lock.release()
            self._lock = None
        with suppress(OSError):  # another process holds it, or something else is in it
            self._directory.rmdir()

    def __enter__(self) -> Staging:
        """Hold it."""
        try:
            self.hold()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Remove it, even if a signal interrupts that."""
        try:
            self.close()
        except BaseException:
            self.close()
            raise


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary file, which takes the place of `path` when the block succeeds.

    Its bytes are flushed to the disk before it gets its name. If the block fails, the temporary file
    is removed and whatever was at `path` is untouched. The target of a symlink is replaced, not the link.

    Raises:
        DataError: there is a directory, a device or the like at `path`, or a dangling symlink; or another
            process or thread is writing it.
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
    stagings = [Staging(require_file(path)) for path in paths]
    with ExitStack() as stack:
        for staging in stagings:
            stack.push(staging)  # before it holds anything, so that no signal comes between
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
            except OSError as error:  # the caller may name only the last
                raise OSError(error.errno, f"{staging.target}: {error.strerror}") from error
        last.publish()
        for staging in stagings:
            sync(staging.target.parent)
    except BaseException:
        if not last.is_published:
            for staging in first:
                staging.withdraw()
        raise


@contextmanager
def replacing_directory(path: str | Path) -> Iterator[Path]:
    """As `replacing`, for a directory, which the block makes: nothing is there yet.

    The caller has made sure that the directory at `path` may go.

    Raises:
        DataError: there is a file at `path`, or a dangling symlink; or another process is writing it.
        OSError: as `replacing`.
    """
    with Staging(require_directory(path)) as staging:
        yield staging.new
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
    """Raise the system's error early: HDF5 crashes the process if the disk fills up while it closes a file.

    Args:
        directory: on the disk to be written to.
        n_bytes: to be written, including what the format adds.

    Raises:
        OSError: there is less space.
    """
    if shutil.disk_usage(directory).free < n_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
