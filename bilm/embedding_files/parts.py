"""Files of embeddings: HDF5, one dataset per sentence, as AllenNLP 0.9's ``elmo`` command wrote them.

While a file is being made it is a directory ``NAME.parts`` of HDF5 files, each whole when it has its
name; the parts become one file at the end. So there is never a file that cannot be read, whenever
the process is stopped, and what is done need not be done again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bilm.embedding_files.parts_directory import part_file, part_files
from bilm.errors import DataError
from bilm.io.hdf5 import opened_hdf5
from bilm.io.json_reader import parse_json
from bilm.io.reasons import reason
from bilm.io.shown import shown

_SETTINGS, _TEXT, _LINES = "bilm_settings", "bilm_text", "bilm_lines"
"""Attributes of a file: how and of what it was made."""


@dataclass(frozen=True)
class Part:
    """Embeddings of consecutive lines, whole on the disk.

    Attributes:
        path: the file.
        end: number of the line after its last, from 0.
        digest: of the lines' text.
    """

    path: Path
    end: int
    digest: str


class TextDigest:
    """SHA-256 of lines."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, line: str) -> None:
        """Add a line without its end."""
        self._hash.update(line.encode("utf-8", "surrogatepass") + b"\n")

    def hexdigest(self) -> str:
        """The sum so far."""
        return self._hash.hexdigest()


def find_parts(outfile: Path, settings: Mapping[str, Any]) -> list[Part]:
    """What there is of a file, in the order of its lines.

    Raises:
        DataError: it was written with other settings, or cannot be read.
    """
    paths = part_files(outfile)
    if outfile.exists() and part_file(outfile, 0) not in paths:
        paths.insert(0, outfile)  # else it is what the parts will replace
    parts: list[Part] = []
    for path in paths:
        part = read_part(path, settings)
        if part.end < (parts[-1].end if parts else 0):
            raise DataError(f"{path}: damaged, as it ends at line {part.end}, before the previous part does")
        parts.append(part)
    return parts


def read_part(path: Path, settings: Mapping[str, Any]) -> Part:
    """What a file says of itself.

    Raises:
        DataError: it was not made with these settings, or cannot be read.
    """
    with opened_hdf5(path, DataError) as file:
        if _SETTINGS not in file.attrs:
            raise DataError(f"{path}: was not written by bilm embed and cannot be resumed")
        found = parse_json(_read_attribute(file, _SETTINGS, "S"))
        if found != dict(settings):
            raise DataError(f"{path}: was written with other settings: {_difference(found, settings)}")
        end, digest = _read_attribute(file, _LINES, "iu"), _read_attribute(file, _TEXT, "S")
        return Part(path, int(end), digest.decode())


def _read_attribute(file: h5py.File, name: str, kinds: str) -> Any:  # noqa: ANN401
    """A number or bytes; never text of variable length, for which a damaged file makes HDF5 loop for ever."""
    attribute = file.attrs.get_id(name)
    if attribute.dtype.kind not in kinds or attribute.shape != ():
        raise DataError(f"{file.filename}: its attribute {name} is not what bilm embed writes")
    return file.attrs[name]


def _difference(found: Any, wanted: Mapping[str, Any]) -> str:  # noqa: ANN401
    if not isinstance(found, dict):
        return f"its settings are {shown(found)}"
    different = [name for name in {**wanted, **found} if found.get(name) != wanted.get(name)]
    return ", ".join(f"{name} {found.get(name)} instead of {wanted.get(name)}" for name in different)


def write_attributes(file: h5py.File, settings: Mapping[str, Any], digest: str, end: int) -> None:
    """Say how and of what a file was made; see `Part`.

    Raises:
        OSError, RuntimeError: from HDF5.
    """
    text = json.dumps(dict(settings))
    file.attrs.update({_SETTINGS: np.bytes_(text), _TEXT: np.bytes_(digest), _LINES: end})


def close_anyway(file: h5py.File) -> None:
    """Close a file that may be one that cannot be written."""
    with suppress(OSError, RuntimeError, ValueError):
        file.close()


def overhead(n_datasets: int, compression: str | None = None) -> int:
    """Bytes that HDF5 adds to the arrays, at most: measured 380 a dataset, 3,700 a compressed one."""
    return (1 << 16) + n_datasets * (512 if compression is None else 4096)


@contextmanager
def named_failures(outfile: Path) -> Iterator[None]:
    """Name what fails while a file is written.

    Raises:
        DataError: for what HDF5 or the system raised.
    """
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{outfile}: cannot be written: {reason(error)}") from error
