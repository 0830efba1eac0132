"""Files and streams read as their decompressed bytes; the compression is recognised by content."""

from __future__ import annotations

import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from bilm.errors import DataError

_BUFFER_BYTES = 1 << 20
_MAGIC_BYTES = 8  # enough for any of these
_ZSTD_BYTES = 1 << 10  # at once; four may stand for 128 kB
_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\x00"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = tuple(bytes((low,)) + b"\x2a\x4d\x18" for low in range(0x50, 0x60))


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a plain, gzip, xz or zstandard file for reading its decompressed bytes.

    Raises:
        DataError: Whatever fails, also while the bytes are being read.
    """
    with _named_failures(str(path)):
        file = io.BufferedReader(io.FileIO(path), _BUFFER_BYTES)
        with file, _decompressed(str(path), file) as stream:
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
    failures = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, _ZstdFailure)
    try:
        yield
    except failures as error:
        raise DataError(f"{name}: the compressed file is truncated or corrupt ({error})") from error
    except OSError as error:
        raise DataError(f"{name}: {error.strerror or error}") from error
    except MemoryError as error:
        raise DataError(
            f"{name}: a line of it, or what it asks for to be decompressed, is too long"
        ) from error


def _decompressed(name: str, file: io.BufferedReader[Any]) -> BinaryIO:
    """Put the decompressor that the content asks for on top of an open file."""
    magic = file.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]
    if magic.startswith(_GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if magic.startswith(_XZ_MAGIC):
        return cast(BinaryIO, lzma.LZMAFile(file))
    if magic.startswith((_ZSTD_MAGIC, *_ZSTD_SKIPPABLE)):
        return cast(BinaryIO, io.BufferedReader(_ZstdReader(name, file), _BUFFER_BYTES))
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


class _ZstdFailure(Exception):
    """Damaged zstandard data, whichever library found it."""


class _ZstdReader(io.RawIOBase):
    """Decompressed bytes of a file of one or more zstandard frames; a cut frame is an error."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self._new_frame, self._error = _zstd_decompressor(name)
        self._file, self._frame, self._output = file, self._new_frame(), memoryview(b"")
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
        data = self._frame.unused_data if self._frame.eof else b""
        data = data or self._file.read(_ZSTD_BYTES)
        if not data:
            if self._started and not self._frame.eof:
                raise _ZstdFailure("the last frame is cut off")
            return False
        if self._frame.eof:
            self._frame = self._new_frame()
        self._started = True
        try:
            self._output = memoryview(self._frame.decompress(data))
        except self._error as error:
            raise _ZstdFailure(str(error)) from error
        return True


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
        raise DataError(f"{name}: reading zstandard files needs a package: pip install bilm[zstd]") from None
    return zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError
