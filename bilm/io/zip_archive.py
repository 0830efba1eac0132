"""Reading the members of a ZIP archive, none of which is unpacked to disk."""

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bilm.errors import DataError
from bilm.io.messages import excerpt, reason

_ALWAYS = 1 << 26  # bytes, which every machine has
_MOST_RATIO = 32  # of a text, or of weights with many zeros; deflate reaches 1,032


def most_expanded(n_compressed: int) -> int:
    """The bytes that may come of this number of compressed bytes; more is not a text or a model."""
    return max(_ALWAYS, _MOST_RATIO * n_compressed)


ZIP_MAGIC = (b"PK\x03\x04", b"PK\x05\x06")  # of an archive, and of an empty one
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
        sizes: bytes of its members, as it declares them, by name; without directories.

    Raises:
        DataError: it cannot be read, or is damaged; or a member's name leads out of it, or comes twice.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._opened() as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
        self.sizes = {member.filename: member.file_size for member in members}
        for name in filter(_OUTSIDE.search, self.sizes):
            raise DataError(f"{path}: its member {excerpt(name)} lies outside of the archive; do not use it")
        if len(self.sizes) < len(members):
            raise DataError(f"{path}: the archive has several members of the same name")

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        try:
            with zipfile.ZipFile(self.path) as archive:
                yield archive
        except _DAMAGE as error:
            if isinstance(error, DataError):
                raise
            raise DataError(f"{self.path}: the ZIP archive cannot be read: {reason(error)}") from error

    def read(self, name: str) -> bytes:
        """All bytes of a member, which are those that were packed: their checksum is compared.

        Raises:
            DataError: it is damaged, encrypted, or declares more than it can hold.
        """
        source = f"{self.path}/{name}"
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
                data = stream.read(member.file_size)  # no more, whatever it becomes
        if len(data) != member.file_size:
            raise DataError(
                f"{source}: {len(data):,} bytes, and {member.file_size:,} were packed; it is damaged"
            )
        return data
