"""Reading members of a tar archive, plain or compressed, without unpacking them."""

import tarfile
import tempfile
import weakref
from pathlib import Path

from bilm.errors import DataError
from bilm.io import lines, messages
from bilm.io.zip_archive import most_expanded

_BLOCK_BYTES = 1 << 20
_DAMAGE = (tarfile.TarError, ValueError, OverflowError, RuntimeError)


class TarArchive:
    """A tar archive whose members are read one by one, like those of a `bilm.io.zip_archive.ZipArchive`.

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
        failures = messages.os_errors_as(DataError, f"{path}: the tar archive cannot be read", *_DAMAGE)
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
