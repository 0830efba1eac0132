"""The places that hold the files of a model: a folder, or a ZIP archive, which is not unpacked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import h5py

from bilm.errors import BilmError, DataError, WeightsError
from bilm.foreign import explained, of_config, what_it_is
from bilm.io.hdf5 import opened_hdf5
from bilm.io.reasons import os_errors_as
from bilm.io.zip_archive import ZipArchive

_OPTIONS_END = "options.json"


class Folder:
    """The files directly in a directory.

    Args:
        path: of the directory.

    Attributes:
        path: of the directory.
        names: of its files.

    Raises:
        DataError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with os_errors_as(DataError, str(path)):
            self.names = tuple(sorted(one.name for one in path.iterdir() if one.is_file()))

    def shown(self, name: str) -> str:
        """What to call a file in an error."""
        return str(self.path / name)

    def files(self, names: list[str]) -> list[Path]:
        """The files on disk that files of these names are."""
        return [self.path / name for name in names]

    def size(self, name: str) -> int:
        """The bytes of a file."""
        return (self.path / name).stat().st_size

    def read(self, name: str, failure: type[BilmError]) -> bytes:
        """The content of a file.

        Raises:
            BilmError: of the class `failure`.
        """
        with os_errors_as(failure, self.shown(name)):
            return (self.path / name).read_bytes()

    @contextmanager
    def opened_hdf5(self, name: str) -> Iterator[h5py.File]:
        """A file of HDF5; see `bilm.io.hdf5.opened_hdf5`.

        Raises:
            WeightsError: it cannot be read.
        """
        path = self.path / name
        with explained(path, WeightsError), opened_hdf5(path, WeightsError) as file:
            yield file

    def what_has(self, name: str) -> str | None:
        """What a file is that is another program's, see `bilm.foreign.what_it_is`."""
        return what_it_is(self.path / name)


class ZipFolder:
    """The folder of a ZIP archive that holds options; it may be the archive itself.

    Args:
        path: of the archive.

    Attributes:
        path: of the archive.
        names: of the files directly in the folder.

    Raises:
        DataError: it cannot be read, or several of its folders hold options.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._archive = ZipArchive(path)
        self._folder = _folder_of_options(self._archive)
        inner = (name for name in self._archive.names if str(PurePosixPath(name).parent) == self._folder)
        self.names = tuple(PurePosixPath(name).name for name in inner)

    @property
    def all_names(self) -> tuple[str, ...]:
        """The names of all members."""
        return self._archive.names

    def _member(self, name: str) -> str:
        return name if self._folder == "." else f"{self._folder}/{name}"

    def shown(self, name: str) -> str:
        """What to call a file in an error."""
        return f"{self.path}/{self._member(name)}"

    def files(self, names: list[str]) -> list[Path]:
        """The files on disk that files of these names are."""
        return [self.path]

    def size(self, name: str) -> int:
        """The bytes of a file."""
        return self._archive.size(self._member(name))

    def read(self, name: str, failure: type[BilmError]) -> bytes:
        """The content of a file.

        Raises:
            BilmError: of the class `failure`.
        """
        try:
            return self._archive.read(self._member(name))
        except DataError as error:
            raise failure(str(error)) from error

    @contextmanager
    def opened_hdf5(self, name: str) -> Iterator[h5py.File]:
        """A file of HDF5; see `bilm.io.hdf5.opened_hdf5`.

        Raises:
            DataError: the archive cannot be read.
            WeightsError: it cannot be read as HDF5.
        """
        with (
            self._archive.copied(self._member(name)) as stream,
            opened_hdf5(self.shown(name), WeightsError, stream) as file,
        ):
            yield file

    def what_has(self, name: str) -> str | None:
        """What a file is that is another program's, see `bilm.foreign.what_it_is`."""
        return of_config(self.read(name, DataError))


Place = Folder | ZipFolder


def _folder_of_options(archive: ZipArchive) -> str:
    """The only folder that holds options; the archive itself if there is none."""
    paths = [PurePosixPath(name) for name in archive.names]
    found = {str(one.parent) for one in paths if one.name.endswith(_OPTIONS_END) and not _is_litter(one)}
    if len(found) > 1:
        some = ", ".join(sorted(found)[:3])
        raise DataError(
            f"{archive.path}: several folders hold an {_OPTIONS_END}: {some}; unpack it and give one"
        )
    return found.pop() if found else "."


def _is_litter(path: PurePosixPath) -> bool:
    """What systems put beside the files of a user."""
    return path.parts[0] == "__MACOSX" or path.name.startswith(".")
