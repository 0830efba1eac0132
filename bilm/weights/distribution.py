"""A model as it is handed out: options, HDF5 weights and perhaps a vocabulary, in a folder or a ZIP archive.

The names are those of the archives of vectors.nlpl.eu, of simple_elmo, AllenNLP and bilm-tf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath

import h5py

from bilm.errors import ArgumentError, BilmError, DataError, OptionsError, VocabularyError, WeightsError
from bilm.io.foreign import explained, is_hdf5, of_names, what_it_is
from bilm.io.messages import excerpt, os_errors_as
from bilm.io.outputs import read_file
from bilm.io.zip_archive import ZIP_MAGIC, ZipArchive
from bilm.options import Options
from bilm.options.file import parse_options
from bilm.vocabulary.vocabulary import Vocabulary, parse_vocabulary
from bilm.weights.hdf5_file import Arrays, Shapes, datasets, opened_hdf5, read_arrays
from bilm.weights.names import WeightName, dump_names
from bilm.weights.stored_model import StoredModel

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
        return read_file(self.path / name, failure)

    @contextmanager
    def opened_hdf5(self, name: str) -> Iterator[h5py.File]:
        """A file of HDF5; see `bilm.weights.hdf5_file.opened_hdf5`.

        Raises:
            WeightsError: it cannot be read.
        """
        path = self.path / name
        with explained(path, WeightsError), opened_hdf5(path, WeightsError) as file:
            yield file

    def what_has(self, name: str) -> str | None:
        """What a file is that is another program's, see `bilm.io.foreign.what_it_is`."""
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
        """A file of HDF5; see `bilm.weights.hdf5_file.opened_hdf5`.

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
        """What a file is that is another program's, see `bilm.io.foreign.what_it_is`."""
        return None


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


WEIGHTS_NAME, OPTIONS_NAME, VOCABULARY_NAME = "model.hdf5", "options.json", "vocab.txt"
"""What vectors.nlpl.eu and simple_elmo call the files of a model."""

_WEIGHTS_NAMES = (WEIGHTS_NAME, "weights.hdf5")
_WEIGHTS_ENDS = ("_weights.hdf5", "_weights.h5")
HDF5_ENDS = (".hdf5", ".h5")
_VOCABULARY_NAMES = (VOCABULARY_NAME, "vocab.txt.gz")


@dataclasses.dataclass(frozen=True)
class Distribution(StoredModel):
    """The files of a model that is not a run.

    Attributes:
        path: as it was given.
        place: where the files are.
        weights_name: of the HDF5 file.
        options_place: where the options are.
        options_name: of their file.
        vocabulary_name: of the vocabulary's file, or None.
    """

    path: Path
    place: Place
    weights_name: str
    options_place: Place
    options_name: str
    vocabulary_name: str | None = None

    @classmethod
    def of_files(cls, options_file: Path, weight_file: Path) -> Distribution:
        """Options and weights that were given each by itself."""
        places = _OneFile(weight_file), _OneFile(options_file)
        return cls(weight_file, places[0], weight_file.name, places[1], options_file.name)

    @property
    def source(self) -> str:
        """What to call the weights in an error."""
        return self.place.shown(self.weights_name)

    @property
    def options_source(self) -> str:
        """What to call the options in an error."""
        return self.options_place.shown(self.options_name)

    @property
    def files(self) -> list[Path]:
        """The files on disk that are read."""
        names = [self.weights_name, *([self.vocabulary_name] if self.vocabulary_name else [])]
        return [*self.place.files(names), *self.options_place.files([self.options_name])]

    @property
    def names(self) -> Sequence[WeightName]:
        """The names of all arrays that a dump may have."""
        return dump_names(self.options)

    def training_options(self, given: Collection[str] = ()) -> Options:
        """The options to go on training with; the vocabulary may be another one.

        Args:
            given: ignored: options that go with a dump assume nothing.
        """
        return dataclasses.replace(self.options, n_tokens_vocab=None)

    def require_in_place(self) -> None:
        """Refuse to go on training where the model is.

        Raises:
            ArgumentError: always, since it is not a run.
        """
        raise ArgumentError(f"{self.path} is not a run; give `save_to` for the new run directory")

    @property
    def n_bytes(self) -> int:
        """The size of the weights."""
        return self.place.size(self.weights_name)

    @cached_property
    def options(self) -> Options:
        """The options of the model; a warning names unrecognised keys.

        Raises:
            OptionsError: they are invalid, or another program's.
        """
        data = self.options_place.read(self.options_name, OptionsError)
        try:
            found = parse_options(data, self.options_source, for_inference=True)
        except OptionsError as error:
            if (what := self.options_place.what_has(self.options_name)) is None:
                raise
            raise OptionsError(f"{self.options_source}: is {what}") from error
        found.warn_of_unknown(self.options_source)
        return found.options

    def arrays(self) -> Arrays:
        """The weights by our own names, float32; those of the softmax if they are there.

        Raises:
            BilmError: they cannot be read, or do not fit the options.
        """
        names = self.names
        with self._opened() as file:
            return read_arrays(file, names, self.source)

    @cached_property
    def shapes(self) -> Shapes:
        """The shape of every array, by its name in the file.

        Raises:
            BilmError: they cannot be read.
        """
        with self._opened() as file:
            return {name: dataset.shape for name, dataset in datasets(file, self.source).items()}

    @property
    def n_predicted(self) -> int | None:
        """The number of words that the softmax predicts; None without a softmax."""
        return self._n_rows("softmax/b")

    @property
    def n_words(self) -> int | None:
        """The number of words that the encoder knows; None of one that reads characters."""
        return self._n_rows("embedding")

    def _n_rows(self, name: str) -> int | None:
        shape = self.shapes.get(name)
        return shape[0] if shape else None

    def predicting_options(self, needed: Sequence[str] | None = None) -> Options:
        """The options of the whole language model; what a dump leaves open follows from its arrays.

        Raises:
            WeightsError: there is no softmax.
        """
        if self.n_predicted is None:
            raise WeightsError(
                f"{self.source}: has no softmax, without which it gives vectors and no probabilities; give "
                "the run that it was dumped from, or dump it with `with_softmax`"
            )
        return dataclasses.replace(
            self.options,
            n_tokens_vocab=self.n_predicted,
            share_embedding_softmax="softmax/W" not in self.shapes,
        )

    @contextmanager
    def _opened(self) -> Iterator[h5py.File]:
        with self.place.opened_hdf5(self.weights_name) as file:
            yield file

    def vocabulary(self, max_word_length: int | None = None) -> Vocabulary | None:
        """The vocabulary; None if there is none.

        Args:
            max_word_length: as for `bilm.vocabulary.vocabulary.load_vocabulary`.

        Raises:
            VocabularyError: it cannot be read or is not valid.
        """
        name = self.vocabulary_name
        if name is None:
            return None
        data = self.place.read(name, VocabularyError)
        return parse_vocabulary(data, self.place.shown(name), max_word_length)


