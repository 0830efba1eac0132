"""Text files, given by name or open, plain or compressed."""

import bz2
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, BinaryIO, cast

from bilm.errors import DataError
from bilm.io import PathLike, foreign, messages, shards
from bilm.io.run_files import own_output

_BUFFER_BYTES = 1 << 20
_MAGIC_BYTES = 10  # enough for all formats
_PIECE_BYTES = 1 << 10  # decompressed at once; four bytes of zstandard may expand to 128 kB
_ENDINGS = (".gz", ".xz", ".bz2", ".zst")


@contextmanager
def decompressed(stream: BinaryIO, name: str) -> Iterator[BinaryIO]:
    """Decompress an open stream, which need not be seekable and is not closed.

    Args:
        stream: plain, gzip, xz, bzip2 or zstandard, at its beginning; consumed.
        name: name of the stream in errors.

    Raises:
        DataError: any failure to read the stream, also inside the block.
    """
    with _named_failures(name):
        head, read = b"", getattr(stream, "read1", stream.read)
        # A short line is not held back.
        while len(head) < _MAGIC_BYTES and b"\n" not in head and (block := read(_MAGIC_BYTES - len(head))):
            head += block
        blocks = iter(lambda: read(_BUFFER_BYTES), b"")
        yield _decompressed(name, io.BufferedReader(_Blocks(chain([head], blocks)), _BUFFER_BYTES))


@contextmanager
def _named_failures(name: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{name}: the compressed file is truncated or corrupt ({error})") from error
    except ModuleNotFoundError as error:
        raise DataError(f"{name}: reading it needs a package: pip install {error.name}") from error
    except OSError as error:
        what = own_output(name)
        raise DataError(f"{name}: {f'is {what}' if what else error.strerror or error}") from error
    except MemoryError as error:
        raise DataError(f"{name}: not enough memory for one of its lines, or to decompress it") from error


def _zstd_frame() -> Any:  # noqa: ANN401
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


# First bytes of a file -> decompressor of one of its frames.
_FORMATS: dict[bytes, Callable[[], Any]] = {
    rb"\x1f\x8b": lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS + 16),  # with the header of gzip
    rb"\xfd7zXZ\0": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ),
    rb"BZh[1-9](1AY&SY|\x17rE8P\x90)": bz2.BZ2Decompressor,
    rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18": _zstd_frame,  # a frame, or a skippable frame
}


def _decompressed(name: str, file: "io.BufferedReader[Any]") -> BinaryIO:
    """Wrap an open file in the decompressor of its format."""
    magic = file.peek(_MAGIC_BYTES)
    if not magic and name.endswith(_ENDINGS):
        raise EOFError("it is empty")
    for start, new_frame in _FORMATS.items():
        if re.match(start, magic):
            return cast(BinaryIO, io.BufferedReader(_Blocks(_frames(file, new_frame)), _BUFFER_BYTES))
    return cast(BinaryIO, file)


def _frames(file: BinaryIO, new_frame: Callable[[], Any]) -> Iterator[bytes]:
    """Yield the decompressed bytes of consecutive frames, between which NUL bytes may be.

    Replaces the readers of the libraries: `lzma.LZMAFile` ends without an error at a damaged later stream,
    zstandard's at a truncated frame.

    Args:
        file: compressed file, at its beginning.
        new_frame: makes a decompressor of one frame, with `decompress`, `eof` and `unused_data`.
    """
    data = file.read(_PIECE_BYTES)
    while data:
        frame = new_frame()
        while not frame.eof:
            if not data:
                raise EOFError("the last frame is truncated")
            try:
                block = frame.decompress(data)
            except MemoryError:
                raise
            except Exception as error:  # of the library's own class
                raise EOFError(str(error)) from error
            yield block
            data = b"" if frame.eof else file.read(_PIECE_BYTES)
        data = frame.unused_data or file.read(_PIECE_BYTES)
        while data and not (data := data.lstrip(b"\0")):
            data = file.read(_PIECE_BYTES)


class _Blocks(io.RawIOBase):
    """A stream over an iterator of blocks of bytes."""

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


