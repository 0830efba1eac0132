"""Files and streams read as their decompressed bytes; the compression is recognised by content."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.shards import Shard, ShardFile

_BUFFER_BYTES = 1 << 20
_MAGIC_BYTES = 8  # enough for any of these
_PIECE_BYTES = 1 << 10  # decompressed at once; four bytes of zstandard may stand for 128 kB
_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\x00"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = tuple(bytes((low,)) + b"\x2a\x4d\x18" for low in range(0x50, 0x60))


@contextmanager
def opened(path: PathLike, on_end: Callable[[Shard], None] | None = None) -> Iterator[BinaryIO]:
    """Open a plain, gzip, xz or zstandard file for reading its decompressed bytes.

    Args:
        path: A `Shard` is compared with what it was.
        on_end: Called at the end with what was read.

    Raises:
        DataError: Whatever fails, also while the bytes are being read.
    """
    name = os.fspath(path)
    with _named_failures(name):
        file = io.BufferedReader(ShardFile(path, on_end), _BUFFER_BYTES)
        with file, _decompressed(name, file) as stream:
            yield stream


@contextmanager
def decompressed(stream: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Read the decompressed bytes of an open stream, which need not be seekable and is not closed.

    Args:
        stream: Plain, gzip, xz or zstandard; at its beginning, and used up afterwards.
        name: What to call it in an error.

    Raises:
        DataError: Whatever fails, also while the bytes are being read.
    """
    with _named_failures(name), io.BufferedReader(_Unclosed(stream), _BUFFER_BYTES) as file:
        yield _decompressed(name, file)


@contextmanager
def _named_failures(name: str) -> Iterator[None]:
    failures = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
    try:
        yield
    except failures as error:
        raise DataError(f"{name}: the compressed file is truncated or corrupt ({error})") from error
    except OSError as error:
        raise DataError(f"{name}: {error.strerror or error}") from error
    except MemoryError as error:
        raise DataError(f"{name}: not enough memory for one of its lines, or to decompress it") from error


def _decompressed(name: str, file: io.BufferedReader[Any]) -> BinaryIO:
    """Wrap an open file in the decompressor for its content."""
    magic = file.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]
    if magic.startswith(_GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if magic.startswith(_XZ_MAGIC):
        blocks = _frames(file, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), padding=b"\0")
        return cast(BinaryIO, io.BufferedReader(_Blocks(blocks), _BUFFER_BYTES))
    if magic.startswith((_ZSTD_MAGIC, *_ZSTD_SKIPPABLE)):
        blocks = _zstd_blocks(name, file)
        return cast(BinaryIO, io.BufferedReader(_Blocks(blocks), _BUFFER_BYTES))
    return cast(BinaryIO, file)


class _Unclosed(io.RawIOBase):
    """A stream that is not closed with its reader, read as its bytes arrive, the first few together."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - a raw or a buffered stream
        self._read: Callable[[memoryview], int] = getattr(stream, "readinto1", stream.readinto)
        self._is_new = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - the signature of the base class
        view = memoryview(buffer)
        n_bytes = arrived = self._read(view)
        while self._is_new and arrived and n_bytes < _MAGIC_BYTES:
            arrived = self._read(view[n_bytes:])
            n_bytes += arrived
        self._is_new = False
        return n_bytes


def _frames(file: BinaryIO, new_frame: Callable[[], Any], padding: bytes = b"") -> Iterator[bytes]:
    """Yield the decompressed bytes of one frame after another.

    The readers of the libraries do not do: `lzma.LZMAFile` silently ends where a later stream is damaged,
    zstandard's where a frame is cut off.

    Args:
        file: At its beginning.
        new_frame: Makes a decompressor of one frame, with `decompress`, `eof` and `unused_data`.
        padding: A byte that may stand between frames and at the end, any number of times.
    """
    data = file.read(_PIECE_BYTES)
    while data:
        frame = new_frame()
        while not frame.eof:
            if not data:
                raise EOFError("the last frame is cut off")
            yield frame.decompress(data)
            data = b"" if frame.eof else file.read(_PIECE_BYTES)
        data = frame.unused_data or file.read(_PIECE_BYTES)
        while padding and data and not (data := data.lstrip(padding)):
            data = file.read(_PIECE_BYTES)


def _zstd_blocks(name: str, file: BinaryIO) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        raise DataError(f"{name}: reading zstandard files needs a package: pip install zstandard") from None
    try:
        yield from _frames(file, zstandard.ZstdDecompressor().decompressobj)
    except zstandard.ZstdError as error:
        raise EOFError(str(error)) from error


class _Blocks(io.RawIOBase):
    """Blocks of bytes as a stream."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._left = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - the signature of the base class
        while not self._left:
            if (block := next(self._blocks, None)) is None:
                return 0
            self._left = memoryview(block)
        n_bytes = min(len(buffer), len(self._left))
        buffer[:n_bytes], self._left = self._left[:n_bytes], self._left[n_bytes:]
        return n_bytes
