"""Weights and word vectors as HDF5, as bilm-tf dumps them; names and shapes are read without the arrays."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import h5py
import numpy as np
from h5py import h5d, h5z

from bilm.errors import BilmError, WeightsError
from bilm.io import atomic, foreign, messages, outputs
from bilm.weights.names import WeightName

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
        BilmError: of that class; says what the file is if it is another program's.
    """
    with foreign.explained(path, failure):
        if stream is None:
            outputs.require_regular(path, failure)
        try:
            with h5py.File(path if stream is None else stream, "r") as file:
                yield file
        except _ERRORS as error:
            if isinstance(error, failure):
                raise
            raise failure(f"{path}: cannot be read as HDF5: {messages.reason(error)}") from error


Shapes = dict[str, tuple[int, ...]]
Arrays = dict[str, np.ndarray]

# Weights are dozens of arrays in a few groups; a file of embeddings has an array per sentence.
_MOST_OBJECTS = 10_000
_MOST_WITHIN = 12  # groups, of which weights have five
_MOST_PROBLEMS = 100  # that a message lists
_FLOAT_BYTES = (2, 4, 8)
_MOST_COMPRESSED = 1032  # bytes that deflate can make one of
_FILTERS = (h5z.FILTER_SHUFFLE, h5z.FILTER_DEFLATE, h5z.FILTER_FLETCHER32)  # in this order, none twice
_MARGIN = 1 << 16  # bytes by which a compressed chunk may be larger than a plain one


def check_shapes(
    found: Mapping[str, tuple[int, ...]], expected: Mapping[str, tuple[int, ...]], source: str
) -> None:
    """Compare the arrays of a file with those a model needs; -1 in an expected shape fits any size.

    Raises:
        WeightsError: lists the missing, misshapen and unexpected names, the first hundred.
    """
    problems = []
    for name, wanted in expected.items():
        if name not in found:
            problems.append(f"missing: {name} {wanted}")
        elif len(found[name]) != len(wanted) or any(
            want not in (have, -1) for have, want in zip(found[name], wanted, strict=True)
        ):
            problems.append(f"misshapen: {name} has {found[name]}, the options need {wanted}")
    problems += [
        f"unexpected: {messages.excerpt(name)} {found[name]}"
        for name in sorted(found.keys() - expected.keys())
    ]
    if problems:
        if len(problems) > _MOST_PROBLEMS:
            problems[_MOST_PROBLEMS:] = [f"and {len(problems) - _MOST_PROBLEMS:,} more"]
        raise WeightsError(
            f"{source} does not fit the options:\n" + "\n".join(f"  {line}" for line in problems)
        )


def read_hdf5_shapes(path: str | Path) -> Shapes:
    """The shape of every array in a weight file, by its name there.

    Raises:
        WeightsError: the file cannot be read as HDF5, or holds something other than weights.
    """
    with opened_hdf5(path, WeightsError) as file:
        return {name: dataset.shape for name, dataset in datasets(file, str(path)).items()}


def read_arrays(file: h5py.File, names: Iterable[WeightName], source: str) -> Arrays:
    """Read dumped weights; softmax arrays are read if the file has them.

    Args:
        file: open, see `opened_hdf5`.
        names: of the weights.
        source: what to call the file in an error.

    Raises:
        WeightsError: its arrays do not fit.
    """
    names = list(names)
    found = datasets(file, source)
    needed = {n.hdf5: n.shape for n in names if not n.is_softmax or n.hdf5 in found}
    check_shapes({name: dataset.shape for name, dataset in found.items()}, needed, source)
    if sum(map(_n_bytes, found.values())) > file.id.get_filesize() * _MOST_COMPRESSED:
        raise WeightsError(f"{source}: its arrays are larger than a file of its size can hold")
    return {n.own: read_array(found[n.hdf5], source) for n in names if n.hdf5 in needed}


def datasets(file: h5py.File, source: str) -> dict[str, h5py.Dataset]:
    """All datasets in the file itself, by name; links to other files are not followed.

    Args:
        file: open.
        source: what to call it in an error.

    Raises:
        WeightsError: one of them has a name that is not UTF-8, or is not of floats in the file; or there are
            more, or deeper within groups, than weights can be.
    """
    found: dict[str, h5py.Dataset] = {}
    n_objects = 0

    def visit(name: str | bytes, item: h5py.HLObject) -> None:
        nonlocal n_objects
        n_objects += 1 + (len(item) if isinstance(item, h5py.Group) else 0)
        if isinstance(name, bytes):
            raise WeightsError(f"{source}: the name of {messages.excerpt(repr(name))} is not UTF-8")
        if n_objects > _MOST_OBJECTS or name.count("/") > _MOST_WITHIN:
            raise WeightsError(f"{source}: too many arrays or groups; these are not the weights of a biLM")
        if is_array(item):
            found[name] = item
        elif isinstance(item, h5py.Dataset):
            raise WeightsError(
                f"{source}: {messages.excerpt(name)} is not an array of floats stored in the file"
            )

    file.visititems(visit)
    return found


def is_array(item: object) -> bool:
    """Whether an item of a file is an array of floats that is stored in the file itself."""
    if not isinstance(item, h5py.Dataset) or item.external or item.is_virtual or item.shape is None:
        return False
    return item.dtype.kind == "f" and item.dtype.itemsize in _FLOAT_BYTES


def read_array(dataset: h5py.Dataset, source: str) -> np.ndarray:
    """Read an array as float32; memory use is proportional to what is stored.

    Args:
        dataset: the array, contiguous or in chunks, plain or compressed with deflate.
        source: what to call its file in an error.

    Raises:
        WeightsError: the file declares more than it holds, or holds numbers that are not finite.
    """
    if (problem := _storage_problem(dataset)) is not None:
        raise WeightsError(f"{source}: {messages.excerpt(dataset.name)} is {dataset.shape}, and {problem}")
    return as_weights(dataset[()], f"{source}: {dataset.name[1:]}", WeightsError)


