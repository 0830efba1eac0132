"""A model as it is handed out: options, HDF5 weights and perhaps a vocabulary, in a folder or a ZIP archive.

The names are those of the archives of vectors.nlpl.eu, of simple_elmo, AllenNLP and bilm-tf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from bilm.options.file import read_options
from bilm.vocabulary.vocabulary import Vocabulary, parse_vocabulary
from bilm.weights.hdf5_file import Arrays, Shapes, datasets, opened_hdf5, read_arrays
from bilm.weights.names import WeightName, dump_names
from bilm.weights.stored_model import StoredModel

WEIGHTS_NAME, OPTIONS_NAME, VOCABULARY_NAME = "model.hdf5", "options.json", "vocab.txt"
"""What vectors.nlpl.eu and simple_elmo call the files of a model."""

_WEIGHTS_NAMES = (WEIGHTS_NAME, "weights.hdf5")
_WEIGHTS_ENDS = ("_weights.hdf5", "_weights.h5")
HDF5_ENDS = (".hdf5", ".h5")
_VOCABULARY_NAMES = (VOCABULARY_NAME, "vocab.txt.gz")


@dataclasses.dataclass(frozen=True)
class ModelFile:
    """A file of a model, on disk or in a ZIP archive; as text, its name in errors.

    Attributes:
        path: its path or that of the archive.
        archive: that it is in; None on disk.
        member: its name in the archive.
    """

    path: Path
    archive: ZipArchive | None = None
    member: str = ""

    def __str__(self) -> str:
        return str(self.path) if self.archive is None else f"{self.path}/{self.member}"

    @property
    def n_bytes(self) -> int:
        """Its size."""
        return self.path.stat().st_size if self.archive is None else self.archive.size(self.member)

    def read(self, failure: type[BilmError]) -> bytes:
        """Its content.

        Raises:
            BilmError: of the class `failure`, or a `DataError` where the archive is damaged.
        """
        return read_file(self.path, failure) if self.archive is None else self.archive.read(self.member)

    @contextmanager
    def opened_hdf5(self) -> Iterator[h5py.File]:
        """The open file; see `bilm.weights.hdf5_file.opened_hdf5`.

        Raises:
            DataError: the archive cannot be read.
            WeightsError: it cannot be read as HDF5.
        """
        if self.archive is None:
            with opened_hdf5(self.path, WeightsError) as file:
                yield file
            return
        with (
            self.archive.copied(self.member) as stream,
            opened_hdf5(str(self), WeightsError, stream) as file,
        ):
            yield file


Files = Mapping[str, ModelFile]
"""The files of a folder by their names."""


@dataclasses.dataclass(frozen=True)
class Distribution(StoredModel):
    """The files of a model that is not a run.

    Attributes:
        path: as it was given.
        weight_file: the HDF5 file.
        options_file: the options.
        vocabulary_file: the vocabulary, or None.
    """

    path: Path
    weight_file: ModelFile
    options_file: ModelFile
    vocabulary_file: ModelFile | None = None

    @property
    def source(self) -> str:
        """What to call the weights in an error."""
        return str(self.weight_file)

    @property
    def files(self) -> list[Path]:
        """The files on disk that are read."""
        files = (self.weight_file, self.options_file, self.vocabulary_file)
        return [file.path for file in files if file is not None]

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

    @cached_property
    def options(self) -> Options:
        """The options of the model; a warning names unrecognised keys.

        Raises:
            OptionsError: they are invalid, or another program's.
        """
        name = str(self.options_file)
        with explained(name, OptionsError):
            found = read_options(name, self.options_file.read(OptionsError), for_inference=True)
        found.warn_of_unknown(name)
        return found.options

    def arrays(self) -> Arrays:
        """The weights by our own names, float32; those of the softmax if they are there.

        Raises:
            BilmError: they cannot be read, or do not fit the options.
        """
        names = self.names
        with self.weight_file.opened_hdf5() as file:
            return read_arrays(file, names, self.source)

    @cached_property
    def shapes(self) -> Shapes:
        """The shape of every array, by its name in the file.

        Raises:
            BilmError: they cannot be read.
        """
        with self.weight_file.opened_hdf5() as file:
            return {name: dataset.shape for name, dataset in datasets(file, self.source).items()}

    @property
    def n_predicted(self) -> int | None:
        """The number of words that the softmax predicts; None without a softmax."""
        return (self.shapes.get("softmax/b") or (None,))[0]

    @property
    def n_words(self) -> int | None:
        """The number of words that the encoder knows; None of one that reads characters."""
        return (self.shapes.get("embedding") or (None,))[0]

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

    def vocabulary(self, max_word_length: int | None = None) -> Vocabulary | None:
        """The vocabulary; None if there is none.

        Args:
            max_word_length: as for `bilm.vocabulary.vocabulary.load_vocabulary`.

        Raises:
            VocabularyError: it cannot be read or is not valid.
        """
        file = self.vocabulary_file
        if file is None:
            return None
        return parse_vocabulary(file.read(VocabularyError), str(file), max_word_length)


def find_distribution(path: Path) -> Distribution:
    """Find the files of a model.

    Args:
        path: a folder or a ZIP archive; or a file of weights or options, with the other beside it.

    Raises:
        BilmError: there is no such model; where the path is another program's, says what that is.
    """
    if path.is_dir():
        return _found(path, _in_folder(path), what_it_is(path))
    if not path.exists():
        raise WeightsError(f"{path}: no such file or directory")
    if not path.is_file():
        raise WeightsError(f"{path}: not a model: neither a file nor a directory")
    if _is_zip(path):
        archive = ZipArchive(path)
        return _found(path, _in_archive(archive), of_names(archive.names))
    if not is_hdf5(path):
        if (what := what_it_is(path)) is not None:
            raise WeightsError(f"{path}: is {what}")
        if not path.name.endswith((*HDF5_ENDS, OPTIONS_NAME)):
            raise WeightsError(
                f"{path}: not a model: expected a folder, a ZIP archive or a file of HDF5 weights"
            )
    return _of_file(path)


def _in_folder(path: Path) -> Files:
    """The files directly in a directory."""
    with os_errors_as(DataError, str(path)):
        return {file.name: ModelFile(file) for file in sorted(path.iterdir()) if file.is_file()}


def _in_archive(archive: ZipArchive) -> Files:
    """The files of the only folder that holds options; of the archive itself if there is none."""
    paths = [PurePosixPath(name) for name in archive.names]
    folders = {path.parent for path in paths if path.name.endswith(OPTIONS_NAME) and not _is_litter(path)}
    if len(folders) > 1:
        some = ", ".join(sorted(map(str, folders))[:3])
        raise DataError(
            f"{archive.path}: several folders hold an {OPTIONS_NAME}: {some}; unpack it and give one"
        )
    folder = folders.pop() if folders else PurePosixPath()
    return {
        path.name: ModelFile(archive.path, archive, name)
        for path, name in zip(paths, archive.names, strict=True)
        if path.parent == folder
    }


def _is_litter(path: PurePosixPath) -> bool:
    """What systems put beside the files of a user."""
    return path.parts[0] == "__MACOSX" or path.name.startswith(".")


def _found(path: Path, files: Files, foreign: str | None) -> Distribution:
    """The model that files make; what they are otherwise, when they make none."""
    try:
        weights = _weights_of(files, path)
        return _model(path, files, weights, _options_of(files, path, weights))
    except BilmError as error:
        if foreign is None:
            raise
        raise WeightsError(f"{path}: is {foreign}") from error


def _of_file(path: Path) -> Distribution:
    files, name = _in_folder(path.parent), path.name
    if not name.endswith(OPTIONS_NAME):
        return _model(path, files, name, _options_of(files, path, name))
    beside = name.removesuffix(OPTIONS_NAME)
    wanted = [f"{beside}{end}" for end in ("weights.hdf5", "hdf5")] if beside else []
    weights = next((one for one in wanted if one in files), None) or _weights_of(files, path.parent)
    return _model(path, files, weights, name)


def _model(path: Path, files: Files, weights: str, options: str) -> Distribution:
    vocabulary = next((files[name] for name in _VOCABULARY_NAMES if name in files), None)
    return Distribution(path, files[weights], files[options], vocabulary)


def options_beside(name: str, names: Collection[str]) -> str | None:
    """Which of these names is that of the options of the weights `name`, as bilm and AllenNLP name them."""
    stem = PurePosixPath(name).stem
    wanted = [f"{stem}.options.json", OPTIONS_NAME]
    if stem.endswith("_weights"):
        wanted.insert(0, stem.removesuffix("weights") + OPTIONS_NAME)
    return next((one for one in wanted if one in names), None)


def _weights_of(files: Files, path: Path) -> str:
    known = [name for name in files if name in _WEIGHTS_NAMES or name.endswith(_WEIGHTS_ENDS)]
    found = known or [name for name in files if name.endswith(HDF5_ENDS)]
    if not found:
        raise WeightsError(f"{path}: not a model: no HDF5 file of weights in it{_other_names(files)}")
    if len(found) > 1:
        raise WeightsError(f"{path}: several files of weights: {_listed(found)}; give one of them")
    return found[0]


def _options_of(files: Files, path: Path, weights: str) -> str:
    beside = options_beside(weights, files)
    found = [name for name in files if name.endswith(OPTIONS_NAME)] if beside is None else [beside]
    if not found:
        where = "beside it" if path.name == weights else "in it"
        raise OptionsError(
            f"{path}: not a model: no {OPTIONS_NAME} {where}, which belongs to the weights"
            f"{_other_names(files)}"
        )
    if len(found) > 1:
        raise OptionsError(
            f"{path}: several files of options, and none is called as {weights}: {_listed(found)}"
        )
    return found[0]


def _other_names(names: Iterable[str]) -> str:
    some = [name for name in names if not name.startswith(".")]
    return f" (it has {_listed(some)})" if some else " (it is empty)"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(excerpt, sorted(names)[:3])) + (", ..." if len(names) > 3 else "")


def _is_zip(path: Path) -> bool:
    with os_errors_as(DataError, str(path)), path.open("rb") as file:
        return file.read(4) in ZIP_MAGIC
