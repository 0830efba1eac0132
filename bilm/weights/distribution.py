"""A model as it is handed out: options, HDF5 weights and perhaps a vocabulary, in a folder or a ZIP archive.

The names are those of the archives of vectors.nlpl.eu, of simple_elmo, AllenNLP and bilm-tf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePosixPath

import h5py

from bilm.errors import BilmError, DataError, OptionsError, VocabularyError, WeightsError
from bilm.foreign import is_hdf5, of_names, what_it_is
from bilm.io.shown import excerpt
from bilm.io.zip_archive import ZIP_MAGIC
from bilm.options import Options
from bilm.options.file import parse_options
from bilm.vocabulary.content import parse_vocabulary
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.names import dump_names
from bilm.weights.places import Folder, Place, ZipFolder
from bilm.weights.shapes import Arrays, Shapes, datasets, read_arrays

WEIGHTS_NAME, OPTIONS_NAME, VOCABULARY_NAME = "model.hdf5", "options.json", "vocab.txt"
"""What vectors.nlpl.eu and simple_elmo call the files of a model."""

_WEIGHTS_NAMES = (WEIGHTS_NAME, "weights.hdf5")
_WEIGHTS_ENDS = ("_weights.hdf5", "_weights.h5")
HDF5_ENDS = (".hdf5", ".h5")
_VOCABULARY_NAMES = (VOCABULARY_NAME, "vocab.txt.gz")


@dataclasses.dataclass(frozen=True)
class Distribution:
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
        names = dump_names(self.options)
        with self._opened() as file:
            return read_arrays(file, names, self.source)

    def shapes(self) -> Shapes:
        """The shape of every array, by its name in the file.

        Raises:
            BilmError: they cannot be read.
        """
        with self._opened() as file:
            return {name: dataset.shape for name, dataset in datasets(file, self.source).items()}

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
