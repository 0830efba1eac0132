"""Reading members of a ZIP archive without unpacking them to disk."""

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bilm.errors import DataError
from bilm.io.messages import os_errors_as

ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # an archive, an empty archive

# Exceptions of zipfile for damaged archives, depending on the place of the damage, and for encrypted ones.
_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError),
    *(ValueError, LookupError, OverflowError, RuntimeError),
)


class ZipArchive:
    """A ZIP archive whose members are read one by one; their names are never used as paths.

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
            DataError: the member is damaged or encrypted.
        """
        with self._opened() as archive:
            return archive.read(name)
