"""Text given by the name of a file, or as a file that is open already."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, BinaryIO, cast

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.compression import decompressed, opened
from bilm.io.shards import Shard

WHITE_SPACE = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""Every character that separates words: Unicode's whitespace and four separators of ASCII, as in Python."""
_BLOCK_BYTES = 1 << 20
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_UTF8_MARK = b"\xef\xbb\xbf"
_MOST_LINE_BYTES = 1 << 24  # several books; as words in memory they take twenty times as much
_MOST_NUL = 0.05  # of the bytes: in Cyrillic UTF-16 spaces alone make 7%; damaged text has far less


class NotText(Exception):  # noqa: N818 - never seen by a user, see its handlers
    """Bytes that are not UTF-8 text.

    Attributes:
        line: Where, from 1.
        message: What is wrong, and what to do.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line
        self.message = message


def read_lines(path: PathLike) -> Iterator[str]:
    """Yield the lines of a text file without their ends.

    A NUL is a character like any other, unless there are so many that the file cannot be UTF-8 text.

    Args:
        path: A UTF-8 file: plain, gzip, xz or zstandard, recognised by content. A `bilm.io.shards.Shard` is
            compared with what it was.

    Raises:
        DataError: The file is missing, may not be read, is truncated or corrupt, is not UTF-8, or has a
            line of more than 16 MiB, with the line where there is one; or a shard has changed.
    """
    for text in text_blocks(path):
        yield from text.removesuffix("\n").split("\n")


def read_stream_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of a stream of UTF-8 text without their ends, as soon as they can be read.

    Args:
        stream: Plain, gzip, xz or zstandard, recognised by content; it need not be seekable.
        name: What to call it in an error.

    Raises:
        DataError: As `read_lines`.
    """
    with decompressed(stream, name) as content:
        for text in _decoded(_unified(content.read1), name):  # type: ignore[attr-defined]
            yield from text.removesuffix("\n").split("\n")


def text_blocks(path: PathLike, on_end: Callable[[Shard], None] | None = None) -> Iterator[str]:
    r"""Yield a file's text in blocks of whole lines, none empty, every line end made ``\n``.

    Args:
        path: As for `read_lines`.
        on_end: Called at the end with what was read.

    Raises:
        DataError: As `read_lines`.
    """
    with opened(path, on_end) as content:
        yield from _decoded(_unified(content.read), os.fspath(path))


def _decoded(blocks: Iterable[tuple[bytes, bool]], name: str) -> Iterator[str]:
    """Turn blocks of bytes, each with whether it is the last, into blocks of whole lines."""
    n_lines = n_bytes = n_nul = 0
    pending: list[bytes] = []  # of a line longer than a block
    try:
        for block, is_last in blocks:
            n_bytes += len(block)
            n_nul += block.count(b"\0")
            if n_nul > _MOST_NUL * n_bytes:
                raise _too_many_nul(b"".join([*pending, block]), n_lines, n_nul / n_bytes)
            cut = len(block) if is_last else block.rfind(b"\n") + 1
            if not cut and not is_last:
                pending.append(block)
                _require_bounded(pending, n_lines)
                continue
            data = b"".join([*pending, block[:cut]])
            pending = [block[cut:]]
            if text := decode(data, n_lines):
                yield text
            n_lines += data.count(b"\n")
    except NotText as problem:
        raise DataError(f"{name}: {problem}") from None


def _require_bounded(pending: Sequence[bytes], n_lines: int) -> None:
    """Refuse a line that is too long."""
    if sum(map(len, pending)) > _MOST_LINE_BYTES:
        raise NotText(
            n_lines + 1,
            f"the line has more than {_MOST_LINE_BYTES >> 20} MiB; a text has one sentence per line "
            "(fold -s -w 1000 cuts it at spaces)",
        )


def decode(data: bytes, n_lines: int = 0) -> str:
    r"""Decode whole lines that end with ``\n``; the first is line ``n_lines + 1`` of its file.

    Raises:
        NotText: They are not UTF-8.
    """
    _refuse_utf16(data, n_lines)
    if not n_lines:
        data = data.removeprefix(_UTF8_MARK)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = n_lines + data.count(b"\n", 0, error.start) + 1
        raise NotText(line, f"not UTF-8 (byte 0x{data[error.start]:02x}: {error.reason})") from None


def _refuse_utf16(data: bytes, n_lines: int) -> None:
    if not n_lines and data.startswith(UTF16_MARKS):
        raise NotText(1, "the file is UTF-16, not UTF-8; convert it with iconv")


def unify_line_ends(data: bytes) -> bytes:
    r"""Make ``\r\n`` and ``\r`` into ``\n``."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


def _unified(read: Callable[[int], bytes]) -> Iterator[tuple[bytes, bool]]:
    r"""Yield (bytes, whether these are the last) with every line end made ``\n``."""
    after_cr = False
    while block := read(_BLOCK_BYTES):
        if after_cr and block.startswith(b"\n"):
            block = block[1:]  # the second half of a \r\n cut in two
        after_cr = block.endswith(b"\r")
        yield unify_line_ends(block), False
    yield b"", True


def _too_many_nul(data: bytes, n_lines: int, rate: float) -> NotText:
    """Say where NUL bytes begin in lines that have them."""
    _refuse_utf16(data, n_lines)
    line = n_lines + data.count(b"\n", 0, data.index(b"\0")) + 1
    advice = "if it is UTF-16 or UTF-32, convert it with iconv; remove NUL bytes with tr -d '\\000'"
    return NotText(line, f"{rate:.0%} of the bytes are NUL, which is not UTF-8 text; {advice}")


TextFile = str | Path | IO[str] | IO[bytes]


def lines_of(file: TextFile) -> Iterator[str]:
    """The lines of a file without their ends.

    Raises:
        DataError: it is no file; or as `bilm.io.lines.read_lines`, while they are read.
    """
    if isinstance(file, (str, Path)):
        return read_lines(file)
    name = str(getattr(file, "name", "an open file"))
    if isinstance(file, io.TextIOBase):
        return (line.rstrip("\n") for line in file)
    if hasattr(file, "read1"):
        return read_stream_lines(cast(BinaryIO, file), name)
    raise DataError(f"input_file must be the name of a file, or an open one, got {type(file).__name__}")


def place_of(file: TextFile) -> str | Path | int | None:
    """What a file is known by: its name or, where it is open, its descriptor, if there is one."""
    if isinstance(file, (str, Path)):
        return file
    try:
        return file.fileno()
    except (AttributeError, OSError):
        return None
