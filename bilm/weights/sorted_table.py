"""Sorted tables in LevelDB's format, in which TensorFlow stores the indices of checkpoints.

A table has blocks of keys and values, a block with their places, and a footer with the place of
this one. Only what TensorFlow writes is read: nothing is compressed. The checksums of the blocks are
left to TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5  # after a block: how it is compressed, and its checksum
_MOST_BYTES = 1 << 24  # of a table, which has about a hundred for each tensor of a checkpoint
_LONGEST_KEY = 1 << 12


def read_table(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a file, in ascending order of keys.

    Raises:
        ValueError: it is not a table, or damaged.
        OSError: from the file system.
    """
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path.name} is larger than {_MOST_BYTES:,} bytes")
    data = path.read_bytes()
    if len(data) < _FOOTER or not data.endswith(_MAGIC):
        raise ValueError(f"{path.name} does not end as an index does")
    footer = data[-_FOOTER:]
    _, after = _handle(footer, 0)  # of a block that is not needed
    last: bytes | None = None
    end = 0
    for limit, value in _block(data, _handle(footer, after)[0]):
        place, _ = _handle(value, 0)
        if place.start < end:
            raise ValueError(f"{path.name} has a block twice")
        end = place.stop
        for key, found in _block(data, place):
            if key > limit or (last is not None and key <= last):
                raise ValueError("the names in its index are not in order")
            last = key
            yield key, found
        last = limit


def _block(data: bytes, place: slice) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block; a key shares a prefix with the one before."""
    block = data[place]
    if len(block) != place.stop - place.start or place.stop + _TRAILER > len(data) - _FOOTER:
        raise ValueError("a block of its index is not in the file")
    if data[place.stop]:
        raise ValueError("its index is compressed, which TensorFlow does not do")
    n_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (n_restarts + 1)
    if n_restarts < 1 or end < 0:
        raise ValueError("a block of its index has no end")
    restarts = {int.from_bytes(block[i : i + 4], "little") for i in range(end, len(block) - 4, 4)}
    at, key, whole = 0, b"", {0}
    while at < end:
        begin = at
        shared, at = varint(block, at)
        unshared, at = varint(block, at)
        length, at = varint(block, at)
        if shared > len(key) or shared + unshared > _LONGEST_KEY or at + unshared + length > end:
            raise ValueError("an entry of its index is too long")
        if not shared:
            whole.add(begin)
        key = key[:shared] + block[at : at + unshared]
        at += unshared + length
        yield key, block[at - length : at]
    if not restarts <= whole:  # where a search may begin
        raise ValueError("a block of its index is damaged")


def _handle(data: bytes, at: int) -> tuple[slice, int]:
    """The place of a block, and the position after its handle."""
    offset, at = varint(data, at)
    size, at = varint(data, at)
    return slice(offset, offset + size), at


def varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer in groups of seven bits, the lowest first, and the position after it.

    Raises:
        ValueError: it does not end.
    """
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        value |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return value, at
    raise ValueError("a number in it has no end")
