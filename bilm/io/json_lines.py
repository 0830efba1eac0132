"""Files of JSON objects, one per line, that a running process appends to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.json_reader import JsonObject, parse_json
from bilm.io.reasons import os_errors_as
from bilm.io.shown import shown

Record = TypeVar("Record")


def read_json_lines(path: PathLike, read: Callable[[JsonObject], Record]) -> list[Record]:
    """Read a file of records, oldest first.

    A truncated last line, which a killed process may leave, is ignored.

    Args:
        path: UTF-8, one JSON object per line.
        read: makes a record of an object; the problems that it notes there are raised here.

    Raises:
        DataError: the file cannot be read, or a line is damaged; names file and line.
    """
    path = Path(path)
    records = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            values = parse_json(line)
        except ValueError:
            if not line.endswith(b"\n"):
                break  # only the last one has no end
            text = shown(line.decode("utf-8", "replace").rstrip("\n"))
            raise DataError(f"{path}: line {number}: damaged; expected a JSON object, got {text}") from None
        if not isinstance(values, dict):
            raise DataError(f"{path}: line {number}: expected a JSON object, got {shown(values)}")
        problems: list[str] = []
        record = read(JsonObject("", values, problems))
        if problems:
            raise DataError(f"{path}: line {number}: {'; '.join(problems)}")
        records.append(record)
    return records


def whole_lines(path: Path) -> int:
    """Length of a file without a truncated last line, left by a killed process; 0 if there is no file.

    Raises:
        OSError: from the file system.
    """
    try:
        return path.read_bytes().rfind(b"\n") + 1
    except FileNotFoundError:
        return 0


def _lines(path: Path) -> list[bytes]:
    with os_errors_as(DataError, f"{path}: cannot be read"), path.open("rb") as file:
        return file.readlines()
