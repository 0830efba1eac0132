"""Weights as HDF5, as bilm-tf dumps them, to and from arrays.

Arrays are float32 and keyed by our own names. Shapes are checked against the options
before anything is read, so that a damaged file cannot ask for more memory than the model needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import h5py
import numpy as np

from bilm.errors import WeightsError
from bilm.foreign import explained
from bilm.io.atomic import replacing_together, require_room
from bilm.io.hdf5 import opened_hdf5
from bilm.io.reasons import reason
from bilm.weights.names import WeightName
from bilm.weights.shapes import Arrays, read_arrays

_OVERHEAD = 1 << 16  # bytes besides the arrays, for a file of some dozens of them


def read_hdf5(path: str | Path, names: Iterable[WeightName]) -> Arrays:
    """Read dumped weights; softmax arrays are read if the file has them.

    Raises:
        WeightsError: the file is missing, is not HDF5, or its arrays do not fit.
    """
    with explained(path, WeightsError), opened_hdf5(path, WeightsError) as file:
        return read_arrays(file, names, str(path))


def write_hdf5(
    path: str | Path,
    arrays: Arrays,
    names: Iterable[WeightName],
    beside: Mapping[Path, str] | None = None,
) -> None:
    """Write arrays under their HDF5 names, read them back, and only then give the file its name.

    Args:
        path: of the weights.
        arrays: by our own names.
        names: of those to write.
        beside: text files that go with them, by path: all of the files are written, or none.

    Raises:
        WeightsError: a file cannot be written, or reads back differently.
        DataError: the path is not that of a file, or a dangling symlink.
    """
    names, beside = [name for name in names if name.own in arrays], beside or {}
    try:
        with replacing_together(*beside, path) as (*files, temporary):
            for file, text in zip(files, beside.values(), strict=True):
                file.write_text(text)
            require_room(temporary.parent, _OVERHEAD + sum(arrays[name.own].nbytes for name in names))
            with h5py.File(temporary, "w") as file:
                for name in names:
                    file.create_dataset(name.hdf5, data=arrays[name.own], dtype="float32")
            written = read_hdf5(temporary, names)
            damaged = [
                n.hdf5 for n in names if not np.array_equal(written[n.own], arrays[n.own], equal_nan=True)
            ]
            if damaged:
                raise WeightsError(
                    f"{path}: read back differently from what was written: {', '.join(damaged)}"
                )
    except (OSError, RuntimeError) as error:
        raise WeightsError(f"{path}: cannot be written: {reason(error)}") from error
