"""Text given by the name of a file, or as a file that is open already."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from bilm.errors import DataError
from bilm.text.lines import read_lines, read_stream_lines

TextFile = str | Path | IO[str] | IO[bytes]


def lines_of(file: TextFile) -> Iterator[str]:
    """The lines of a file without their ends.

    Raises:
        DataError: it is no file; or as `bilm.text.lines.read_lines`, while they are read.
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
