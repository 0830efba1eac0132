"""How a file of embeddings, or a part of one, records its text and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from bilm.errors import DataError
from bilm.io.hdf5 import opened_hdf5
from bilm.io.json_reader import parse_json
from bilm.io.shown import shown

SETTINGS, TEXT, LINES = "bilm_settings", "bilm_text", "bilm_lines"
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


def read_part(path: Path, settings: Mapping[str, Any]) -> Part:
    """What a file says of itself.

    Raises:
        DataError: it was not made with these settings, or cannot be read.
    """
    with opened_hdf5(path, DataError) as file:
        if SETTINGS not in file.attrs:
            raise DataError(f"{path}: was not written by bilm embed and cannot be resumed")
        found = parse_json(_read_attribute(file, SETTINGS, "S"))
        if found != dict(settings):
            raise DataError(f"{path}: was written with other settings: {_difference(found, settings)}")
        end, digest = _read_attribute(file, LINES, "iu"), _read_attribute(file, TEXT, "S")
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
    file.attrs.update({SETTINGS: np.bytes_(text), TEXT: np.bytes_(digest), LINES: end})
