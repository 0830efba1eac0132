"""Checks of paths before work begins, so that no input is overwritten and no device is read."""

import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from bilm.errors import BilmError, DataError
from bilm.io import STDIN, PathLike, messages

_RUN_FILE = re.compile(
    r"checkpoint|model\.ckpt-[0-9]{1,18}\.(index|meta|data-[0-9]{5}-of-[0-9]{5})|options\.json"
    r"|vocab\.txt(\.sha256)?|(metrics|calls)\.jsonl|run\.toml|diverged-[0-9]+(-[0-9]+)?\.txt"
    r"|events\.out\.tfevents\..+\.bilm|bilm-run\.json|bilm\.lock"
)


def run_files(path: Path) -> list[Path]:
    """Return the files of a directory that are named as files of a run, of bilm or bilm-tf.

    The list is empty if the directory does not exist.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(file for file in path.iterdir() if _RUN_FILE.fullmatch(file.name))
    return []


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
    if not (or_pipe and Path(path).is_fifo()):
        require_regular(path, failure)
    with messages.os_errors_as(failure, os.fspath(path)):
        return Path(path).read_bytes()


def check_output(path: PathLike, overwrite: bool, inputs: Iterable[PathLike | int | None] = ()) -> None:
    """Refuse an output file that cannot be written, or that would overwrite something else.

    Args:
        path: the file.
        overwrite: the file may exist.
        inputs: see `refuse_inputs`.

    Raises:
        DataError: the file is refused; gives the reason.
    """
    target = require_file(path)
    _require_parent(path)
    refuse_inputs(path, inputs)
    _require_overwrite(path, overwrite or not target.exists())


def check_directory_output(
    path: PathLike,
    overwrite: bool,
    inputs: Iterable[PathLike | int | None],
    is_ours: Callable[[Path], bool],
    kind: str,
) -> None:
    """Refuse an output directory that cannot be created, or that would overwrite something else.

    Args:
        path: the directory; it may exist if it is empty.
        overwrite: the directory may contain an output of the same kind and nothing else.
        inputs: see `refuse_inputs`.
        is_ours: returns whether a directory contains such an output and nothing else.
        kind: kind of output, such as "a SavedModel".

    Raises:
        DataError: the directory is refused; gives the reason.
    """
    target = require_directory(path)
    _require_parent(path)
    with messages.os_errors_as(DataError, f"{path}: cannot be read"):
        if not target.exists() or not any(target.iterdir()):
            return
        if not is_ours(target):
            raise DataError(
                f"{path}: exists and is not {kind} that bilm wrote, with nothing else in it; "
                "give another name"
            )
    refuse_inputs(path, inputs)
    _require_overwrite(path, overwrite)


def _require_overwrite(path: PathLike, overwrite: bool) -> None:
    if not overwrite:
        raise DataError(f"{path}: exists; overwrite=True replaces it")


def require_file(path: PathLike) -> Path:
    """Return the path of an output file with all symlinks resolved.

    Raises:
        DataError: the path is not a file, or is a dangling symlink.
    """
    return _require_kind(path, stat.S_IFREG)


def require_directory(path: PathLike) -> Path:
    """Return the path of an output directory with all symlinks resolved.

    Raises:
        DataError: the path is not a directory, or is a dangling symlink.
    """
    return _require_kind(path, stat.S_IFDIR)


def _require_kind(path: PathLike, kind: int) -> Path:
    status = _stat(path)
    if status is None and os.path.islink(path):
        raise DataError(f"{path}: is a symlink to {os.readlink(path)}, which does not exist; give its target")
    if status is not None and stat.S_IFMT(status.st_mode) != kind:
        raise DataError(f"{path}: is {_kind(status.st_mode)}; give the name of {_KINDS[kind]} to write")
    return Path(os.path.realpath(path))


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "a device, a pipe or a socket")


def _require_parent(path: PathLike) -> None:
    """Check that files can be created in the directory of an output's target."""
    parent = Path(os.path.realpath(path)).parent
    with messages.os_errors_as(DataError, f"{path}: cannot be written"):
        os.stat(os.path.join(parent, ""))
        if not os.access(parent, os.W_OK | os.X_OK):
            raise DataError(f"{path}: cannot be written: no permission to write in {parent}")


def refuse_inputs(path: PathLike, inputs: Iterable[PathLike | int | None]) -> None:
    """Refuse an output that is an input, or a directory that contains one.

    Files are compared by device and inode, so links are followed.

    Args:
        path: the output.
        inputs: files, run directories, which stand for the run's files, and open file descriptors; ``-``
            for standard input; None is ignored.

    Raises:
        DataError: the output is refused; names the input.
    """
    target = Path(os.path.realpath(path))
    own = {_identity(target), *map(_identity, target.rglob("*") if target.is_dir() else ())} - {None}
    for source in [0 if str(file) == STDIN else file for file in inputs if file is not None]:
        directory = None if isinstance(source, int) or not os.path.isdir(source) else Path(source)
        for file in (source, *(run_files(directory) if directory else ())):
            if _identity(file) in own:
                name = "standard input" if isinstance(file, int) else "it" if str(file) == str(path) else file
                raise DataError(f"{path}: {name} is an input and would be lost; give another name")
        if directory and _RUN_FILE.fullmatch(target.name):
            if _identity(target.parent) == _identity(directory):
                raise DataError(f"{path}: is the name of a file of the run; give another name")


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
