"""Reading members of a ZIP or tar archive without unpacking them to files."""

import struct
import tarfile
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bilm.errors import DataError
from bilm.io import lines, messages

_ALWAYS = 1 << 26  # bytes, which fit in the memory of every machine
_MOST_RATIO = 32  # for a text, or for weights with many zeros; deflate reaches 1,032


def most_expanded(n_compressed: int) -> int:
    """Return the maximum size to which compressed bytes may expand; more is not a text or a model."""
    return max(_ALWAYS, _MOST_RATIO * n_compressed)


_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1  # bit in the flags of a member

# Exceptions for damaged archives, depending on the place of the damage.
_ZIP_DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError),
    *(ValueError, LookupError, OverflowError, RuntimeError),
)
_TAR_DAMAGE = (tarfile.TarError, ValueError, OverflowError, RuntimeError)
_BLOCK_BYTES = 1 << 20


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
        with messages.os_errors_as(DataError, subject, *_ZIP_DAMAGE), zipfile.ZipFile(self.path) as archive:
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


class TarArchive:
    """A tar archive whose members are read one by one, like those of a `ZipArchive`.

    It is decompressed once, into a temporary file without a name.

    Args:
        path: path of the archive.

    Attributes:
        path: path of the archive.
        sizes: sizes of the files in it in bytes, by name; links and devices are left out.

    Raises:
        DataError: the archive cannot be read, is damaged, or expands to more than a model.
    """

    def __init__(self, path: Path) -> None:
        self.path, most = path, most_expanded(path.stat().st_size)
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this object
        weakref.finalize(self, self._file.close)
        with path.open("rb") as file, lines.decompressed(file, str(path)) as stream:
            while block := stream.read(_BLOCK_BYTES):
                with messages.os_errors_as(DataError, f"{path}: cannot be decompressed into TMPDIR"):
                    self._file.write(block)
                    self._file.flush()
                if self._file.tell() > most:
                    raise DataError(f"{path}: expands to more than {most:,} bytes; this is not a model")
        self._file.seek(0)
        self._members: dict[str, tarfile.TarInfo] = {}
        failures = messages.os_errors_as(DataError, f"{path}: the tar archive cannot be read", *_TAR_DAMAGE)
        with failures, tarfile.open(fileobj=self._file, mode="r:") as archive:
            for member in archive:
                if member.size < 0:  # which some versions of Python follow for ever
                    raise ValueError("a size is negative")
                if member.isreg() and not member.issparse():
                    self._members[member.name] = member
        self.sizes = {name: member.size for name, member in self._members.items()}

    def read(self, name: str) -> bytes:
        """Return the bytes of a file in the archive."""
        self._file.seek(self._members[name].offset_data)
        return self._file.read(self.sizes[name])