class _OneFile(Folder):
    """The folder of a file, as that was given."""

    def __init__(self, path: Path) -> None:
        self.path, self.names = path.parent, (path.name,)
        self._given = path

    def shown(self, name: str) -> str:
        """The file as it was given."""
        return str(self._given)


def find_distribution(path: Path) -> Distribution:
    """Find the files of a model.

    Args:
        path: a folder or a ZIP archive; or a file of weights or options, with the other beside it.

    Raises:
        BilmError: there is no such model; where the path is another program's, says what that is.
    """
    if path.is_dir():
        return _found(path, Folder(path), what_it_is(path))
    if not path.exists():
        raise WeightsError(f"{path}: no such file or directory")
    if not path.is_file():
        raise WeightsError(f"{path}: not a model: neither a file nor a directory")
    if _is_zip(path):
        place = ZipFolder(path)
        return _found(path, place, of_names(place.all_names))
    what = None if is_hdf5(path) else what_it_is(path)
    if what is not None:
        raise WeightsError(f"{path}: is {what}")
    if is_hdf5(path) or path.name.endswith((*HDF5_ENDS, OPTIONS_NAME)):
        return _of_file(path)
    raise WeightsError(f"{path}: not a model: expected a folder, a ZIP archive or a file of HDF5 weights")


def _found(path: Path, place: Place, foreign: str | None) -> Distribution:
    """The model in a place, whatever the place is when there is none."""
    try:
        weights = _weights_of(place, path)
        options = _options_of(place, path, weights)
    except BilmError as error:
        if foreign is None:
            raise
        raise WeightsError(f"{path}: is {foreign}") from error
    return Distribution(path, place, weights, place, options, _vocabulary_of(place))


def _of_file(path: Path) -> Distribution:
    place = Folder(path.parent)
    weights = path.name
    if path.name.endswith(OPTIONS_NAME):
        beside = path.name.removesuffix(OPTIONS_NAME)
        wanted = [f"{beside}{end}" for end in ("weights.hdf5", "hdf5")] if beside else []
        weights = next((name for name in wanted if name in place.names), None) or _weights_of(
            place, path.parent
        )
    options = _options_of(place, path, weights) if weights == path.name else path.name
    return Distribution(path, place, weights, place, options, _vocabulary_of(place))


def options_beside(name: str, names: Sequence[str]) -> str | None:
    """Which of these names is that of the options of the weights `name`, as bilm and AllenNLP name them."""
    stem = PurePosixPath(name).stem
    wanted = [f"{stem}.options.json", OPTIONS_NAME]
    if stem.endswith("_weights"):
        wanted.insert(0, stem.removesuffix("weights") + OPTIONS_NAME)
    return next((one for one in wanted if one in names), None)


def _weights_of(place: Place, path: Path) -> str:
    known = [name for name in place.names if name in _WEIGHTS_NAMES or name.endswith(_WEIGHTS_ENDS)]
    found = known or [name for name in place.names if name.endswith(HDF5_ENDS)]
    if not found:
        raise WeightsError(f"{path}: not a model: no HDF5 file of weights in it{_other_names(place.names)}")
    if len(found) > 1:
        raise WeightsError(f"{path}: several files of weights: {_listed(found)}; give one of them")
    return found[0]


def _options_of(place: Place, path: Path, weights: str) -> str:
    beside = options_beside(weights, place.names)
    found = [name for name in place.names if name.endswith(OPTIONS_NAME)] if beside is None else [beside]
    if not found:
        where = "beside it" if path.name == weights else "in it"
        raise OptionsError(
            f"{path}: not a model: no {OPTIONS_NAME} {where}, which belongs to the weights"
            f"{_other_names(place.names)}"
        )
    if len(found) > 1:
        raise OptionsError(
            f"{path}: several files of options, and none is called as {weights}: {_listed(found)}"
        )
    return found[0]


def _vocabulary_of(place: Place) -> str | None:
    return next((name for name in _VOCABULARY_NAMES if name in place.names), None)


def _other_names(names: Iterable[str]) -> str:
    some = [name for name in names if not name.startswith(".")]
    return f" (it has {_listed(some)})" if some else " (it is empty)"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(excerpt, sorted(names)[:3])) + (", ..." if len(names) > 3 else "")


def _is_zip(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(4) in ZIP_MAGIC
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
