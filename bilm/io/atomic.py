"""Atomic outputs: each is made in a locked directory beside its target, then renamed."""

import errno
import fcntl
import itertools
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from bilm.errors import BilmError, DataError
from bilm.io import PathLike, messages, outputs

# Errors from a file system without locks, or that cannot flush directories.
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
            with ExitStack() as stack:
                stack.callback(os.close, handle)
                self.is_supported = True
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    holder = os.pread(handle, _HOLDER_BYTES, 0).decode("utf-8", "replace").strip()
                    raise HeldError(holder or "another process") from None
                except OSError as error:
                    if error.errno not in _UNSUPPORTED:
                        raise
                    self.is_supported = False
                if is_still(path, handle):  # else the holder has just released and removed it: try again
                    stack.pop_all()
                    break
        self._handle: int | None = handle
        with suppress(OSError):  # the disk may be full
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"host {socket.gethostname()}, process {os.getpid()}\n".encode(), 0)

    @property
    def is_in_place(self) -> bool:
        """Return whether the file is still at its path: its directory may have been moved or replaced."""
        return self._handle is not None and is_still(self.path, self._handle)

    def release(self) -> None:
        """Release the lock; a second call completes an interrupted one, otherwise does nothing."""
        if (handle := self._handle) is None:
            return
        with suppress(OSError):
            if is_still(self.path, handle):
                self.path.unlink()
        self._handle = None
        os.close(handle)

    def __exit__(self, *error: object) -> None:
        """Release the lock."""
        self.release()


