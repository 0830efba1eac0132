"""Weights and word vectors in bilm-tf's HDF5 layout; names and shapes can be read without the arrays."""

import io
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import h5py
import numpy as np
from h5py import h5t

from bilm.errors import BilmError, WeightsError
from bilm.io import atomic, foreign, messages, outputs
from bilm.weights.arrays import Arrays, as_weights, check_arrays
from bilm.weights.names import ONE_LAYER, WeightName

# Errors of h5py for damaged files, besides OSError; the class depends on the place of the damage.
_ERRORS = (ValueError, KeyError, RuntimeError, TypeError)


@contextmanager
def opened_hdf5(
    path: str | Path, failure: type[BilmError], stream: BinaryIO | None = None
) -> Iterator[h5py.File]:
    """Open a file for reading.

    Args:
        path: the file.
        failure: class of the error to raise, also for failures inside the block.
        stream: content of the file; `path` is then only its name in errors.

    Raises:
        BilmError: the file cannot be read (of class `failure`); if it is another program's, the message
            says what it is.
    """
    with foreign.explained(path, failure):
        if stream is None:
            outputs.require_regular(path, failure)
        failures = messages.os_errors_as(failure, f"{path}: cannot be read as HDF5", *_ERRORS)
        with failures, ExitStack() as opened:  # HDF5 would lock a file that it opens
            stream = stream or opened.enter_context(Path(path).open("rb"))
            yield opened.enter_context(h5py.File(stream, "r"))


# Weights are dozens of arrays in a few groups; a file of embeddings has an array per sentence.
_MOST_OBJECTS = 10_000
_MOST_WITHIN = 12  # nested groups; weights have five
_MOST_COMPRESSED = 1032  # the highest compression ratio of deflate

Stored = Mapping[str, h5py.Dataset | np.ndarray]
"""Arrays in a file, or read from it, by name."""


def stored_arrays(file: h5py.File, source: str) -> dict[str, h5py.Dataset]:
    """Return all datasets in the file itself, by name; links to other files are not followed.

    The name of a model's only layer is as `ONE_LAYER` says.

    Args:
        file: open file.
        source: name of the file in errors.

    Raises:
        WeightsError: a dataset's name is not UTF-8, its values are not floats stored in the file, or there
            are more datasets or nested groups than weights can have.
    """
    stored: dict[str, h5py.Dataset] = {}
    n_objects = 0

    def visit(name: str | bytes, item: h5py.HLObject) -> None:
        nonlocal n_objects
        n_objects += 1 + (len(item) if isinstance(item, h5py.Group) else 0)
        if isinstance(name, bytes):
            raise WeightsError(f"{source}: the name of {name!r:.80} is not UTF-8")
        if n_objects > _MOST_OBJECTS or name.count("/") > _MOST_WITHIN:
            raise WeightsError(f"{source}: too many arrays or groups; these are not the weights of a biLM")
        if _is_array(item):
            stored[name.replace(*ONE_LAYER)] = item
        elif isinstance(item, h5py.Dataset):
            problem = f"{name!r:.80} is not a stored array of floats, as weights are; vectors are no model"
            raise WeightsError(f"{source}: {problem}")

    file.visititems(visit)
    return stored


def _is_array(item: object) -> bool:
    """Return True if an item is an array of floats that is stored in the file itself."""
    if not isinstance(item, h5py.Dataset) or item.external or item.is_virtual or item.shape is None:
        return False
    is_float = item.dtype.kind == "f" and item.dtype.itemsize in (2, 4, 8)
    return is_float and item.id.get_type() == h5t.py_create(item.dtype)  # not another exponent or mantissa


def read_arrays(stored: Stored, names: Iterable[WeightName], source: str) -> Arrays:
    """Read arrays by bilm's names, float32, with the softmax if it is there.

    Args:
        stored: arrays by HDF5 name, in an open file or in memory.
        names: names of the model's arrays.
        source: name of the file in errors.

    Raises:
        WeightsError: the arrays do not fit `names`, or are damaged.
    """
    needed = check_arrays({name: array.shape for name, array in stored.items()}, names, source)
    return {name.own: _read_array(stored[name.hdf5], source) for name in needed}


def _read_array(dataset: h5py.Dataset | np.ndarray, source: str) -> np.ndarray:
    """Read an array as float32.

    Args:
        dataset: array in memory or in a file.
        source: name of the file in errors.

    Raises:
        WeightsError: the file declares more than it holds, or the numbers are not finite.
    """
    if isinstance(dataset, np.ndarray):
        return dataset
    if (problem := _missing(dataset)) is not None:
        raise WeightsError(f"{source}: {dataset.name!r:.80} is {dataset.shape}, and {problem}")
    return as_weights(dataset[()], f"{source}: {dataset.name[1:]}", WeightsError)


