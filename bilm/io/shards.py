"""Files of texts: finding them, keeping copies of pipes, and noticing changes (shards)."""

import glob
import io
import os
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from bilm.errors import DataError
from bilm.io import STDIN, PathLike, messages, outputs
from bilm.io.run_files import corpus_at, is_of_run, own_output

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Shard(os.PathLike[str]):
    """The recorded state of a file; used as a path, it makes a reader check the file for changes.

    Attributes:
        path: absolute path of the file.
        size: size in bytes.
        modified: time of the last modification, in nanoseconds.
        checksum: CRC-32 of the bytes in the file, compressed or not.
    """

    path: str
    size: int
    modified: int
    checksum: int

    def __fspath__(self) -> str:
        return self.path

    @property
    def content(self) -> tuple[int, int]:
        """Size and checksum, which do not depend on the place of the file."""
        return self.size, self.checksum

    def require(self, size: int, checksum: int | None = None) -> None:
        """Refuse a file that has changed.

        Raises:
            DataError: size or checksum differs; says which.
        """
        if size != self.size:
            problem = f"{self.size:,} bytes before, {size:,} now"
        elif checksum is not None and checksum != self.checksum:
            problem = f"{size:,} bytes as before, but different content"
        else:
            return
        raise DataError(f"{name_of(self)}: differs from the file that was counted: {problem}")


class ShardFile(io.FileIO):
    """A file read from beginning to end, whose size and checksum are computed during reading.

    For a `Shard`, the size is checked at every block and the checksum at the end.

    Args:
        path: the file.
        on_end: called with the file as a `Shard` when it has been read to its end.

    Raises:
        DataError: during reading: the file differs from the shard.
        OSError: from the file system.
    """

    def __init__(self, path: PathLike, on_end: Callable[[Shard], None] | None = None) -> None:
        super().__init__(os.fspath(path))
        self._before = path if isinstance(path, Shard) else None
        self._path, self._on_end = os.path.abspath(path), on_end
        self._modified = os.fstat(self.fileno()).st_mtime_ns
        self._size = self._checksum = 0
        self._is_read = False

    def readinto(self, buffer: Any) -> int:  # type: ignore[override]  # noqa: ANN401
        """Read into a buffer and return the number of bytes, 0 at the end."""
        n_bytes = super().readinto(buffer) or 0
        self._size += n_bytes
        self._checksum = zlib.crc32(memoryview(buffer)[:n_bytes], self._checksum)
        if self._before is not None:
            self._before.require(os.fstat(self.fileno()).st_size)
        if not n_bytes and not self._is_read:
            self._is_read = True
            if self._before is not None:
                self._before.require(self._size, self._checksum)
            if self._on_end is not None:
                self._on_end(Shard(self._path, self._size, self._modified, self._checksum))
        return n_bytes


def same_shards(before: Sequence[Shard], files: Sequence[Path]) -> tuple[Shard, ...]:
    """Check that files have the same bytes as earlier shards, and return their current shards.

    Files may have moved. A file with the same path, size and time is not read again.

    Args:
        before: the earlier shards.
        files: their current paths, in the same order.

    Raises:
        DataError: the files differ, with the difference; or a file cannot be read.
    """
    if len(files) != len(before):
        raise DataError(f"{len(before):,} files before, {len(files):,} now")
    now = []
    for shard, path in zip(before, files, strict=True):
        moved = replace(shard, path=os.path.abspath(path))
        with messages.os_errors_as(DataError, name_of(path)):
            stat = path.stat()
        here = replace(moved, size=stat.st_size, modified=stat.st_mtime_ns)
        now.append(shard if here == shard else read_shard(moved))
    return tuple(now)


def read_shard(path: PathLike) -> Shard:
    """Read a file to compute its size and checksum.

    Raises:
        DataError: the file cannot be read, or is not the same as a `Shard`.
    """
    shards: list[Shard] = []
    with messages.os_errors_as(DataError, name_of(path)), ShardFile(path, shards.append) as file:
        buffer = bytearray(_BLOCK_BYTES)
        while file.readinto(buffer):
            pass
    return shards[0]


def find_files(patterns: Iterable[str]) -> tuple[Path, ...]:
    """Find the files that patterns match.

    Args:
        patterns: a pattern is a file, a directory, or a glob of these (``**`` crosses directories). Of a
            directory, all files below it except hidden ones, backups of editors (``text.txt~``) and those of
            runs and corpora. The name of an existing file is not read as a glob, even if it contains ``*?[``.

    Returns:
        The files, each once also under several names (links), in the order of the patterns and sorted within
        each pattern.

    Raises:
        DataError: a pattern matches no file, a directory is not readable, or a link leads nowhere.
    """
    found: dict[Path, Path] = {}
    for pattern in patterns:
        path = Path(pattern)
        if (what := own_output(path)) is not None:
            raise DataError(f"{pattern}: is not a text but {what}")
        with messages.os_errors_as(DataError, pattern):
            files = [file for path in _matches(pattern) for file in _files_below(path)]
        if not path.is_file():
            files = [file for file in files if not is_of_run(file)]
        if not files:
            has_quotes = not {"'", '"'}.isdisjoint(pattern)
            hint = "the quotes are part of it" if has_quotes else "a pattern is a file, a directory or a glob"
            raise DataError(f"no file matches {pattern} ({hint})")
        for file in sorted(files):
            found.setdefault(outputs.real_path(file), file)
    if not found:
        raise DataError("no input files were given")
    return tuple(found.values())


