"""Files of word vectors: HDF5 with one dataset ``embedding`` (words, dim), as bilm-tf dumps them."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from bilm.errors import WeightsError
from bilm.foreign import explained
from bilm.io.atomic import replacing, require_room
from bilm.io.hdf5 import opened_hdf5
from bilm.io.reasons import reason
from bilm.weights.shapes import is_array, read_array

NAME = "embedding"
_HDF5_OVERHEAD = 1 << 13


def read_token_embeddings(path: str | Path, dim: int) -> np.ndarray:
    """Read word vectors.

    Args:
        path: the file; other arrays in it, such as a word-level model's weights, are ignored.
        dim: their width.

    Returns:
        float32 (words, dim).

    Raises:
        WeightsError: the file cannot be read, or has no such array.
    """
    with explained(path, WeightsError), opened_hdf5(path, WeightsError) as file:
        found = file.get(NAME)
        if not is_array(found) or found.file != file:
            raise WeightsError(f"{path}: has no array {NAME!r} of word vectors")
        if found.ndim != 2 or found.shape[1] != dim:
            raise WeightsError(f"{path}: {NAME} has {found.shape}, the options need (words, {dim})")
        return read_array(found, str(path))


def write_token_embeddings(path: str | Path, vectors: np.ndarray) -> None:
    """Write word vectors, whole or not at all.

    Args:
        path: replaced if it exists.
        vectors: float32 (words, dim).

    Raises:
        WeightsError: the file cannot be written.
    """
    try:
        with replacing(path) as temporary:
            require_room(temporary.parent, _HDF5_OVERHEAD + 4 * vectors.size)
            with h5py.File(temporary, "w") as file:
                file.create_dataset(NAME, data=vectors, dtype="float32")
    except (OSError, RuntimeError) as error:
        raise WeightsError(f"{path}: cannot be written: {reason(error)}") from error
