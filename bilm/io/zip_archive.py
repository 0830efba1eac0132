"""Reading the members of a ZIP archive, none of which is unpacked to disk."""

from __future__ import annotations

import re
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from bilm.errors import DataError
from bilm.io.messages import excerpt, reason

_ALWAYS = 1 << 26  # bytes, which every machine has
_MOST_RATIO = 32  # of a text, or of weights with many zeros; deflate reaches 1,032


def most_expanded(n_compressed: int) -> int:
    """The bytes that may come of this number of compressed bytes; more is not a text or a model."""
    return max(_ALWAYS, _MOST_RATIO * n_compressed)


ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # of an archive, and of an empty one
_BLOCK_BYTES = 1 << 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1  # the bit of a member's flags

# What zipfile raises for damaged archives, depending on where the damage is.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError),
    *(ValueError, LookupError, OverflowError, RuntimeError),
)
_OUTSIDE = re.compile(r"(^|[/\\])\.\.([/\\]|$)|^[/\\]|^[A-Za-z]:")


class ZipArchive:
    """A ZIP archive, whose members are read one by one.

    The sizes that it declares are bounded by what is in the file, see `most_expanded`, and nothing that its
    names say is used as a path.

    Args:
        path: of the archive.

    Attributes:
        path: of the archive.
        names: of its members, without directories.

    Raises:
        DataError: it cannot be read, or is damaged; or a member's name leads out of the archive.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as archive:
            names = archive.namelist()
        for name in filter(_OUTSIDE.search, names):
            raise DataError(f"{path}: its member {excerpt(name)} lies outside of the archive; do not use it")
        self.names = tuple(name for name in names if not name.endswith("/"))

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                yield archive
        except _DAMAGE as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{self.path}: the ZIP archive cannot be read: {reason(error)}") from error

    def size(self, name: str) -> int:
        """The bytes of a member, as the archive declares them.

        Raises:
            DataError: the archive cannot be read.
        """
        with self._opened() as archive:
            return archive.getinfo(name).file_size

    def read(self, name: str) -> bytes:
        """All bytes of a member, which are those that were packed: their checksum is compared.

        Raises:
            DataError: it is damaged, encrypted, or declares more than it can hold.
        """
        return b"".join(self._blocks(name))

    @contextmanager
    def copied(self, name: str) -> Iterator[BinaryIO]:
        """A member as a temporary file, which has no name where the system allows that.

        It is in the directory of the environment variable ``TMPDIR``, and goes when the context ends.

        Raises:
            DataError: as `read`, or there is no room for the file.
        """
        with tempfile.TemporaryFile(prefix="bilm-") as file:
            for block in self._blocks(name):
                try:
                    file.write(block)
                    file.flush()
                except OSError as error:
                    raise DataError(
                        f"{self.path}/{name}: cannot be kept in a temporary file: {reason(error)}; "
                        "set TMPDIR to another directory, or unpack the archive"
                    ) from error
            file.seek(0)
            yield cast(BinaryIO, file)

    def _blocks(self, name: str) -> Iterator[bytes]:
        source, n_bytes = f"{self.path}/{name}", 0
        if self.names.count(name) > 1:
            raise DataError(f"{source}: the archive has several members of this name")
        with self._opened() as archive:
            member = archive.getinfo(name)
            if member.flag_bits & _ENCRYPTED or member.compress_type not in _METHODS:
                problem = "is encrypted, or not compressed with deflate"
                raise DataError(f"{source}: {problem}; unpack the archive and give the folder")
            packed = min(member.compress_size, self.path.stat().st_size)
            if member.file_size > most_expanded(packed):
                raise DataError(
                    f"{source}: {packed:,} bytes that claim to become {member.file_size:,}; this is no model"
                )
            with archive.open(member) as stream:
                while block := stream.read(_BLOCK_BYTES):
                    n_bytes += len(block)
                    yield block
            if n_bytes != member.file_size:
                raise DataError(
                    f"{source}: {n_bytes:,} bytes, and {member.file_size:,} were packed; it is damaged"
                )