WHITE_SPACE = "".join(filter(str.isspace, map(chr, range(0x3001))))
"""All characters that separate words: Unicode whitespace and four ASCII separators, as in Python."""
INVISIBLE = {
    "soft hyphens": "\u00ad",
    "zero-width spaces": "\u200b",
    "byte order marks": "\ufeff",
    "marks of direction": "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069",
    "word joiners": "\u2060-\u2064",
    "control characters": "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f",
    "halves of characters": "\ud800-\udfff",
}
"""Characters that nobody sees, by what they are, as in a set of a regular expression.

ZWJ and ZWNJ are not among them: they belong to the spelling of Persian and of Indian languages.
"""
_DAMAGE = {"replacement characters of damaged text": "\ufffd"}
_INVISIBLE = {name: re.compile(f"[{characters}]") for name, characters in (INVISIBLE | _DAMAGE).items()}
_ANY_INVISIBLE = re.compile(f"[{''.join((INVISIBLE | _DAMAGE).values())}]")


def invisible_in(text: str) -> dict[str, int]:
    """Count the characters of a text that nobody sees or that show damage, by what they are."""
    if not (found := "".join(_ANY_INVISIBLE.findall(text))):
        return {}
    return {name: n for name, pattern in _INVISIBLE.items() if (n := len(pattern.findall(found)))}


_BLOCK_BYTES = 1 << 20
_MOST_LINE_BYTES = 1 << 24  # several books; as words in memory twenty times as much
_MOST_NUL = 0.05  # share of the bytes: 7% for the spaces of Cyrillic UTF-16 alone, far less in damaged text


def read_lines(path: PathLike) -> Iterator[str]:
    """Yield the lines of a text file without line ends.

    NUL is an ordinary character, unless it is so frequent that the file cannot be UTF-8 text.

    Args:
        path: a UTF-8 file: plain, gzip, xz, bzip2 or zstandard, recognised by content. A
            `bilm.io.shards.Shard` is checked for changes.

    Raises:
        DataError: the file is missing, not readable, truncated or corrupt, is not UTF-8, or has a line of
            more than 16 MiB (the message names the line); or a shard has changed.
    """
    for block in text_blocks(path):
        yield from block.removesuffix("\n").split("\n")


def read_words(path: PathLike) -> list[str]:
    """Read a list of words, one per line; blank lines and repetitions are left out.

    Raises:
        DataError: as `read_lines`; or a line has several words (names the first), or there are none.
    """
    words = []
    for number, line in enumerate(read_lines(path), start=1):
        if len(line.split()) > 1:
            place = f"{path}: line {number}"
            raise DataError(f"{place}: {line.strip()!r:.80} is not one word; give a word per line")
        words += line.split()
    if not words:
        raise DataError(f"{path}: lists no words")
    return [*dict.fromkeys(words)]


def read_stream_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    """Yield the lines of a stream of UTF-8 text without line ends, each as soon as it has arrived.

    Args:
        stream: plain, gzip, xz, bzip2 or zstandard, recognised by content; it need not be seekable.
        name: name of the stream in errors.

    Raises:
        DataError: as `read_lines`.
    """
    with decompressed(stream, name) as content:
        for text in _decoded(content.read1, name):  # type: ignore[attr-defined]
            yield from text.removesuffix("\n").split("\n")


def text_blocks(path: PathLike, on_end: Callable[[shards.Shard], None] | None = None) -> Iterator[str]:
    r"""Yield a file's text in non-empty blocks of complete lines, with line ends converted to ``\n``.

    Args:
        path: as for `read_lines`.
        on_end: called with the file as a `Shard` when it has been read to its end.

    Raises:
        DataError: as `read_lines`.
    """
    name = shards.name_of(path)
    with _named_failures(name):
        file = io.BufferedReader(shards.ShardFile(path, on_end), _BUFFER_BYTES)
        with file, _decompressed(name, file) as content:
            yield from _decoded(content.read, name)


