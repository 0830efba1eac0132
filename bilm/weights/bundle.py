"""The index of a TensorFlow checkpoint, read before TensorFlow reads it.

TensorFlow's own reader detects accidents by checksums and trusts the rest: an impossible shape
crashes the process. So every tensor that an index declares is compared with its bytes here first.

An index (``prefix.index``) is a sorted table of messages of TensorFlow's ``tensor_bundle.proto``: under
the empty key a header, under every other the tensor of that name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

from bilm.io.messages import excerpt
from bilm.weights.sorted_table import read_table, varint

_MOST_DIMENSIONS = 32  # as NumPy has them
_LONGEST_NUMBER = 10  # bytes of a length before a string
_MOST_ELEMENTS = 1 << 62
_WHOLE_NUMBERS = (tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64)
_FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
_OTHERS = (tf.bool, tf.complex64, tf.complex128, tf.string)
_DTYPES = {dtype.as_datatype_enum: dtype for dtype in (*_WHOLE_NUMBERS, *_FLOATS, *_OTHERS)}


@dataclass(frozen=True)
class Tensor:
    """The type and shape of a tensor, as its index declares them and its data confirm."""

    dtype: tf.DType
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype.name} {list(self.shape[:_MOST_DIMENSIONS])}"

    @property
    def is_float(self) -> bool:
        """Whether it can be a weight."""
        return self.dtype in _FLOATS


def read_index(prefix: str) -> dict[str, Tensor]:
    """The tensors of a checkpoint by name, each of which has the bytes that its shape needs.

    Raises:
        ValueError: what is wrong with the index, or with the size of the data.
        OSError: from the file system.
    """
    entries = read_table(Path(f"{prefix}.index"))
    key, value = next(entries, (b"", b""))
    header = _message(BundleHeaderProto, value)
    if key or header.num_shards < 1:
        raise ValueError("its index has no header")
    files = _DataFiles(prefix, header.num_shards)
    tensors = {}
    for key, value in entries:
        name = key.decode()
        try:
            tensors[name] = _tensor(_message(BundleEntryProto, value), files)
        except ValueError as error:
            raise ValueError(f"{excerpt(name)} {error}") from error
    return tensors


def _message(kind: Any, value: bytes) -> Any:  # noqa: ANN401
    try:
        return kind.FromString(value)
    except DecodeError:
        raise ValueError("has no entry of a checkpoint's index") from None


class _DataFiles:
    """The files that hold the data, and their sizes."""

    def __init__(self, prefix: str, n_files: int) -> None:
        self._prefix = prefix
        self._n_files = n_files
        self._sizes: dict[int, int] = {}

    def path(self, number: int) -> Path:
        return Path(f"{self._prefix}.data-{number:05d}-of-{self._n_files:05d}")

    def size(self, number: int) -> int:
        if not 0 <= number < self._n_files:
            raise ValueError(f"is in data file {number} of {self._n_files}")
        if number not in self._sizes:
            if not self.path(number).is_file():
                raise ValueError(f"is in {self.path(number).name}, which is missing")
            self._sizes[number] = self.path(number).stat().st_size
        return self._sizes[number]

    def start(self, number: int, offset: int) -> bytes:
        """The first bytes of the data."""
        with open(self.path(number), "rb") as file:
            file.seek(offset)
            return file.read(_LONGEST_NUMBER)


def _tensor(entry: BundleEntryProto, files: _DataFiles) -> Tensor:
    """A tensor, compared with its bytes."""
    dtype, shape = _DTYPES.get(entry.dtype), tuple(dim.size for dim in entry.shape.dim)
    if dtype is None:
        raise ValueError(f"is of TensorFlow's type {entry.dtype}, expected numbers or a string")
    tensor = Tensor(dtype, shape)
    if (
        entry.shape.unknown_rank
        or len(shape) > _MOST_DIMENSIONS
        or min(shape, default=0) < 0
        or math.prod(max(size, 1) for size in shape) >= _MOST_ELEMENTS  # of the others, where one is 0
    ):
        raise ValueError(f"is {tensor}, which is not the shape of an array")
    if entry.slices:
        raise ValueError(f"is {tensor} in {len(entry.slices)} slices, expected a whole array")
    n_bytes = files.size(entry.shard_id)
    if entry.offset < 0 or not 0 <= entry.size <= n_bytes - entry.offset:
        raise ValueError(f"is {tensor} at {entry.offset:,} + {entry.size:,}, in data of {n_bytes:,} bytes")
    if dtype == tf.string:
        fits = not shape and _text_bytes(files.start(entry.shard_id, entry.offset)) == entry.size
    else:
        fits = math.prod(shape) * dtype.size == entry.size
    if not fits:
        raise ValueError(f"is {tensor}, and has {entry.size:,} bytes")
    return tensor


def _text_bytes(start: bytes) -> int:
    """The size of one string: its length, a checksum of that, and its bytes."""
    length, begin = varint(start, 0)
    return begin + 4 + length
