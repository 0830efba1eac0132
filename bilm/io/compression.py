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
    failures = (EOFError, zlib.error, gzip.BadGzipFile, _Damage)
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
        return cast(BinaryIO, io.BufferedReader(_XzReader(file), _BUFFER_BYTES))
    if magic.startswith((_ZSTD_MAGIC, *_ZSTD_SKIPPABLE)):
        frames = _FramesReader(file, *_zstd_decompressor(name))
        return cast(BinaryIO, io.BufferedReader(frames, _BUFFER_BYTES))
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


class _Damage(Exception):  # noqa: N818 - never seen by a user, see `_named_failures`
    """Damaged compressed data, from any of the libraries."""


class _FramesReader(io.RawIOBase):
    """Decompressed bytes of a file of one or more frames; truncated or foreign data is an error.

    Args:
        file: At its beginning.
        new_frame: Makes a decompressor of one frame, with `decompress`, `eof` and `unused_data`.
        error: What that raises.
    """

    def __init__(self, file: BinaryIO, new_frame: Callable[[], Any], error: type[Exception]) -> None:
        self._new_frame, self._error = new_frame, error
        self._file, self._frame, self._output = file, new_frame(), memoryview(b"")
        self._started = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - the signature of the base class
        while not self._output and self._fill():
            pass
        n_bytes = min(len(buffer), len(self._output))
        buffer[:n_bytes] = self._output[:n_bytes]
        self._output = self._output[n_bytes:]
        return n_bytes

    def _fill(self) -> bool:
        """Decompress some more; False at the end."""
        data = self._behind(self._frame) if self._frame.eof else self._more()
        if not data:
            if self._started and not self._frame.eof:
                raise _Damage("the last frame is cut off")
            return False
        if self._frame.eof:
            self._frame = self._new_frame()
        self._started = True
        try:
            self._output = memoryview(self._frame.decompress(data))
        except self._error as error:
            raise _Damage(str(error)) from error
        return True

    def _more(self) -> bytes:
        return self._file.read(_PIECE_BYTES)

    def _behind(self, frame: Any) -> bytes:  # noqa: ANN401 - as the library made it
        """What follows a frame that has ended."""
        return frame.unused_data or self._more()


class _XzReader(_FramesReader):
    """A file of one or more xz streams, with zero bytes in multiples of four behind them, as ``xz`` takes it.

    `lzma.LZMAFile` silently stops where a later stream is damaged.
    """

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ), lzma.LZMAError)

    def _behind(self, frame: Any) -> bytes:  # noqa: ANN401
        n_zeros, data = 0, super()._behind(frame)
        while data:
            n_zeros += len(data) - len(data := data.lstrip(b"\0"))
            if data:
                break
            data = self._more()
        if n_zeros % 4:
            raise _Damage(f"{n_zeros} bytes of padding after a stream, which is not a multiple of 4")
        return data


def _zstd_decompressor(name: str) -> tuple[Any, type[Exception]]:
    """Return a maker of one-frame decompressors and the exception they raise."""
    try:
        from compression import zstd  # type: ignore[import-not-found]  # Python 3.14

        return zstd.ZstdDecompressor, zstd.ZstdError
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError:
        raise DataError(f"{name}: reading zstandard files needs a package: pip install zstandard") from None
    return zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError
