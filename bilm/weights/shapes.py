"""Names and shapes of the arrays in a weight file, read without the arrays and without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from bilm.errors import WeightsError
from bilm.hdf5 import opened_hdf5
from bilm.shown import excerpt

Shapes = dict[str, tuple[int, ...]]

# Weights lie in a few groups; a file of embeddings has an array a sentence, and may have millions.
_MOST_GROUPS = 1000
_MOST_COMPRESSED = 1032  # bytes that deflate can make one of


def check_shapes(
    found: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]], source: str
) -> None:
    """Compare the arrays of a file with those a model needs; -1 in an expected shape fits any size.

    Raises:
        WeightsError: lists every missing, misshapen and unexpected name.
    """
    problems = []
    for name, wanted in expected.items():
        if name not in found:
            problems.append(f"missing: {name} {wanted}")
        elif not _fits(found[name], wanted):
            problems.append(f"misshapen: {name} has {found[name]}, the options need {wanted}")
    problems += [
        f"unexpected: {excerpt(name)} {found[name]}" for name in sorted(found.keys() - expected.keys())
    ]
    if problems:
        raise WeightsError(
            f"{source} does not fit the options:\n" + "\n".join(f"  {line}" for line in problems)
        )


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(
        have == want or want == -1 for have, want in zip(shape, wanted, strict=True)
    )


def read_hdf5_shapes(path: str | Path) -> Shapes:
    """The shape of every array in a weight file, by its name there.

    Raises:
        WeightsError: the file cannot be read as HDF5, or holds something else than weights.
    """
    with opened_hdf5(path, WeightsError) as file:
        if len(file) > _MOST_GROUPS:
            raise WeightsError(f"{path}: {len(file):,} arrays; these are not the weights of a biLM")
        return {name: dataset.shape for name, dataset in datasets(file).items()}


def datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """All datasets of the file itself by name; links that lead out of it are not followed.

    Raises:
        WeightsError: one of them has a name that is not UTF-8, is not of floats, or not in the file.
    """
    found: dict[str, h5py.Dataset] = {}

    def visit(name: str | bytes, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset):
            if isinstance(name, bytes) or not is_array(item):
                raise WeightsError(f"{file.filename}: {name!s} is not an array of floats stored in the file")
            found[name] = item

    file.visititems(visit)
    return found


def is_array(item: object) -> bool:
    """Whether something in a file is an array of floats, and in the file itself."""
    if not isinstance(item, h5py.Dataset) or item.external or item.is_virtual:
        return False
    return item.shape is not None and item.dtype.kind == "f"


def read_array(dataset: h5py.Dataset) -> np.ndarray:
    """Read an array as float32; the memory that it takes is in proportion to what is stored.

    Raises:
        WeightsError: the file declares more than it holds.
    """
    stored = min(dataset.id.get_storage_size(), dataset.file.id.get_filesize())
    is_filtered = dataset.id.get_create_plist().get_nfilters() > 0
    if dataset.nbytes > stored * (_MOST_COMPRESSED if is_filtered else 1):
        raise WeightsError(
            f"{dataset.file.filename}: {dataset.name} is {dataset.shape}, and has only {stored:,} bytes there"
        )
    return np.asarray(dataset[()], np.float32)
