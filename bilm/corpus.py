"""Text files as sentences: patterns, decompression, decoding, counts.

A corpus is one or more files with one pre-tokenised sentence a line, the tokens separated by white
space. Files are UTF-8, plain or compressed; the compression is recognised by content, never by name.
Everything here streams: memory does not grow with the size of a file, only with its longest line.
"""

from __future__ import annotations

import glob
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np

from bilm.errors import DataError

PathLike = str | os.PathLike[str]

_BLOCK_BYTES = 1 << 20
_COUNT_WORDS = 1 << 16
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_UTF8_MARK = b"\xef\xbb\xbf"
_GZIP_MAGIC = b"\x1f\x8b"
_XZ_MAGIC = b"\xfd7zXZ\x00"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_SKIPPABLE = tuple(bytes((low,)) + b"\x2a\x4d\x18" for low in range(0x50, 0x60))


def find_files(patterns: PathLike | Sequence[PathLike]) -> tuple[Path, ...]:
    """Turn patterns into the files they stand for.

    Args:
        patterns: One pattern or several. A pattern is a file, a directory (its files that are not
            hidden, without its subdirectories), or a glob (``**`` crosses directories). A file that
            exists under the literal name wins over the meaning of ``*?[`` in it.

    Returns:
        The files, sorted within a pattern, patterns in the order given, each file once.

    Raises:
        DataError: A pattern matches no file, or a directory may not be read.
    """
    several = [patterns] if isinstance(patterns, (str, os.PathLike)) else list(patterns)
    if not several:
        raise DataError("no input files were given")
    found: dict[Path, None] = {}
    for pattern in several:
        found.update(dict.fromkeys(_expand(os.fspath(pattern))))
    return tuple(found)


def read_lines(path: PathLike) -> Iterator[str]:
    r"""Yield the lines of a text file without their ends.

    Lines end at ``\n``, ``\r\n`` or ``\r``, as in Python's text mode. A byte order mark is dropped.

    Args:
        path: A UTF-8 file: plain, gzip, xz or zstandard, recognised by content.

    Raises:
        DataError: The file is missing, may not be read, is truncated or corrupt, is not UTF-8 or has
            a NUL byte; with the line where there is one.
    """
    for text in _text_blocks(Path(path)):
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        yield from lines


def read_sentences(path: PathLike, keep_blank: bool = False) -> Iterator[list[str]]:
    """Yield the sentences of a text file as lists of words.

    Words are separated by any Unicode white space, as ``str.split`` does.

    Args:
        path: As for `read_lines`.
        keep_blank: Give an empty list for a blank line, as bilm-tf does, instead of skipping it.

    Raises:
        DataError: As `read_lines`.
    """
    for line in read_lines(path):
        words = line.split()
        if words or keep_blank:
            yield words


class WordTable(Protocol):
    """What `count_corpus` needs of a vocabulary."""

    @property
    def size(self) -> int:
        """Number of words."""

    @property
    def bos(self) -> int:
        """Id of the sentence start."""

    @property
    def eos(self) -> int:
        """Id of the sentence end."""

    @property
    def unk(self) -> int:
        """Id of the unknown word."""

    def lookup(self, words: Sequence[str]) -> np.ndarray:
        """Ids of words, -1 for those not in the vocabulary."""


@dataclass(frozen=True)
class CorpusCounts:
    """What one pass over a corpus contains.

    Attributes:
        n_files: Files read.
        n_sentences: Lines with at least one word.
        n_blank_lines: Lines without words, which are not sentences.
        n_words: Words, without sentence marks.
        n_oov: Words that are not in the vocabulary; a literal ``<UNK>`` in the text is.
        word_counts: int64 (vocabulary size,), occurrences per word id. Each sentence counts one
            ``<S>`` and one ``</S>``, each out-of-vocabulary word one ``<UNK>``; literal marks in the
            text add to theirs. The sum is ``n_words + 2 * n_sentences``.
    """

    n_files: int
    n_sentences: int
    n_blank_lines: int
    n_words: int
    n_oov: int
    word_counts: np.ndarray

    @property
    def n_tokens(self) -> int:
        """Targets predicted in one pass in one direction: every word and one mark a sentence."""
        return self.n_words + self.n_sentences

    @property
    def oov_rate(self) -> float:
        """Fraction of the words that are not in the vocabulary."""
        return self.n_oov / self.n_words


def count_corpus(files: Sequence[PathLike], vocabulary: WordTable) -> CorpusCounts:
    """Count sentences, words and word ids in one pass.

    Args:
        files: The files of the corpus.
        vocabulary: Any `Vocabulary` with its three special tokens.

    Raises:
        DataError: As `read_lines`, or no file has a single word.
    """
    word_counts = np.zeros(vocabulary.size + 1, np.int64)  # the last one collects the unknown, id -1
    n_lines = n_sentences = 0
    for words, lines, sentences in _word_chunks(files):
        ids = vocabulary.lookup(words)
        word_counts += np.bincount(ids + 1, minlength=vocabulary.size + 1)
        n_lines += lines
        n_sentences += sentences
    n_words, n_oov = int(word_counts.sum()), int(word_counts[0])
    if not n_words:
        raise DataError(f"no words in {_name_files(files)}: the corpus is empty")
    by_id = word_counts[1:].copy()
    by_id[vocabulary.unk] += n_oov
    by_id[vocabulary.bos] += n_sentences
    by_id[vocabulary.eos] += n_sentences
    return CorpusCounts(len(files), n_sentences, n_lines - n_sentences, n_words, n_oov, by_id)


