"""Outputs that are either written whole or not at all, made in staging directories beside their targets."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bilm.io.locks import FileLock, HeldError
from bilm.io.outputs import require_directory, require_file

_LOCK = "lock"


class Staging:
    """A directory ``.NAME.RANDOM.tmp`` beside an output, locked while its process lives; a context manager.

    It is removed when the context ends, however that ends. What killed processes have left of an
    output of the same name is removed when the next one is made; without locks it stays.

    Args:
        target: the output, which may exist already; its directory must exist.

    Attributes:
        new: path in the directory; what is made there takes the name of the output by `publish`.

    Raises:
        OSError: from the file system.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self._directory, self._lock = _make(target)
        self.new, self._old = self._directory / "new", self._directory / "old"
        if self._lock.is_supported:
            _remove_abandoned(target)

    def publish(self, keep_old: bool = False) -> None:
        """Give the output its name.

        A directory cannot be replaced in one step. The old one, which has no name for a moment, gets
        its name back if the new one does not get it; if the process is killed, when the next is made.

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

    def close(self) -> None:
        """Remove the directory; what has no name again goes with it."""
        _remove(self._directory, self.target, self._lock)

    def __enter__(self) -> Staging:
        """Hold it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Remove it."""
        self.close()


def _make(target: Path) -> tuple[Path, FileLock]:
    while True:
        directory = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent))
        try:
            return directory, FileLock(directory / _LOCK)
        except (HeldError, FileNotFoundError):
            continue  # another process removed it, before it was locked, as that of a killed one
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise


def _remove_abandoned(target: Path) -> None:
    for directory in _left(target):
        with suppress(OSError, HeldError):
            _remove(directory, target, FileLock(directory / _LOCK))


def _left(target: Path) -> Iterator[Path]:
    """Staging directories of an output, including those in use."""
    form = re.compile(rf"\.{re.escape(target.name)}\.\w{{8}}\.tmp")
    with os.scandir(target.parent) as entries:
        directories = [e.path for e in entries if form.fullmatch(e.name) and e.is_dir(follow_symlinks=False)]
    return (Path(directory) for directory in directories if os.path.isfile(os.path.join(directory, _LOCK)))


def _remove(directory: Path, target: Path, lock: FileLock) -> None:
    """Remove a directory, its lock last; an old output that has lost its name gets it back first."""
    new, old = directory / "new", directory / "old"
    if os.path.lexists(old) and not os.path.lexists(target):
        os.rename(old, target)
    for path in (new, old):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    lock.release()
    with suppress(OSError):
        directory.rmdir()


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
