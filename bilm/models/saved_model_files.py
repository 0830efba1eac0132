"""Directories of SavedModels: which of them are ours, so that they may be replaced."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.outputs import refuse_inputs, require_directory, require_parent

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
    target = require_directory(path)
    require_parent(path)
    if set("[\\") & set(str(target)):
        raise DataError(
            f"{path}: TensorFlow cannot load a SavedModel from a path with [ or \\ in it; give another name"
        )
    if target.exists():
        _refuse_foreign(path, target)
        refuse_inputs(path, inputs)
        if not overwrite:
            raise DataError(f"{path}: exists; overwrite=True replaces it")


def _refuse_foreign(path: PathLike, target: Path) -> None:
    """Refuse what is not a SavedModel that we wrote, and nothing else."""
    try:
        inner = (one for one in target.rglob("*") if not _belongs(one, target))
        if (foreign := next(inner, None)) is not None:
            raise DataError(f"{path}: exists, and {foreign} is not part of a SavedModel; give another name")
        graph = (target / _GRAPH).read_bytes()
    except FileNotFoundError:
        graph = b""
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    if not all(name in graph for name in _NAMES):
        raise DataError(f"{path}: exists and is not a SavedModel that bilm wrote; give another name")


def _belongs(inner: Path, directory: Path) -> bool:
    return bool(_FILES.fullmatch(inner.relative_to(directory).as_posix())) and not inner.is_symlink()
