"""Files of a text that is read several times: compared with what they were, and kept if they are pipes."""

import io
import logging
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from bilm.errors import DataError
from bilm.io import STDIN, PathLike, messages, outputs

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Shard(os.PathLike[str]):
    """A file as it was; it can be read wherever a path can, and is then compared with what it was.

    Attributes:
        path: where it is.
        size: bytes.
        modified: time of the last modification, in nanoseconds.
        checksum: CRC-32 of the bytes as they lie in the file, compressed or not.
    """

    path: str
    size: int
    modified: int
    checksum: int

    def __fspath__(self) -> str:
        return self.path

    @property
    def content(self) -> tuple[int, int]:
        """What is the same wherever the file lies: size and checksum."""
        return self.size, self.checksum

    def require(self, size: int, checksum: int | None = None) -> None:
        """Refuse a file that has changed.

        Raises:
            DataError: says what differs.
        """
        if size != self.size:
            problem = f"{self.size:,} bytes before, {size:,} now"
        elif checksum is not None and checksum != self.checksum:
            problem = f"{size:,} bytes as before, but different content"
        else:
            return
        raise DataError(f"{name_of(self)}: the file has changed since it was counted: {problem}")


class ShardFile(io.FileIO):
    """A file that is read from beginning to end, and computes its size and checksum on the way.

    Of a `Shard` the size is compared with every block, the checksum at the end.

    Args:
        path: the file.
        on_end: called at the end with what was read.

    Raises:
        DataError: while it is read: it is not what the shard was.
        OSError: as any file.
    """

    def __init__(self, path: PathLike, on_end: Callable[[Shard], None] | None = None) -> None:
        super().__init__(os.fspath(path))
        self._before = path if isinstance(path, Shard) else None
        self._path, self._on_end = os.fspath(path), on_end
        self._modified = os.fstat(self.fileno()).st_mtime_ns
        self._size = self._checksum = 0
        self._is_read = False

    def readinto(self, buffer: Any) -> int:  # type: ignore[override]  # noqa: ANN401
        """Read into a buffer; the number of bytes, 0 at the end."""
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
    """The shards as they are now, if their bytes have not changed, wherever the files are.

    A file with the same path, size and time is not read; others are.

    Args:
        before: as they were.
        files: where they are now, in the same order.

    Raises:
        DataError: something differs; says what. Or a file cannot be read.
    """
    if len(files) != len(before):
        raise DataError(f"{len(before):,} files before, {len(files):,} now")
    now = []
    for shard, path in zip(before, files, strict=True):
        with messages.os_errors_as(DataError, name_of(path)):
            stat = path.stat()
        here = replace(shard, path=os.path.abspath(path), size=stat.st_size, modified=stat.st_mtime_ns)
        now.append(shard if here == shard else read_shard(path))
    contents, before_contents = ([shard.content for shard in shards] for shards in (now, before))
    if contents != before_contents and sorted(contents) == sorted(before_contents):
        raise DataError(f"the files are in another order; the first was {os.path.basename(before[0])}")
    for old, new in zip(before, now, strict=True):
        replace(old, path=new.path).require(new.size, new.checksum)
    return tuple(now)


def read_shard(path: Path) -> Shard:
    """Read a file for its size and checksum.

    Raises:
        DataError: it cannot be read.
    """
    found: list[Shard] = []
    with (
        messages.os_errors_as(DataError, name_of(path)),
        ShardFile(os.path.abspath(path), found.append) as file,
    ):
        buffer = bytearray(_BLOCK_BYTES)
        while file.readinto(buffer):
            pass
    return found[0]


_NAME = "standard input"
_SUFFIX, _MARK = ".bilm-spool", ".bilm-spool/="
_MUCH = 1 << 28  # bytes from which on it is said what a text takes
_LOG = logging.getLogger(__name__)


def name_of(path: PathLike) -> str:
    """What the user calls a file: standard input or the pipe, where it is a copy of `spooled`."""
    return os.fspath(path).partition(_MARK)[2] or os.fspath(path)


def name_files(files: Sequence[PathLike]) -> str:
    """Name a few files for a message."""
    names = [name_of(path) for path in files] or ["no files"]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


@contextmanager
def spooled(patterns: Sequence[PathLike], stream: BinaryIO) -> Iterator[tuple[PathLike, ...]]:
    """Replace patterns of `find_files` that can be read only once by files with the same bytes.

    These are ``-``, which stands for a stream, and names of pipes: a shell's ``<(zcat text.gz)``,
    ``/dev/stdin``, a FIFO. The bytes are kept as they come, compressed or not, in directories of their
    own under that of the environment variable ``TMPDIR``, until the context ends; on Linux, no longer
    than the process lives, however it ends. (A file called ``-`` is ``./-``.)

    Args:
        patterns: files, directories and globs; ``-`` at most once.
        stream: ``sys.stdin.buffer``; read to its end if there is a ``-``, otherwise not at all.

    Raises:
        DataError: ``-`` comes twice, a name is a device's, or a stream is empty or cannot be read or kept.
    """
    names = [os.fspath(pattern) for pattern in patterns]
    if names.count(STDIN) > 1:
        raise DataError(f"{_NAME} ({STDIN}) was given {names.count(STDIN)} times; it can be read only once")
    with ExitStack() as stack:
        files: dict[str, Path] = {}
        for name in filter(can_be_read_once, dict.fromkeys(names)):
            if name == STDIN:
                files[name] = stack.enter_context(_spooled(stream, _NAME, _NAME))
                continue
            if not Path(name).is_fifo():
                outputs.require_regular(name, DataError)
            with messages.os_errors_as(DataError, name):
                pipe = stack.enter_context(io.FileIO(name))
            files[name] = stack.enter_context(_spooled(pipe, name, os.path.abspath(name)))
        yield tuple(files.get(name, pattern) for name, pattern in zip(names, patterns, strict=True))


def can_be_read_once(path: PathLike) -> bool:
    """Whether it is ``-``, or exists and is neither a regular file nor a directory."""
    if os.fspath(path) == STDIN:
        return True
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


@contextmanager
def _spooled(stream: BinaryIO | io.RawIOBase, name: str, place: str) -> Iterator[Path]:
    """A file with the bytes of a stream while the context lasts; `name_of` its path is `place`."""
    n_bytes = 0
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(tempfile.TemporaryDirectory(_SUFFIX, "bilm-"))
            path = Path(f"{directory}/={place}")
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = stack.enter_context(path.open("xb"))
            # A killed process leaves a link, and none of the text, where the system shows what is open.
            link = Path(f"/proc/{os.getpid()}/fd/{kept.fileno()}")
            if link.exists() and link.samefile(path):
                path.unlink()
                path.symlink_to(link)
            with path.open("wb") as file:
                while block := _read(stream, name):
                    if n_bytes < _MUCH <= n_bytes + len(block):
                        _LOG.warning(
                            "%s: is kept in %s, more than %d MiB so far; TMPDIR names another directory",
                            *(name, tempfile.gettempdir(), _MUCH >> 20),
                        )
                    n_bytes += file.write(block)
        except OSError as error:
            problem = f"{name} cannot be kept in a temporary file: {error.strerror or error}"
            raise DataError(f"{problem}; set TMPDIR to another directory") from error
        if not n_bytes:
            raise DataError(f"{name} is empty")
        yield path


def _read(stream: BinaryIO | io.RawIOBase, name: str) -> bytes:
    with messages.os_errors_as(DataError, name):
        return stream.read(_BLOCK_BYTES) or b""