def _word_chunks(files: Iterable[PathLike]) -> Iterator[tuple[list[str], int, int]]:
    """Yield (words, lines, sentences) of about `_COUNT_WORDS` words each."""
    words: list[str] = []
    n_lines = n_sentences = 0
    for path in files:
        for sentence in read_sentences(path, keep_blank=True):
            words += sentence
            n_lines += 1
            n_sentences += bool(sentence)
            if len(words) >= _COUNT_WORDS:
                yield words, n_lines, n_sentences
                words, n_lines, n_sentences = [], 0, 0
    yield words, n_lines, n_sentences


def _name_files(files: Sequence[PathLike]) -> str:
    """Name a few files for a message."""
    names = [os.fspath(path) for path in files]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _expand(pattern: str) -> list[Path]:
    """Files of one pattern, sorted."""
    try:
        if os.path.isdir(pattern):
            names = [name for name in os.listdir(pattern) if not name.startswith(".")]
            paths = [os.path.join(pattern, name) for name in names]
        elif os.path.lexists(pattern):
            return [Path(pattern)]
        else:
            paths = glob.glob(pattern, recursive=True)
    except OSError as error:
        raise DataError(f"{pattern}: {error.strerror or error}") from error
    files = sorted(Path(path) for path in paths if os.path.isfile(path))
    if not files:
        raise DataError(f"no file matches '{pattern}' (a pattern is a file, a directory or a glob)")
    return files


def _text_blocks(path: Path) -> Iterator[str]:
    r"""Yield a file's text in blocks of whole lines, every line end made ``\n``."""
    n_lines, first, pending = 0, True, list[bytes]()
    for block, is_last in _byte_blocks(path):
        cut = len(block) if is_last else block.rfind(b"\n") + 1
        if not cut and not is_last:
            pending.append(block)  # a line longer than a block
            continue
        data = b"".join([*pending, block[:cut]])
        pending = [block[cut:]]
        if first:
            first, data = False, _without_mark(path, data)
        yield _decode(path, data, n_lines)
        n_lines += data.count(b"\n")


def _byte_blocks(path: Path) -> Iterator[tuple[bytes, bool]]:
    r"""Yield (bytes, whether these are the last) with every line end made ``\n``."""
    after_cr = False
    with _opened(path) as stream:
        while block := stream.read(_BLOCK_BYTES):
            if after_cr and block.startswith(b"\n"):
                block = block[1:]  # the second half of a \r\n cut in two
            after_cr = block.endswith(b"\r")
            if b"\r" in block:
                block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            yield block, False
    yield b"", True


def _without_mark(path: Path, data: bytes) -> bytes:
    """Drop a UTF-8 byte order mark; refuse a UTF-16 one."""
    if data.startswith(_UTF16_MARKS):
        raise DataError(f"{path}: line 1: the file is UTF-16, not UTF-8; convert it with iconv")
    return data.removeprefix(_UTF8_MARK)


def _decode(path: Path, data: bytes, n_lines: int) -> str:
    """Decode whole lines, the first of which is line ``n_lines + 1`` of the file."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = n_lines + data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise DataError(f"{path}: line {line}: not UTF-8 (byte 0x{byte:02x}: {error.reason})") from None
    if b"\0" in data:
        line = n_lines + data.count(b"\n", 0, data.index(b"\0")) + 1
        advice = "if the file is UTF-16, convert it with iconv; remove stray ones with tr -d '\\000'"
        raise DataError(f"{path}: line {line}: a NUL byte, which is not text; {advice}")
    return text


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading its decompressed bytes, every failure as a DataError."""
    failures = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, _ZstdFailure)
    try:
        file = io.BufferedReader(io.FileIO(path), _BLOCK_BYTES)
        with file, _decompressed(path, file) as stream:
            yield stream
    except failures as error:
        raise DataError(f"{path}: the compressed file is truncated or corrupt ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error


def _decompressed(path: Path, file: io.BufferedReader[io.FileIO]) -> BinaryIO:
    """Put the decompressor that the content asks for on top of an open file."""
    magic = file.peek(8)[:8]
    if magic.startswith(_GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if magic.startswith(_XZ_MAGIC):
        return cast(BinaryIO, lzma.LZMAFile(file))
    if magic.startswith((_ZSTD_MAGIC, *_ZSTD_SKIPPABLE)):
        return cast(BinaryIO, io.BufferedReader(_ZstdReader(path, file), _BLOCK_BYTES))
    return cast(BinaryIO, file)


class _ZstdFailure(Exception):
    """Damaged zstandard data, whichever library found it."""


class _ZstdReader(io.RawIOBase):
    """Decompressed bytes of a file of one or more zstandard frames; a cut frame is an error."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._new_frame, self._error = _zstd_decompressor(path)
        self._file, self._frame, self._output = file, self._new_frame(), b""
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
        data = data or self._file.read(1 << 16)
        if not data:
            if self._started and not self._frame.eof:
                raise _ZstdFailure("the last frame is cut off")
            return False
        if self._frame.eof:
            self._frame = self._new_frame()
        self._started = True
        try:
            self._output = self._frame.decompress(data)
        except self._error as error:
            raise _ZstdFailure(str(error)) from error
        return True


def _zstd_decompressor(path: Path) -> tuple[Any, type[Exception]]:
    """Return a maker of one-frame decompressors and the exception they raise."""
    try:
        from compression import zstd  # type: ignore[import-not-found]  # Python 3.14

        return zstd.ZstdDecompressor, zstd.ZstdError
    except ImportError:
        pass
    try:
        import zstandard
    except ImportError:
        raise DataError(f"{path}: reading zstandard files needs a package: pip install bilm[zstd]") from None
    return zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError
