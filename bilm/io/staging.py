"""Staging directories, in which outputs are made before they get their names."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bilm.io.locks import FileLock, HeldError

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
