"""Shards of a corpus with their sizes and checksums, so that a changed file is noticed."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.messages import os_errors_as

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Shard(os.PathLike[str]):
    """A file as it was; it can be read wherever a path can, and is then compared with what it was.

    Attributes:
        path: Where it is.
        size: Bytes.
        modified: Time of the last modification, in nanoseconds.
        checksum: CRC-32 of the bytes as they lie in the file, compressed or not.
    """

    path: str
    size: int
    modified: int
    checksum: int

    def __fspath__(self) -> str:
        return self.path

    @property
    def name(self) -> str:
        """The name without its directory."""
        return os.path.basename(self.path)

    def require(self, size: int, checksum: int | None = None) -> None:
        """Refuse a file that has changed.

        Raises:
            DataError: Says what differs.
        """
        if size != self.size:
            problem = f"{self.size:,} bytes before, {size:,} now"
        elif checksum is not None and checksum != self.checksum:
            problem = f"{size:,} bytes as before, but different content"
        else:
            return
        raise DataError(f"{self.path}: the file has changed since it was counted: {problem}")


class ShardFile(io.FileIO):
    """A file that is read from beginning to end, and computes its size and checksum on the way.

    Of a `Shard` the size is compared with every block, the checksum at the end.

    Args:
        path: The file.
        on_end: Called at the end with what was read.

    Raises:
        DataError: While it is read: it is not what the shard was.
        OSError: As any file.
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
            self._end()
        return n_bytes

    def _end(self) -> None:
        if self._before is not None:
            self._before.require(self._size, self._checksum)
        if self._on_end is not None:
            self._on_end(Shard(self._path, self._size, self._modified, self._checksum))


def same_shards(before: Sequence[Shard], files: Sequence[Path]) -> tuple[Shard, ...]:
    """The shards as they are now, if their bytes have not changed, wherever the files are.

    A file with the same path, size and time is not read; another one of the same size is.

    Args:
        before: As they were.
        files: Where they are now, in the same order.

    Raises:
        DataError: Something differs; says what. Or a file cannot be read.
    """
    if len(files) != len(before):
        raise DataError(f"{len(before):,} files before, {len(files):,} now")
    stats = [_stat(path) for path in files]
    sizes = [stat.st_size for stat in stats]
    _require_order([shard.size for shard in before], sizes, before, files)
    here = [replace(shard, path=os.fspath(path)) for shard, path in zip(before, files, strict=True)]
    for shard, size in zip(here, sizes, strict=True):
        shard.require(size)
    now = tuple(
        shard
        if (shard.path, shard.modified) == (os.path.abspath(path), stat.st_mtime_ns)
        else read_shard(path)
        for shard, path, stat in zip(before, files, stats, strict=True)
    )
    _require_order([shard.checksum for shard in before], [shard.checksum for shard in now], before, files)
    for old, new in zip(here, now, strict=True):
        old.require(new.size, new.checksum)
    return now


def read_shard(path: Path) -> Shard:
    """Read a file for its size and checksum.

    Raises:
        DataError: It cannot be read.
    """
    found: list[Shard] = []
    with os_errors_as(DataError, str(path)), ShardFile(os.path.abspath(path), found.append) as file:
        buffer = bytearray(_BLOCK_BYTES)
        while file.readinto(buffer):
            pass
    return found[0]


def _stat(path: Path) -> os.stat_result:
    with os_errors_as(DataError, str(path)):
        return path.stat()


def _require_order(
    before: Sequence[int], now: Sequence[int], shards: Sequence[Shard], files: Sequence[Path]
) -> None:
    """Refuse the same files in another order."""
    if before != now and sorted(before) == sorted(now):
        first = next(k for k, (old, new) in enumerate(zip(before, now, strict=True)) if old != new)
        raise DataError(
            f"the files are in another order: file {first + 1} was {shards[first].name}, "
            f"and is now {files[first].name}"
        )
