"""Text from standard input, kept in a temporary file because training and counting read it again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from bilm.arguments import PathLike
from bilm.errors import DataError

STDIN = "-"
_BLOCK_BYTES = 1 << 20
_NAME = "standard input"  # also the file's, so that errors about its content call it that


@contextmanager
def spooled(patterns: Sequence[PathLike], stream: BinaryIO) -> Iterator[tuple[PathLike, ...]]:
    """Replace ``-`` among the patterns of `find_files` by a file with the bytes of a stream.

    The bytes are kept as they come, compressed or not, in a directory of their own under that of
    the environment variable ``TMPDIR``, until the context ends; on Linux, no longer than the process
    lives, however it ends. (A file called ``-`` is ``./-``.)

    Args:
        patterns: Files, directories and globs; ``-`` at most once.
        stream: ``sys.stdin.buffer``; read to its end if there is a ``-``, otherwise not at all.

    Raises:
        DataError: ``-`` comes twice, or the stream is empty, cannot be read or cannot be kept.
    """
    places = [k for k, pattern in enumerate(patterns) if os.fspath(pattern) == STDIN]
    if not places:
        yield tuple(patterns)
        return
    if len(places) > 1:
        raise DataError(f"{_NAME} ({STDIN}) was given {len(places)} times; it can be read only once")
    with _spooled(stream) as path:
        yield tuple(path if k == places[0] else pattern for k, pattern in enumerate(patterns))


@contextmanager
def _spooled(stream: BinaryIO) -> Iterator[Path]:
    """A file with the bytes of a stream, while the context lasts."""
    with ExitStack() as stack:
        try:
            path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bilm-"))) / _NAME
            _take_off_disk(path, stack.enter_context(path.open("xb")))
        except OSError as error:
            raise _no_room(error) from error
        _copy(stream, path)
        yield path


def _take_off_disk(path: Path, file: BinaryIO) -> None:
    """Make the name of an open file a link to what the process has open, where the system shows that.

    A process that is killed then leaves the link, and none of the text.
    """
    opened = Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
    if opened.exists() and opened.samefile(path):
        path.unlink()
        path.symlink_to(opened)


def _copy(stream: BinaryIO, path: Path) -> None:
    """Copy a stream in blocks."""
    n_bytes = 0
    try:
        with path.open("wb") as file:
            while block := _read(stream):
                n_bytes += file.write(block)
    except OSError as error:
        raise _no_room(error) from error
    if not n_bytes:
        raise DataError(f"{_NAME} is empty")


def _read(stream: BinaryIO) -> bytes:
    try:
        return stream.read(_BLOCK_BYTES)
    except OSError as error:
        raise DataError(f"{_NAME}: {error.strerror or error}") from error


def _no_room(error: OSError) -> DataError:
    problem = error.strerror or error
    return DataError(f"{_NAME} cannot be kept in a temporary file: {problem}; TMPDIR names another directory")