def _decoded(read: Callable[[int], bytes], name: str) -> Iterator[str]:
    """Decode bytes into blocks of complete lines."""
    n_lines = n_bytes = n_nul = 0
    pending: list[bytes] = []  # pieces of a line longer than a block
    is_last = after_cr = False
    while not is_last:
        block = read(_BLOCK_BYTES)
        is_last = not block
        if after_cr:
            block = block.removeprefix(b"\n")  # the \r of a \r\n ended the previous block
        after_cr = block.endswith(b"\r")
        block = unify_line_ends(block)
        if not n_bytes and (kind := foreign.not_text(block[: foreign.HEAD_BYTES])) is not None:
            raise DataError(f"{name}: is {kind}")
        n_bytes += len(block)
        n_nul += block.count(b"\0")
        if n_nul > _MOST_NUL * n_bytes:
            line = n_lines + block.count(b"\n", 0, block.index(b"\0")) + 1
            problem = f"{n_nul / n_bytes:.0%} of the bytes are NUL, which is not UTF-8 text"
            remedy = "if it is UTF-16 or UTF-32, convert it with iconv; remove NUL bytes with tr -d '\\000'"
            raise DataError(f"{name}: line {line}: {problem}; {remedy}")
        cut = len(block) if is_last else block.rfind(b"\n") + 1
        if not cut and sum(map(len, pending)) > _MOST_LINE_BYTES:
            problem = f"the line has more than {_MOST_LINE_BYTES >> 20} MiB"
            remedy = "a text has one sentence per line (fold -s -w 1000 cuts it at spaces)"
            raise DataError(f"{name}: line {n_lines + 1}: {problem}; {remedy}")
        if not cut and not is_last:
            pending.append(block)
            continue
        data = b"".join([*pending, block[:cut]])
        pending = [block[cut:]]
        if text := decode(data, name, n_lines):
            yield text
        n_lines += data.count(b"\n")


def decode(data: bytes, name: str, n_lines: int = 0) -> str:
    r"""Decode complete lines that end with ``\n``; the first is line ``n_lines + 1`` of its file.

    Raises:
        DataError: the lines are not UTF-8; names the first.
    """
    try:
        return data.decode("utf-8" if n_lines else "utf-8-sig")  # which leaves out a byte order mark
    except UnicodeDecodeError as error:
        line = n_lines + error.object.count(b"\n", 0, error.start) + 1
        problem = f"not UTF-8 (byte 0x{error.object[error.start]:02x}: {error.reason}); convert it with iconv"
        raise DataError(f"{name}: line {line}: {problem}") from None


def unify_line_ends(data: bytes) -> bytes:
    r"""Convert ``\r\n`` and ``\r`` to ``\n``."""
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in data else data


TextFile = PathLike | IO[str] | IO[bytes]


@dataclass(frozen=True)
class Lines:
    """Lines of a file, which is read anew each time; `read` returns an iterator over them."""

    read: Callable[[], Iterator[str]]

    def __iter__(self) -> Iterator[str]:
        return self.read()


def lines_of(file: TextFile) -> Iterator[str]:
    """Iterate over the lines of a file without line ends.

    Args:
        file: name of a file, or a file open in text or binary mode.

    Raises:
        DataError: `file` is something else; or, during the iteration, as `read_lines`.
    """
    if isinstance(file, str | os.PathLike):
        return read_lines(file)
    if type(file).__module__ == "tempfile":  # a wrapper
        file = getattr(file, "file", file)
    name = str(getattr(file, "name", "an open file"))
    if isinstance(file, io.TextIOBase):
        return _text_lines(file, name)
    if hasattr(file, "read1"):
        return read_stream_lines(cast(BinaryIO, file), name)
    raise DataError(f"input_file must be the name of a file, or an open file, got {type(file).__name__}")


def _text_lines(file: io.TextIOBase, name: str) -> Iterator[str]:
    with _named_failures(name), messages.os_errors_as(DataError, name, ValueError):
        for number, line in enumerate(file):
            text = line if number else line.removeprefix("\ufeff")
            yield from text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")


def place_of(file: TextFile) -> str | int | None:
    """Return the name of a file, or the descriptor of an open one; None for a file without a descriptor."""
    if isinstance(file, str | os.PathLike):
        return os.fspath(file)
    try:
        return file.fileno()
    except (AttributeError, OSError):
        return None
