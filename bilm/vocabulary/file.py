"""The vocabulary file: one word per line; the id of a word is the number of its line from 0.

It starts with ``<S>``, ``</S>``, ``<UNK>``, and the words follow by descending frequency, because the
sampled softmax draws its classes from a log-uniform distribution over ids.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path

from bilm.errors import DataError, VocabularyError
from bilm.io import PathLike
from bilm.io.atomic import replacing
from bilm.io.compression import decompressed
from bilm.io.lines import NotText, decode, unify_line_ends
from bilm.io.messages import os_errors_as, quoted
from bilm.io.outputs import read_file
from bilm.io.zip_archive import most_expanded

BOS, EOS, UNK = "<S>", "</S>", "<UNK>"
SPECIAL_TOKENS = (BOS, EOS, UNK)
SKIPPED_LINE = "!!!MAXTERMID"
EMPTY = f"the vocabulary file is empty; it needs {', '.join(SPECIAL_TOKENS)}"


def read_vocabulary_lines(path: PathLike) -> list[str]:
    """Return the lines of a vocabulary file without their ends; a byte order mark is dropped.

    Args:
        path: Plain, gzip, xz or zstandard, recognised by content.

    Raises:
        VocabularyError: The file cannot be read, is empty, or is not UTF-8.
    """
    return vocabulary_lines(read_vocabulary_bytes(path), os.fspath(path))


def vocabulary_lines(data: bytes, name: str) -> list[str]:
    """Return the lines of a vocabulary without their ends, as `read_vocabulary_lines`.

    Args:
        data: As from `vocabulary_bytes`.
        name: What to call it in an error.

    Raises:
        VocabularyError: It is empty, or is not UTF-8.
    """
    try:
        text = decode(data)
    except NotText as problem:
        raise VocabularyError(f"{name}: {problem}") from None
    if not text:
        raise VocabularyError(f"{name}: {EMPTY}")
    return split_lines(text)


def read_vocabulary_bytes(path: PathLike) -> bytes:
    r"""Return the decompressed bytes of a vocabulary file, every line end made ``\n``.

    Raises:
        VocabularyError: The file cannot be read, or is not what its compression says.
    """
    return vocabulary_bytes(read_file(path, VocabularyError), os.fspath(path))


def vocabulary_bytes(data: bytes, name: str) -> bytes:
    r"""Return the bytes of a vocabulary, every line end made ``\n``.

    Args:
        data: Plain, gzip, xz or zstandard, recognised by content.
        name: What to call it in an error.

    Raises:
        VocabularyError: The compressed data is damaged, or becomes more than a vocabulary does.
    """
    most = most_expanded(len(data))
    try:
        with decompressed(io.BytesIO(data), name) as stream:
            data = stream.read(most + 1)
    except DataError as error:
        raise VocabularyError(str(error)) from error
    if len(data) > most:
        raise VocabularyError(f"{name}: decompresses to more than {most:,} bytes; this is not a vocabulary")
    return unify_line_ends(data)


def split_lines(text: str) -> list[str]:
    r"""Split text at ``\n`` only."""
    return text.removesuffix("\n").split("\n")


def write_vocabulary(words: Iterable[str], path: PathLike) -> None:
    """Write a vocabulary file, whole or not at all.

    Args:
        words: In id order, the special tokens included.
        path: Replaced if it exists.

    Raises:
        VocabularyError: A word could not be read back unchanged (empty, with whitespace inside, not
            Unicode text), or the file cannot be written.
        DataError: the path is not that of a file, or a dangling symlink.
    """
    path = Path(path)
    lines = []
    for word in words:
        if word.split() != [word] or word == SKIPPED_LINE:
            raise VocabularyError(f"{path}: {quoted(word)} cannot be a word of a vocabulary file")
        lines.append(word)
    try:
        data = "".join([f"{word}\n" for word in lines]).encode("utf-8")
    except UnicodeEncodeError as error:
        raise VocabularyError(f"{path}: a word is not Unicode text: {error.reason}") from error
    with os_errors_as(VocabularyError, f"{path}: cannot be written"), replacing(path) as temporary:
        temporary.write_bytes(data)