def is_still(path: Path, handle: int) -> bool:
    """Return whether a path still refers to an open file."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except (FileNotFoundError, NotADirectoryError):
        return False


def make_own(directory: Path, output: Path) -> None:
    """Create a directory for temporary files that only this user can change, or take over an existing one.

    Args:
        directory: the directory.
        output: the output that the files are for.

    Raises:
        DataError: something else has the name, or the directory belongs to another user.
        OSError: from the file system.
    """
    while True:
        with suppress(FileExistsError):
            return directory.mkdir(0o700)
        with suppress(FileNotFoundError):  # another process has just removed it
            status = directory.lstat()
            if not stat.S_ISDIR(status.st_mode):
                raise _in_the_way(directory, output)
            if status.st_uid != os.geteuid() and status.st_uid != _owner_in(directory):
                # who could exchange the output
                problem = f"belongs to another user, who may be writing {output.name}"
                raise DataError(f"{directory}: {problem}; remove it, or give another name")
            return None


def _owner_in(directory: Path) -> int | None:
    """Return the owner of a new file: on network file systems another user than that of the process."""
    with suppress(OSError), tempfile.NamedTemporaryFile(dir=directory) as file:
        return os.fstat(file.fileno()).st_uid
    return None


def _in_the_way(path: Path, output: Path) -> DataError:
    return DataError(f"{path}: is in the way of the temporary files for {output.name}; move it")


_LOCK, _NEW, _OLD = "lock", "new", "old"


class Staging:
    """The directory ``.NAME.tmp`` beside an output, locked by the process that writes the output.

    `hold` creates it, or takes it over. After a process was killed, the next writer of the output takes over
    its directory, restores an old output that had been moved there, and removes the rest.

    Args:
        target: the output, which may exist; its directory must exist.
        check: raises an error if the output may not be written; called under the lock, and again before an
            existing output is replaced.

    Attributes:
        target: the output.
        new: path in the directory for the new output; `publish` renames it to `target`.
    """

    def __init__(self, target: Path, check: Callable[[], None]) -> None:
        self.target, self._check = target, check
        self._directory = target.with_name(f".{target.name}.tmp")
        self.new, self._old = self._directory / _NEW, self._directory / _OLD
        self._lock: FileLock | None = None
        self._replaces = False

    def hold(self) -> None:
        """Create and lock the directory, clear remains of a killed process, and check the output.

        Raises:
            DataError: another process or thread is writing the output, or a foreign file is in the way.
            OSError: from the file system.
        """
        while self._lock is None:
            make_own(self._directory, self.target)
            try:
                self._lock = FileLock(self._directory / _LOCK)
            except FileNotFoundError:
                continue  # another process has just finished and removed the directory
            except HeldError as error:
                remedy = "wait for it to finish, or give another name"
                raise DataError(f"{self.target}: is being written by {error}; {remedy}") from error
        self._clear()
        for name in os.listdir(self._directory):
            if name != _LOCK:
                raise _in_the_way(self._directory / name, self.target)
        self._check()
        self._replaces = outputs.is_there(self.target)

    @property
    def is_published(self) -> bool:
        """Return whether the new output has its name."""
        is_linked = os.path.exists(self.new) and os.path.exists(self.target)
        return os.path.samefile(self.new, self.target) if is_linked else not os.path.lexists(self.new)

    def publish(self, keep_old: bool = False) -> None:
        """Rename the new output to its target.

        Only what was there when the work began is replaced. A directory cannot be replaced in one step, so an
        old one is first moved aside. If the rename fails it is moved back when the directory is cleared;
        after a kill, by the next writer.

        Args:
            keep_old: move an old file aside too, so that it can be restored.

        Raises:
            DataError: another output has appeared under the name, or the old one may not be replaced.
            OSError: from the file system.
        """
        if self._replaces or self.target.is_dir():  # an empty directory has a mode too
            with suppress(OSError):
                shutil.copymode(self.target, self.new)
                os.chown(self.new, -1, self.target.stat().st_gid)
        if self._replaces:
            self._check()
            if keep_old or self.target.is_dir():
                with suppress(FileNotFoundError):
                    os.rename(self.target, self._old)
            os.replace(self.new, self.target)
        elif not _rename(self.new, self.target):
            raise DataError(f"{self.target}: was made by another program meanwhile and is kept")

    def put_aside(self) -> Path:
        """Rename the new output to ``NAME.new-N``, with the first free N, and return this path."""
        source = self.target if self.is_published else self.new
        names = (self.target.with_name(f"{self.target.name}.new-{number}") for number in itertools.count(1))
        return next(name for name in names if _rename(source, name))

    def _clear(self) -> None:
        """Restore an old output whose target is missing, then remove the rest."""
        if os.path.lexists(self._old) and not os.path.lexists(self.target):
            os.rename(self._old, self.target)
        for path in (self.new, self._old):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._lock is not None:
            self._clear()
            self._lock.release()
            self._lock = None
        with suppress(OSError):  # another process holds the directory, or a foreign file is in it
            self._directory.rmdir()

    def remove(self) -> None:
        """Clear and remove the directory, even if a signal interrupts the removal."""
        try:
            self._close()
        except BaseException:
            self._close()
            raise


def _rename(source: Path, target: Path) -> bool:
    """Rename a file or directory; return whether the name was free."""
    try:
        # The rename of a directory replaces an empty directory at most.
        (os.rename if source.is_dir() else os.link)(source, target)
    except OSError:
        if os.path.lexists(target):
            return False
        os.replace(source, target)  # a file system without hard links
    source.unlink(missing_ok=True)
    return True


@contextmanager
def writing(
    *paths: PathLike,
    overwrite: bool = True,
    inputs: Collection[PathLike | int | None] = (),
    kind: outputs.Kind = outputs.FILE,
    finish: Callable[[], None] = lambda: None,
    failure: type[BilmError] | None = None,
    errors: Collection[type[Exception]] = (),
) -> Iterator[list[Path]]:
    """Hold outputs from the start of the work on them, and give them their names if it succeeds.

    Yields temporary files, or directories, which are flushed to the disk and renamed: all or none. If the
    block fails, they are removed and the outputs are unchanged. What was not there at the start is never
    replaced: then the results stay beside the outputs, as ``NAME.new-1``. An output whose temporary file the
    block removes stays as it is. For a symlink, its target is replaced, not the link.

    Args:
        *paths: the outputs.
        overwrite: the outputs may exist.
        inputs: see `bilm.io.outputs.refuse_inputs`.
        kind: kind of the outputs.
        finish: called under the lock after the block has succeeded and the results have their names.
        failure: class to which errors of the system are converted, also those in the block; the message says
            that the last output cannot be written. None raises them as they are.
        errors: classes of a library's errors that are converted too.

    Raises:
        DataError: an output is refused (see `bilm.io.outputs.check_output`), another process or thread is
            writing it, or it appeared during the work; the message names the result's path.
        OSError: from the file system, without `failure`.
    """
    stagings = []
    with ExitStack() as stack:
        if failure is not None:
            subject = f"{paths[-1]}: cannot be written"
            stack.enter_context(messages.os_errors_as(failure, subject, *errors))
        for path in paths:
            check = partial(outputs.check_output, path, overwrite, inputs, kind)
            stagings.append(Staging(outputs.require_kind(path, kind), check))
            stack.callback(stagings[-1].remove)  # first, so that a signal in between cannot leave it behind
            stagings[-1].hold()
            (stagings[-1].new.touch if kind.is_ours is None else stagings[-1].new.mkdir)()
        yield [staging.new for staging in stagings]
        conflict = _publish([staging for staging in stagings if not staging.is_published])
        finish()
        if conflict is not None:
            raise conflict


def _publish(stagings: list[Staging]) -> DataError | None:
    """Publish all outputs, put all aside if one has appeared meanwhile, or leave all unpublished.

    Returns:
        The error that says where the results are, if they were put aside.
    """
    for staging in stagings:
        for path in (*staging.new.rglob("*"), staging.new):
            sync(path)
    try:
        for staging in stagings:
            try:
                staging.publish(keep_old=staging is not stagings[-1])
            except OSError as error:  # the caller names only one output
                raise OSError(error.errno, f"{staging.target}: {error.strerror}") from error
        for staging in stagings:
            sync(staging.target.parent)
    except DataError as error:
        results = ", ".join(str(staging.put_aside()) for staging in stagings)
        return DataError(f"{error}; the result is in {results}")
    except BaseException:
        if not stagings[-1].is_published:
            for staging in stagings:
                if staging.is_published:
                    staging.target.unlink()  # the removal of its directory restores the old one
        raise
    return None


def write(path: Path, content: bytes) -> None:
    """Write a file, see `writing`.

    Raises:
        DataError: see `writing`.
        OSError: from the file system.
    """
    with writing(path) as (temporary,):
        temporary.write_bytes(content)


def sync(path: Path) -> None:
    """Flush a file, or a directory's entries where the file system can, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if not (error.errno in _UNSUPPORTED and path.is_dir()):
            raise
    finally:
        os.close(handle)


def require_disk_space(directory: Path, n_bytes: int) -> None:
    """Raise the system's error for a full disk early: HDF5 crashes if the disk fills up as it closes a file.

    Args:
        directory: a directory on the disk.
        n_bytes: bytes to be written, with the overhead of the format.

    Raises:
        OSError: less space is free.
    """
    if shutil.disk_usage(directory).free < n_bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
