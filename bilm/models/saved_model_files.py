"""Directories of SavedModels: which of them are ours, so that they may be replaced."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.outputs import check_directory_output

_GRAPH = "saved_model.pb"
_FILES = re.compile(
    r"saved_model\.pb|fingerprint\.pb|assets|variables|variables/variables\.(index|data-\d{5}-of-\d{5})"
)
# What the signatures of ours are made of, as it stands in the graph's file.
_NAMES = (b"lstm_outputs1", b"sequence_len", b"word_emb")


def check_saved_model(path: PathLike, overwrite: bool, inputs: Iterable[PathLike | int | None] = ()) -> None:
    """Refuse a directory for a SavedModel that cannot be made, or by which something else would be lost.

    Args:
        path: the directory.
        overwrite: whether a SavedModel of ours may be there already, with nothing beside it.
        inputs: see `bilm.io.outputs.refuse_inputs`.

    Raises:
        DataError: says why not.
    """
    if set("[\\") & set(os.path.realpath(path)):
        raise DataError(
            f"{path}: TensorFlow cannot load a SavedModel from a path with [ or \\ in it; give another name"
        )
    check_directory_output(path, overwrite, inputs, _is_ours, "a SavedModel")


def _is_ours(directory: Path) -> bool:
    """Whether a directory holds a SavedModel that we wrote, and nothing else."""
    if not all(_belongs(inner, directory) for inner in directory.rglob("*")):
        return False
    try:
        graph = (directory / _GRAPH).read_bytes()
    except FileNotFoundError:
        return False
    return all(name in graph for name in _NAMES)


def _belongs(inner: Path, directory: Path) -> bool:
    return bool(_FILES.fullmatch(inner.relative_to(directory).as_posix())) and not inner.is_symlink()
