"""Indices of TensorFlow checkpoints with right checksums, whatever they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from random import Random

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto, BundleHeaderProto

from bilm.weights.sorted_table import read_table
from tests.mutations import mutate_bytes

Entries = Iterable[tuple[bytes, bytes]]

_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")


def _table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _table()


def crc32c(data: bytes) -> int:
    """The checksum of LevelDB and TensorFlow, masked as they store it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(number: int) -> bytes:
    data = b""
    while number >= 0x80:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])


def block(entries: Entries) -> bytes:
    """Entries of which none goes on from another."""
    data, restarts = b"", b""
    for key, value in entries:
        restarts += len(data).to_bytes(4, "little")
        data += b"\0" + varint(len(key)) + varint(len(value)) + key + value
    restarts = restarts or bytes(4)
    return data + restarts + (len(restarts) // 4).to_bytes(4, "little")


def table(entries: Entries, damage: Callable[[bytes], bytes] = bytes) -> bytes:
    """A table of one block; what is damaged has its right checksum all the same."""
    entries = list(entries)
    data = _stored(damage(block(entries)))
    other = _stored(block([]))
    place = _handle(0, data)
    index = _stored(damage(block([(entries[-1][0] if entries else b"", place)])))
    footer = _handle(len(data), other) + _handle(len(data + other), index)
    return data + other + index + footer.ljust(40, b"\0") + _MAGIC


def _stored(block: bytes) -> bytes:
    return block + b"\0" + crc32c(block + b"\0").to_bytes(4, "little")


def _handle(offset: int, stored: bytes) -> bytes:
    return varint(offset) + varint(len(stored) - 5)


def damaged_index(random: Random, index: Path) -> bytes:
    """An index that declares other tensors than there are, or whose blocks are damaged."""
    entries = list(read_table(index))
    if random.random() < 0.3:
        return table(entries, lambda data: mutate_bytes(random, data) if random.random() < 0.5 else data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        i = random.randrange(len(entries))
        key, value = entries[i]
        action = random.random()
        if action < 0.1:
            entries[i] = (random.choice((*NAMES, mutate_bytes(random, key))), value)
        elif action < 0.2:
            entries[i] = (key, random.choice((mutate_bytes(random, value), random.choice(entries)[1])))
        elif key:
            entries[i] = (key, _damaged_entry(random, value))
        else:
            entries[i] = (key, _damaged_header(random))
    return table(entries if random.random() < 0.2 else sorted(dict(entries).items()))


def _damaged_entry(random: Random, value: bytes) -> bytes:
    entry = BundleEntryProto()
    with suppress(DecodeError):  # damaged before
        entry.ParseFromString(value)
    sizes = (
        -1,
        0,
        1,
        3,
        entry.size,
        entry.offset,
        *(2**bits for bits in (20, 31, 32, 40, 60, 61, 62)),
        -(2**63),
    )
    size = random.choice(sizes)
    what = random.choice(("dim", "dim", "dims", "dtype", "dtype", "shard", "offset", "size", "slice", "rank"))
    if what == "dim" and entry.shape.dim:
        random.choice(entry.shape.dim).size = size
    elif what in ("dim", "dims"):
        for _ in range(random.choice((1, 1, 2, 30, 300))):
            entry.shape.dim.add(size=random.choice((size, 0, 1)))
    elif what == "dtype":
        entry.dtype = random.randrange(-1, 140)
    elif what == "shard":
        entry.shard_id = random.choice((-1, 1, 2**31 - 1))
    elif what == "slice":
        entry.slices.add().extent.add(start=0, length=random.choice((1, 2)))
    elif what == "rank":
        entry.shape.unknown_rank = True
    else:
        setattr(entry, what, size)
    return entry.SerializeToString()


def _damaged_header(random: Random) -> bytes:
    header = BundleHeaderProto(
        num_shards=random.choice((1, 0, -1, 2, 2**31 - 1)), endianness=random.choice((0, 0, 1))
    )
    header.version.producer = random.choice((1, 1, 0, 99))
    header.version.min_consumer = random.choice((0, 0, 99))
    return header.SerializeToString()


NAMES = (b"", b"\0", b"\xff\xfe", b"lm/", b"global_step", b"bilm/run_state", b"x" * 5000, b"a\x1b[31m")
