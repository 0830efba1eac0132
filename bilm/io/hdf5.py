"""Opening HDF5 files for reading, with clear errors for damaged ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import h5py

from bilm.errors import BilmError
from bilm.io.messages import reason
from bilm.io.outputs import require_regular

# What h5py raises for damaged files, depending on where the damage is.
_ERRORS = (OSError, ValueError, KeyError, RuntimeError, TypeError)


@contextmanager
def opened_hdf5(
    path: str | Path, failure: type[BilmError], stream: BinaryIO | None = None
) -> Iterator[h5py.File]:
    """Read a file.

    Args:
        path: the file.
        failure: class of the error to raise, also for failures while the file is being read.
        stream: its content, of which the path is only the name.

    Raises:
        BilmError: of that class.
    """
    if stream is None:
        require_regular(path, failure)
    try:
        with h5py.File(path if stream is None else stream, "r") as file:
            yield file
    except _ERRORS as error:
        if isinstance(error, failure):
            raise
        raise failure(f"{path}: cannot be read as HDF5: {reason(error)}") from error
