"""Reading members of a ZIP archive without unpacking them to disk."""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bilm.errors import DataError
from bilm.io.messages import os_errors_as

_ALWAYS = 1 << 26  # bytes, which fit in the memory of every machine
_MOST_RATIO = 32  # for a text, or for weights with many zeros; deflate reaches 1,032


def most_expanded(n_compressed: int) -> int:
    """Return the maximum size to which compressed bytes may expand; more is not a text or a model."""
    return max(_ALWAYS, _MOST_RATIO * n_compressed)


ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # an archive, an empty archive
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1  # bit in the flags of a member

# Exceptions of zipfile for damaged archives, depending on the place of the damage.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError),
    *(ValueError, LookupError, OverflowError, RuntimeError),
)


class ZipArchive:
    """A ZIP archive whose members are read one by one.

    Declared sizes are limited by the size of the file, see `most_expanded`. Names of members are never used
    as paths.

    Args:
        path: path of the archive.

    Attributes:
        path: path of the archive.
        sizes: declared sizes of the members in bytes, by name; without directories.

    Raises:
        DataError: the archive cannot be read, is damaged, or has several members of one name.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
        self.sizes = {member.filename: member.file_size for member in members}
        if len(self.sizes) < len(members):
            raise DataError(f"{path}: the archive has several members of the same name")

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        subject = f"{self.path}: the ZIP archive cannot be read"
        with os_errors_as(DataError, subject, *_DAMAGE), zipfile.ZipFile(self.path) as archive:
            yield archive

    def read(self, name: str) -> bytes:
        """Return the bytes of a member, after a check of their checksum.

        Raises:
            DataError: the member is damaged or encrypted, or declares more bytes than it can contain.
        """
        source = f"{self.path}/{name}"
        with self._opened() as archive:
            member = archive.getinfo(name)
            if member.flag_bits & _ENCRYPTED or member.compress_type not in _METHODS:
                problem = "is encrypted, or not compressed with deflate"
                raise DataError(f"{source}: {problem}; unpack the archive and give the folder")
            packed = min(member.compress_size, self.path.stat().st_size)
            if member.file_size > most_expanded(packed):
                problem = f"declares that {packed:,} bytes expand to {member.file_size:,}"
                raise DataError(f"{source}: {problem}; this is not a model")
            with archive.open(member) as stream:
                data = stream.read(member.file_size)  # never more than declared
        if len(data) != member.file_size:
            raise DataError(f"{source}: damaged; it has {len(data):,} bytes instead of {member.file_size:,}")
        return data
