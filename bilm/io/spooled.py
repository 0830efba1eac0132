"""Text from standard input and other pipes, spooled to files because training and counting read it again."""

from __future__ import annotations

import errno
import io
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.messages import os_errors_as

STDIN = "-"
_BLOCK_BYTES = 1 << 20
_NAME = "standard input"
_MUCH = 1 << 28  # bytes from which on it is said what a text takes, and room is left on the disk
_RESERVE = 1 << 30
_LOG = logging.getLogger(__name__)


@contextmanager
def spooled(patterns: Sequence[PathLike], stream: BinaryIO) -> Iterator[tuple[PathLike, ...]]:
    """Replace patterns of `find_files` that can be read only once by files with the same bytes.

    These are ``-``, which stands for a stream, and names of pipes: a shell's ``<(zcat text.gz)``,
    ``/dev/stdin``, a FIFO. The bytes are kept as they come, compressed or not, in directories of their
    own under that of the environment variable ``TMPDIR``, until the context ends; on Linux, no longer
    than the process lives, however it ends. (A file called ``-`` is ``./-``.)

    Args:
        patterns: Files, directories and globs; ``-`` at most once.
        stream: ``sys.stdin.buffer``; read to its end if there is a ``-``, otherwise not at all.

    Raises:
        DataError: ``-`` comes twice, or a stream is empty, cannot be read or cannot be kept.
    """
    n_dashes = sum(os.fspath(pattern) == STDIN for pattern in patterns)
    if n_dashes > 1:
        raise DataError(f"{_NAME} ({STDIN}) was given {n_dashes} times; it can be read only once")
    with ExitStack() as stack:
        files: dict[str, Path] = {}
        for name in dict.fromkeys(os.fspath(pattern) for pattern in patterns):
            if can_be_read_once(name):
                files[name] = stack.enter_context(_kept(name, stream))
        yield tuple(files.get(os.fspath(pattern), pattern) for pattern in patterns)


def can_be_read_once(path: PathLike) -> bool:
    """Whether it is ``-``, or exists and is neither a regular file nor a directory."""
    if os.fspath(path) == STDIN:
        return True
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


@contextmanager
def _kept(pattern: str, stream: BinaryIO) -> Iterator[Path]:
    """The content that a pattern stands for, as a file while the context lasts."""
    if pattern == STDIN:
        with _spooled(stream, _NAME, _NAME) as path:
            yield path
        return
    with os_errors_as(DataError, pattern):
        pipe = io.FileIO(pattern)
    with pipe, _spooled(pipe, pattern, os.path.abspath(pattern)) as path:
        yield path


@contextmanager
def _spooled(stream: BinaryIO | io.RawIOBase, name: str, place: str) -> Iterator[Path]:
    """A file with the bytes of a stream while the context lasts; its path ends in `place`, for errors."""
    with ExitStack() as stack:
        try:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bilm-")))
            path = directory / place.lstrip(os.sep)
            path.parent.mkdir(parents=True, exist_ok=True)
            _take_off_disk(path, stack.enter_context(path.open("xb")))
        except OSError as error:
            raise _no_room(name, error) from error
        _copy(stream, path, name)
        yield path


def _take_off_disk(path: Path, file: BinaryIO) -> None:
    """Make the name of an open file a link to what the process has open, where the system shows that.

    A process that is killed then leaves the link, and none of the text.
    """
    opened = Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
    if opened.exists() and opened.samefile(path):
        path.unlink()
        path.symlink_to(opened)


def _copy(stream: BinaryIO | io.RawIOBase, path: Path, name: str) -> None:
    """Copy a stream in blocks, as long as there is room."""
    n_bytes = 0
    place = tempfile.gettempdir()
    try:
        with path.open("wb") as file:
            while block := _read(stream, name):
                before, n_bytes = n_bytes, n_bytes + file.write(block)
                if before < _MUCH <= n_bytes:
                    _LOG.warning(
                        "%s: is kept in %s, more than %d MiB so far; TMPDIR names another directory",
                        *(name, place, _MUCH >> 20),
                    )
                disk = shutil.disk_usage(place)
                if n_bytes >= _MUCH and disk.free < min(_RESERVE, disk.total // 10):
                    raise OSError(
                        errno.ENOSPC,
                        f"it takes more than {n_bytes >> 20:,} MiB, which leaves {place} almost full",
                    )
    except OSError as error:
        raise _no_room(name, error) from error
    if not n_bytes:
        raise DataError(f"{name} is empty")


def _read(stream: BinaryIO | io.RawIOBase, name: str) -> bytes:
    with os_errors_as(DataError, name):
        return stream.read(_BLOCK_BYTES) or b""


def _no_room(name: str, error: OSError) -> DataError:
    problem = error.strerror or error
    return DataError(f"{name} cannot be kept in a temporary file: {problem}; set TMPDIR to another directory")