def _missing(dataset: h5py.Dataset) -> str | None:
    """Describe the data of an array that the file lacks, if any; HDF5 would return zeros."""
    stored = min(dataset.id.get_storage_size(), dataset.file.id.get_filesize())
    if dataset.nbytes > stored * _MOST_COMPRESSED:
        return f"has only {stored:,} bytes there"
    if dataset.chunks is None:
        return None
    n_stored = dataset.id.get_num_chunks()
    n_chunks = math.prod(-(-size // n) for size, n in zip(dataset.shape, dataset.chunks, strict=True))
    return None if n_stored == n_chunks else f"only {n_stored:,} of its {n_chunks:,} chunks are there"


_MOST_OF_CHUNK = 1 << 20  # bytes, the size of HDF5's cache of chunks
_VECTORS = "embedding"


def read_hdf5(path: str | Path, names: Iterable[WeightName]) -> Arrays:
    """Read dumped weights, with the softmax if the file has it.

    Raises:
        WeightsError: the file is missing, is not HDF5, or its arrays do not fit `names`.
    """
    with opened_hdf5(path, WeightsError) as file:
        return read_arrays(stored_arrays(file, str(path)), names, str(path))


def write_hdf5(
    path: str | Path,
    arrays: Arrays,
    names: Iterable[WeightName],
    beside: Mapping[Path, str] | None = None,
    overwrite: bool = True,
) -> None:
    """Write arrays under their HDF5 names, read them back, and only then give the file its name.

    Args:
        path: file to write.
        arrays: arrays by bilm's names.
        names: names of the arrays to write.
        beside: text files to write with the weights, by path; either all files are written or no file is.
        overwrite: the files may exist.

    Raises:
        WeightsError: a file cannot be written, or reads back differently.
        DataError: the path is not a file, or a dangling symlink.
    """
    names, beside = [name for name in names if name.own in arrays], beside or {}
    held = atomic.writing(*beside, path, overwrite=overwrite, failure=WeightsError, errors=[RuntimeError])
    with held as (*files, temporary):
        for file, text in zip(files, beside.values(), strict=True):
            file.write_text(text)
        temporary.write_bytes(hdf5_content({name.hdf5: arrays[name.own] for name in names}))
        written = read_hdf5(temporary, names)
        damaged = [n.hdf5 for n in names if not np.array_equal(written[n.own], arrays[n.own])]
        if damaged:
            raise WeightsError(f"{path}: read back differently from what was written: {', '.join(damaged)}")


def read_token_embeddings(path: str | Path, dim: int) -> np.ndarray:
    """Read word vectors.

    Args:
        path: HDF5 file; other arrays in it, such as a word-level model's weights, are ignored.
        dim: width of the vectors.

    Returns:
        float32 (words, dim).

    Raises:
        WeightsError: the file cannot be read, or has no such array.
    """
    with opened_hdf5(path, WeightsError) as file:
        vectors = file.get(_VECTORS)
        if not _is_array(vectors) or vectors.file != file or vectors.shape[1:] != (dim,):
            raise WeightsError(f"{path}: has no array {_VECTORS!r} of word vectors, (words, {dim})")
        return _read_array(vectors, str(path))


def write_token_embeddings(path: str | Path, vectors: np.ndarray) -> None:
    """Write word vectors, whole or not at all.

    Args:
        path: file to write, replaced if it exists.
        vectors: float32 (words, dim).

    Raises:
        WeightsError: the file cannot be written.
    """
    with atomic.writing(path, failure=WeightsError, errors=[RuntimeError]) as (temporary,):
        temporary.write_bytes(hdf5_content({_VECTORS: vectors}))


def hdf5_content(arrays: Arrays) -> memoryview:
    """Return a file of arrays, with checksums of its chunks that every HDF5 library verifies as it reads."""
    content = io.BytesIO()  # HDF5 crashes if a disk or quota is full when it closes a file there
    with h5py.File(content, "w") as file:
        for name, array in arrays.items():
            n_chunks = -(-4 * array.size // _MOST_OF_CHUNK)
            chunks = (-(-len(array) // n_chunks), *array.shape[1:])
            # Of a chunk that damage hides, HDF5 reads the fill value, which is refused.
            settings = {"chunks": chunks, "fletcher32": True, "fillvalue": np.nan}
            file.create_dataset(name, data=array, dtype="float32", **settings)
    return content.getbuffer()
