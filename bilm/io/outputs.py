"""Checks of paths before work begins, so that no input is overwritten and no device is read."""

import os
import re
import stat
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from bilm.errors import BilmError, DataError
from bilm.io import STDIN, PathLike, is_url, messages
from bilm.io.run_files import is_of_run, run_files

_KINDS = {stat.S_IFREG: "a file", stat.S_IFDIR: "a directory"}


def require_regular(path: PathLike, failure: type[BilmError]) -> None:
    """Check that an input is a regular file, not a pipe, which may block, or a device, which may be endless.

    Raises:
        BilmError: of the class `failure`: the path is not a regular file, or not accessible.
    """
    with messages.os_errors_as(failure, os.fspath(path)):
        mode = os.stat(path).st_mode
    if not stat.S_ISREG(mode):
        raise failure(f"{path}: is {_kind(mode)}, expected a file")


def read_file(path: PathLike, failure: type[BilmError], or_pipe: bool = False) -> bytes:
    """Read a whole file, which must be a regular file.

    Args:
        path: the file.
        failure: class of the error to raise.
        or_pipe: accept a pipe, such as a shell's process substitution, for a file that the user names.

    Raises:
        BilmError: of the class `failure`: the path is something else, or cannot be read.
    """
    with messages.os_errors_as(failure, os.fspath(path)):
        if not (or_pipe and Path(path).is_fifo()):
            require_regular(path, failure)
        return Path(path).read_bytes()


class Kind(NamedTuple):
    """Kind of an output.

    Attributes:
        name: name in messages, such as "a SavedModel".
        is_ours: returns whether a directory contains such an output and nothing else; None for a file.
    """

    name: str
    is_ours: Callable[[Path], bool] | None = None


def only_files(names: str, mark: str, *content: bytes) -> Callable[[Path], bool]:
    """Return an `is_ours` for directories with files of some names only, one of which has bilm's content.

    Args:
        names: regular expression of the paths in the directory, those of folders too; links are never ours.
        mark: name of the file with the content.
        *content: bytes in it.
    """

    def is_ours(directory: Path) -> bool:
        for path in directory.rglob("*"):
            if path.is_symlink() or not re.fullmatch(names, path.relative_to(directory).as_posix()):
                return False
        found = (directory / mark).read_bytes() if (directory / mark).is_file() else b""
        return all(part in found for part in content)

    return is_ours


FILE = Kind("a file")


def check_output(
    path: PathLike, overwrite: bool, inputs: Collection[PathLike | int | None] = (), kind: Kind = FILE
) -> None:
    """Refuse an output that cannot be written, or that would overwrite something else.

    Args:
        path: the file or directory; an empty directory may exist.
        overwrite: the output may exist; a directory only if it contains an output of the kind and nothing
            else.
        inputs: see `refuse_inputs`.
        kind: kind of the output.

    Raises:
        DataError: the output is refused; gives the reason.
    """
    target = require_kind(path, kind)
    with messages.os_errors_as(DataError, f"{path}: cannot be read"):
        exists = is_there(target)
        if exists and kind.is_ours is not None and not kind.is_ours(target):
            problem = f"exists and is not {kind.name} that bilm wrote, with nothing else in it"
            if hidden := next(iter([*target.glob(".*"), *target.glob("*/.*")]), None):  # such as .DS_Store
                problem += f" (it has {hidden.name})"
            raise DataError(f"{path}: {problem}; give another name")
    refuse_inputs(path, inputs)
    if exists and not overwrite:
        raise DataError(f"{path}: exists; overwrite=True replaces it")


def is_there(target: Path) -> bool:
    """Return whether an output exists: a file, or a directory that is not empty."""
    return any(target.iterdir()) if target.is_dir() else target.exists()


def require_kind(path: PathLike, kind: Kind) -> Path:
    """Return the path of an output with all symlinks resolved.

    Raises:
        DataError: the path is something other than a file, or for other kinds a directory, or is a dangling
            symlink; or nothing can be written there, such as to standard output.
    """
    if os.fspath(path) == STDIN:
        raise DataError(f"{path}: the output does not go to standard output; give the name of a file")
    if is_url(path):
        raise DataError(f"{path}: is a URL; give a local path")
    status, wanted = _stat(path), stat.S_IFREG if kind.is_ours is None else stat.S_IFDIR
    if status is None and os.path.islink(path):
        raise DataError(f"{path}: is a symlink to {os.readlink(path)}, which does not exist; give its target")
    if status is not None and stat.S_IFMT(status.st_mode) != wanted:
        raise DataError(f"{path}: is {_kind(status.st_mode)}; give the name of {_KINDS[wanted]} to write")
    target = real_path(path)
    if kind.is_ours is not None and (os.path.ismount(target) or target == Path.cwd()):
        problem = "is the current directory or a mount point, which cannot be replaced"
        raise DataError(f"{path}: {problem}; give the name of a directory in it")
    replaces_directory = status is not None and kind.is_ours is not None
    # A directory that nobody may change cannot be moved aside either.
    for place in (target.parent, target) if replaces_directory else (target.parent,):
        if not (place.is_dir() and os.access(place, os.W_OK | os.X_OK)):
            raise DataError(f"{path}: cannot be written: {place} is not a directory that you can write to")
    return target


def real_path(path: PathLike) -> Path:
    """Return a path with all symlinks resolved but those in a circle, for which `Path.resolve` fails."""
    return Path(os.path.realpath(path))


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "a device, a pipe or a socket")


def refuse_inputs(path: PathLike, inputs: Collection[PathLike | int | None]) -> None:
    """Refuse an output that is an input, a directory that contains one, or a file of a run.

    Files are compared by device and inode, so links are followed.

    Args:
        path: the output.
        inputs: files, run directories, which stand for the run's files, and open file descriptors; ``-``
            for standard input; None is ignored.

    Raises:
        DataError: the output is refused; names the input.
    """
    target = real_path(path)
    if inputs and is_of_run(target):  # only the run itself writes without an input
        raise DataError(f"{path}: is the name of a file of the run; give another name")
    own = {_identity(target), *map(_identity, target.rglob("*") if target.is_dir() else ())} - {None}
    for source in [0 if str(file) == STDIN else file for file in inputs if file is not None]:
        directory = None if isinstance(source, int) or not os.path.isdir(source) else Path(source)
        for file in (source, *(run_files(directory) if directory else ())):
            if _identity(file) in own:
                is_named = not isinstance(file, int) and str(file) != str(path)
                name = "standard input" if file == 0 else file if is_named else "it"
                raise DataError(f"{path}: {name} is an input and would be lost; give another name")


def _identity(path: PathLike | int) -> tuple[int, int] | None:
    status = _stat(path)
    return None if status is None else (status.st_dev, status.st_ino)


def _stat(path: PathLike | int) -> os.stat_result | None:
    """Return the status of a file, or None if it does not exist.

    Raises:
        DataError: the file is not accessible.
    """
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