def _matches(pattern: PathLike) -> list[Path]:
    """Return the files and directories that a pattern names."""
    path = Path(pattern)
    return [path] if path.exists() else [*map(Path, glob.glob(os.fspath(pattern), recursive=True))]


def _files_below(path: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield a file itself, or the files of a directory and of those in it, except hidden ones and corpora.

    Args:
        path: the file or directory.
        above: the directories above it, without links; a link to one of them is not followed.
    """
    if path.is_file():
        yield path
    elif path.is_dir() and (here := outputs.real_path(path)) not in above and corpus_at(path) is None:
        with messages.os_errors_as(DataError, str(path)):
            inside = [*path.iterdir()]
        for inner in inside:
            if not inner.name.startswith(".") and not inner.name.endswith("~"):
                yield from _files_below(inner, (*above, here, *here.parents))
    elif path.is_symlink() and not path.exists():
        raise DataError(f"{path}: is a link to {os.readlink(path)}, which does not exist")


_NAME = "standard input"
_SUFFIX, _MARK = ".bilm-spool", ".bilm-spool/="


def name_of(path: PathLike) -> str:
    """Return the user's name of a file: for a copy made by `input_files`, standard input or the pipe."""
    return os.fspath(path).partition(_MARK)[2] or os.fspath(path)


def name_files(files: Sequence[PathLike]) -> str:
    """Return the names of the first three files and the number of the others, for a message."""
    names = [name_of(path) for path in files] or ["no files"]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def refuse_within(path: PathLike, patterns: Iterable[PathLike]) -> None:
    """Refuse an output, or a vocabulary, that is read as text, by itself or in a folder.

    Raises:
        DataError: the path is such a file, or in such a folder.
    """
    target = outputs.real_path(path)
    for text in chain.from_iterable(map(_matches, patterns)):
        if target.is_relative_to(outputs.real_path(text)):
            what, remedy = "one of the files that are read", "another path"
            if text.is_dir():
                what, remedy = f"part of {text}, which is read", "a path outside it"
            raise DataError(f"{path}: is {what}; give {remedy}")


@contextmanager
def input_files(patterns: Sequence[str], stream: BinaryIO | None = None) -> Iterator[tuple[Path, ...]]:
    """Find the files of a text, with temporary copies in place of inputs that can be read only once.

    Such inputs are ``-``, which stands for standard input, and pipes: a shell's ``<(zcat text.gz)``,
    ``/dev/stdin``, a FIFO. The bytes are copied unchanged, compressed or not, to a temporary directory
    (environment variable ``TMPDIR``) that is removed when the context ends; on Linux the copies disappear
    even if the process is killed. (A file called ``-`` is ``./-``.)

    Args:
        patterns: as for `find_files`; ``-`` at most once.
        stream: standard input; read to its end if there is a ``-``, otherwise not at all.

    Yields:
        The files, as `find_files`.

    Raises:
        DataError: ``-`` is repeated, a name is a device, or a stream is empty or cannot be read or copied; or
            as `find_files`.
    """
    if (n_times := patterns.count(STDIN)) > 1:
        raise DataError(f"{_NAME} ({STDIN}) was given {n_times} times; it can be read only once")
    with ExitStack() as stack:
        files: dict[str, Path] = {}
        for name in filter(can_be_read_once, dict.fromkeys(patterns)):
            if name == STDIN:
                stream = stream or getattr(sys.stdin, "buffer", None) or io.BytesIO()  # may be missing
                files[name] = stack.enter_context(spooled(_blocks(stream, _NAME), _NAME, _NAME))
                continue
            if not Path(name).is_fifo():
                outputs.require_regular(name, DataError)
            with messages.os_errors_as(DataError, name):
                pipe = stack.enter_context(io.FileIO(name))
            files[name] = stack.enter_context(spooled(_blocks(pipe, name), name, os.path.abspath(name)))
        yield find_files([str(files.get(name, name)) for name in patterns])


def can_be_read_once(path: PathLike) -> bool:
    """Return whether a path is ``-``, or exists and is neither a regular file nor a directory."""
    if os.fspath(path) == STDIN:
        return True
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


@contextmanager
def spooled(blocks: Iterable[bytes], name: str, place: str) -> Iterator[Path]:
    """Yield a temporary file with the bytes of blocks; `name_of` its path is `place`.

    Args:
        blocks: bytes to write.
        name: name of the blocks in errors.
        place: name of the file, as of a path.

    Raises:
        DataError: there are no bytes, or they cannot be written.
    """
    n_bytes = 0
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(tempfile.TemporaryDirectory(_SUFFIX, "bilm-"))
            path = Path(f"{directory}/={place}")
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = stack.enter_context(path.open("xb"))
            # On Linux the file is unlinked and reached through /proc, so that a kill leaves only a link.
            link = Path(f"/proc/{os.getpid()}/fd/{kept.fileno()}")
            if link.exists() and link.samefile(path):
                path.unlink()
                path.symlink_to(link)
            with path.open("wb") as file:
                for block in blocks:
                    n_bytes += file.write(block)
        except OSError as error:
            problem = f"{name} cannot be kept in a temporary file: {error.strerror or error}"
            raise DataError(f"{problem}; set TMPDIR to another directory") from error
        if not n_bytes:
            raise DataError(f"{name} is empty, or has been read before")
        yield path


def _blocks(stream: BinaryIO | io.RawIOBase, name: str) -> Iterator[bytes]:
    with messages.os_errors_as(DataError, name):
        while block := stream.read(_BLOCK_BYTES):
            yield block