def _storage_problem(dataset: h5py.Dataset) -> str | None:
    """Say what HDF5 would not notice: data that is missing, or that becomes more than was declared."""
    properties = dataset.id.get_create_plist()
    filters = [properties.get_filter(i)[0] for i in range(properties.get_nfilters())]
    if filters != [known for known in _FILTERS if known in filters]:
        return "has other filters than shuffle, deflate and checksums; write it again without them"
    stored = min(dataset.id.get_storage_size(), dataset.file.id.get_filesize())
    is_compressed = h5z.FILTER_DEFLATE in filters
    if _n_bytes(dataset) > stored * (_MOST_COMPRESSED if is_compressed else 1):
        return f"has only {stored:,} bytes there"
    if dataset.chunks is None:
        return None
    chunks: list[h5d.StoreInfo] = []
    dataset.id.chunk_iter(chunks.append)
    n_found = len({chunk.chunk_offset for chunk in chunks})
    if n_found != _n_chunks(dataset):
        return f"only {n_found:,} of its {_n_chunks(dataset):,} chunks are there"
    if is_compressed:
        # A chunk that it did not make smaller has its bit in the mask.
        skipped = 1 << filters.index(h5z.FILTER_DEFLATE)
        sizes = (_inflated(dataset, chunk) for chunk in chunks if not chunk.filter_mask & skipped)
        if any(size != _chunk_bytes(dataset) for size in sizes):
            return f"a chunk of it does not decompress to its {_chunk_bytes(dataset):,} bytes"
    return None


def _chunk_bytes(dataset: h5py.Dataset) -> int:
    return math.prod(dataset.chunks) * dataset.dtype.itemsize


def _n_chunks(dataset: h5py.Dataset) -> int:
    return math.prod(-(-size // chunk) for size, chunk in zip(dataset.shape, dataset.chunks, strict=True))


def _n_bytes(dataset: h5py.Dataset) -> int:
    """Bytes that reading an array takes, including the margins of its last chunks."""
    return dataset.nbytes if dataset.chunks is None else _n_chunks(dataset) * _chunk_bytes(dataset)


def _inflated(dataset: h5py.Dataset, chunk: h5d.StoreInfo) -> int:
    """Bytes that a compressed chunk becomes, one more than it should at most; HDF5 would take any number."""
    most = _chunk_bytes(dataset) + 1
    if chunk.size > most + _MARGIN:
        return most
    data = dataset.id.read_direct_chunk(chunk.chunk_offset)[1]
    try:
        return len(zlib.decompressobj().decompress(data, most))
    except zlib.error:
        return 0


def as_weights(array: np.ndarray, source: str, failure: type[BilmError]) -> np.ndarray:
    """Numbers as float32.

    Args:
        array: of floats.
        source: what to call it in an error.
        failure: what to raise.

    Raises:
        BilmError: of that class; a number is not finite, or not in float32.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = np.asarray(array, np.float32)
        # The sum of squares is finite only if all are, and is far faster than checking each.
        squares = np.dot(numbers.reshape(-1), numbers.reshape(-1))
        if not np.isfinite(squares) and not np.isfinite(numbers).all():
            place = tuple(map(int, np.argwhere(~np.isfinite(numbers))[0]))
            raise failure(
                f"{source} holds {array[place]} at {list(place)}, expected finite float32 numbers; "
                "training may have diverged before it was written"
            )
    return numbers


_OVERHEAD = 1 << 16  # bytes besides the arrays, for a file of some dozens of them
_VECTORS = "embedding"


def read_hdf5(path: str | Path, names: Iterable[WeightName]) -> Arrays:
    """Read dumped weights; softmax arrays are read if the file has them.

    Raises:
        WeightsError: the file is missing, is not HDF5, or its arrays do not fit.
    """
    with opened_hdf5(path, WeightsError) as file:
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
    failures = messages.os_errors_as(WeightsError, f"{path}: cannot be written", RuntimeError)
    with failures, atomic.replacing_together(*beside, path) as (*files, temporary):
        for file, text in zip(files, beside.values(), strict=True):
            file.write_text(text)
        _write_arrays(temporary, {name.hdf5: arrays[name.own] for name in names})
        written = read_hdf5(temporary, names)
        damaged = [n.hdf5 for n in names if not np.array_equal(written[n.own], arrays[n.own], equal_nan=True)]
        if damaged:
            raise WeightsError(f"{path}: read back differently from what was written: {', '.join(damaged)}")


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
    with opened_hdf5(path, WeightsError) as file:
        found = file.get(_VECTORS)
        if not is_array(found) or found.file != file or found.shape[1:] != (dim,):
            raise WeightsError(f"{path}: has no array {_VECTORS!r} of word vectors, (words, {dim})")
        return read_array(found, str(path))


def write_token_embeddings(path: str | Path, vectors: np.ndarray) -> None:
    """Write word vectors, whole or not at all.

    Args:
        path: replaced if it exists.
        vectors: float32 (words, dim).

    Raises:
        WeightsError: the file cannot be written.
    """
    failures = messages.os_errors_as(WeightsError, f"{path}: cannot be written", RuntimeError)
    with failures, atomic.replacing(path) as temporary:
        _write_arrays(temporary, {_VECTORS: vectors})


def _write_arrays(path: Path, arrays: Arrays) -> None:
    atomic.require_room(path.parent, _OVERHEAD + sum(4 * array.size for array in arrays.values()))
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, dtype="float32")
