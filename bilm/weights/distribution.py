"""A model that is stored: as a run, or as options, HDF5 weights and perhaps a vocabulary handed out together.

Such files are found in a folder or a ZIP archive. The names are those of the archives of vectors.nlpl.eu, of
simple_elmo, AllenNLP and bilm-tf.
"""

from __future__ import annotations

import abc
import dataclasses
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import h5py

from bilm.errors import ArgumentError, BilmError, DataError, OptionsError, VocabularyError, WeightsError
from bilm.io import foreign, messages, outputs, zip_archive
from bilm.io.shards import Shard
from bilm.options import Options
from bilm.options.file import read_options
from bilm.vocabulary.vocabulary import Vocabulary, load_vocabulary, parse_vocabulary
from bilm.weights import hdf5_file
from bilm.weights.names import WeightName, dump_names

if TYPE_CHECKING:
    import keras

    from bilm.weights.transfer import Remapping

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
    archive: zip_archive.ZipArchive | None = None
    member: str = ""

    def __str__(self) -> str:
        return str(self.path) if self.archive is None else f"{self.path}/{self.member}"

    @property
    def n_bytes(self) -> int:
        """Its size."""
        return self.path.stat().st_size if self.archive is None else self.archive.sizes[self.member]

    def read(self, failure: type[BilmError]) -> bytes:
        """Its content.

        Raises:
            BilmError: of the class `failure`, or a `DataError` where the archive is damaged.
        """
        return (
            outputs.read_file(self.path, failure) if self.archive is None else self.archive.read(self.member)
        )

    def opened_hdf5(self) -> AbstractContextManager[h5py.File]:
        """The open file, that of an archive in memory; see `bilm.weights.hdf5_file.opened_hdf5`.

        Raises:
            DataError: the archive cannot be read.
            WeightsError: it cannot be read as HDF5.
        """
        stream = None if self.archive is None else io.BytesIO(self.read(WeightsError))
        return hdf5_file.opened_hdf5(str(self), WeightsError, stream)


Files = Mapping[str, ModelFile]
"""The files of a folder by their names."""


class StoredModel(abc.ABC):
    """A model that can be read: the checkpoint of a run, or weights and options as they are handed out.

    Attributes:
        path: as it was given.
        options: of the network.
        source: the name of the weights in messages.
        files: files and directories on disk that are read.
        names: of all arrays that there may be.
        n_predicted: words that the softmax predicts; None without a softmax.
        n_words: words that the encoder, or all of a run, depends on; else None.
        step: steps behind the weights; None where they do not say.
        note: ends a line on the weights, such as ``", averaged weights"``.
        fixed: keys of the options that cannot change when its training goes on.

    Raises:
        BilmError: for an attribute that is read when it is needed, and cannot be.
    """

    path: Path
    options: Options
    source: str
    files: list[Path]
    names: Sequence[WeightName]
    n_predicted: int | None
    n_words: int | None
    step: int | None = None
    note = ""
    fixed: tuple[str, ...] = ("lstm", "char_cnn", "bidirectional", "n_tokens_vocab")

    @abc.abstractmethod
    def arrays(self) -> hdf5_file.Arrays:
        """The weights by our own names, float32, with the softmax if there is one.

        Raises:
            BilmError: they cannot be read, or do not fit the options.
        """

    @abc.abstractmethod
    def vocabulary(self, max_word_length: int | None = None) -> Vocabulary | None:
        """The vocabulary that is stored with the model; None without one.

        Args:
            max_word_length: as for `load_vocabulary`.

        Raises:
            VocabularyError: it cannot be read or is not valid.
        """

    @abc.abstractmethod
    def predicting_options(self) -> Options:
        """The options of the whole language model.

        Raises:
            WeightsError: there is no softmax.
        """

    def training_options(self, given: Collection[str] = ()) -> Options:
        """The options to go on training with; the vocabulary may be another one.

        Args:
            given: keys that have a value from elsewhere.
        """
        return dataclasses.replace(self.options, n_tokens_vocab=None)

    def has_ended_on(self, shards: Collection[Shard]) -> bool:  # noqa: ARG002
        """Whether the weights are those at the end of a schedule, over the text of these files."""
        return False

    def require_in_place(self) -> None:
        """Refuse to go on training where the model is.

        Raises:
            ArgumentError: it is not a run.
            OptionsError: later checkpoints of the run would be overwritten.
        """
        raise ArgumentError(f"{self.path} is not a run; give `save_to` for the new run directory")

    def restore_optimizer(  # noqa: B027 - a dump stores none
        self,
        optimizer: keras.optimizers.Optimizer,
        variables: Mapping[str, keras.Variable],
        remapping: Remapping | None = None,
    ) -> None:
        """Set an optimizer to the state that is stored with the model, if there is one.

        Args:
            optimizer: built with the variables.
            variables: of the model, by our own names.
            remapping: to the vocabulary of the model, if that is another one.
        """

    def require_vocabulary(
        self, file: Path | None, argument: str = "vocab_file", with_characters: bool = True
    ) -> Vocabulary:
        """The vocabulary in a file or, without a file, the model's own.

        Args:
            file: given by a call, or None.
            argument: that gives it.
            with_characters: whether the words are needed as the rows of a model with a character CNN.

        Raises:
            ArgumentError: there is neither.
            VocabularyError: it cannot be read or is not valid.
        """
        cnn = self.options.char_cnn if with_characters else None
        width = None if cnn is None else cnn.max_characters_per_token
        vocabulary = self.vocabulary(width) if file is None else load_vocabulary(file, width)
        if vocabulary is None:
            raise ArgumentError(f"{self.path} holds no vocabulary; give `{argument}`")
        return vocabulary

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Refuse a vocabulary that is not the model's.

        Raises:
            VocabularyError: says what differs.
        """
        require_size(vocabulary, self.n_words, self.source)


def require_size(vocabulary: Vocabulary, n_words: int | None, source: str) -> None:
    """Refuse a vocabulary of another size than a model's.

    Args:
        vocabulary: to be used with the model.
        n_words: of the model; None where its arrays do not depend on it.
        source: of the model.

    Raises:
        VocabularyError: says so.
    """
    if n_words is not None and vocabulary.size != n_words:
        raise VocabularyError(
            f"the vocabulary has {vocabulary.size} words, the model in {source} {n_words}; give the "
            "vocabulary that the model was trained with"
        )


class Distribution(StoredModel):
    """The files of a model that is not a run.

    Args:
        path: as it was given.
        weight_file: the HDF5 file.
        options_file: the options.
        vocabulary_file: the vocabulary, or None.
    """

    def __init__(
        self,
        path: Path,
        weight_file: ModelFile,
        options_file: ModelFile,
        vocabulary_file: ModelFile | None = None,
    ) -> None:
        self.path, self.source = path, str(weight_file)
        self.weight_file, self.options_file, self.vocabulary_file = weight_file, options_file, vocabulary_file
        files = (weight_file, options_file, vocabulary_file)
        self.files = [file.path for file in files if file is not None]

    @cached_property
    def names(self) -> Sequence[WeightName]:  # type: ignore[override]
        """The names of all arrays that a dump may have."""
        return dump_names(self.options)

    @cached_property
    def options(self) -> Options:  # type: ignore[override]
        """The options of the model; a warning names unrecognised keys.

        Raises:
            OptionsError: they are invalid, or another program's.
        """
        name = str(self.options_file)
        with foreign.explained(name, OptionsError):
            found = read_options(name, self.options_file.read(OptionsError), for_inference=True)
        found.warn_of_unknown(name)
        return found.options

    def arrays(self) -> hdf5_file.Arrays:
        """The weights by our own names, float32; those of the softmax if they are there.

        Raises:
            BilmError: they cannot be read, or do not fit the options.
        """
        names = self.names  # of options that are not damaged
        with self.weight_file.opened_hdf5() as file:
            return hdf5_file.read_arrays(file, names, self.source)

    @cached_property
    def shapes(self) -> hdf5_file.Shapes:
        """The shape of every array, by its name in the file.

        Raises:
            BilmError: they cannot be read.
        """
        with self.weight_file.opened_hdf5() as file:
            return {name: dataset.shape for name, dataset in hdf5_file.datasets(file, self.source).items()}

    @cached_property
    def n_predicted(self) -> int | None:  # type: ignore[override]
        """The number of words that the softmax predicts; None without a softmax."""
        return (self.shapes.get("softmax/b") or (None,))[0]

    @cached_property
    def n_words(self) -> int | None:  # type: ignore[override]
        """The number of words that the encoder knows; None of one that reads characters."""
        return (self.shapes.get("embedding") or (None,))[0]

    def predicting_options(self) -> Options:
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
    if not (path.is_dir() or path.is_file()):
        what = foreign.part_of_a_run(path)
        raise WeightsError(f"{path}: {f'is {what}' if what else 'no such file or directory'}")
    if path.is_file() and not _is_zip(path):
        return _of_file(path)
    archive = None if path.is_dir() else zip_archive.ZipArchive(path)
    what = foreign.what_it_is(path) if archive is None else foreign.of_names(archive.sizes)
    try:
        return _model(path, _in_folder(path) if archive is None else _in_archive(archive))
    except BilmError as error:
        if what is None:
            raise
        raise WeightsError(f"{path}: is {what}") from error


def _in_folder(path: Path) -> Files:
    """The files directly in a directory."""
    with messages.os_errors_as(DataError, str(path)):
        return {file.name: ModelFile(file) for file in sorted(path.iterdir()) if file.is_file()}


def _in_archive(archive: zip_archive.ZipArchive) -> Files:
    """The files of the only folder that holds options; of the archive itself if there is none."""
    paths = {PurePosixPath(name): name for name in archive.sizes}
    folders = {path.parent for path in paths if path.name.endswith(OPTIONS_NAME) and not _is_litter(path)}
    if len(folders) > 1:
        raise DataError(
            f"{archive.path}: several folders hold an {OPTIONS_NAME}: {_listed(map(str, folders))}"
        )
    folder = folders.pop() if folders else PurePosixPath()
    return {
        path.name: ModelFile(archive.path, archive, name)
        for path, name in paths.items()
        if path.parent == folder
    }


def _is_litter(path: PurePosixPath) -> bool:
    """What systems put beside the files of a user."""
    return path.parts[0] == "__MACOSX" or path.name.startswith(".")


def _of_file(path: Path) -> Distribution:
    """The model that a file of weights or options makes with the other beside it."""
    name = path.name
    if not h5py.is_hdf5(path):
        if (what := foreign.what_it_is(path)) is not None:
            raise WeightsError(f"{path}: is {what}")
        if not name.endswith((*HDF5_ENDS, OPTIONS_NAME)):
            raise WeightsError(
                f"{path}: not a model: expected a folder, a ZIP archive or a file of HDF5 weights"
            )
    files = _in_folder(path.parent)
    if not name.endswith(OPTIONS_NAME):
        return _model(path, files, weights=name)
    beside = name.removesuffix(OPTIONS_NAME)
    wanted = [f"{beside}{end}" for end in ("weights.hdf5", "hdf5") if beside]
    return _model(path, files, weights=next(filter(files.get, wanted), None), options=name)


def _model(path: Path, files: Files, weights: str | None = None, options: str | None = None) -> Distribution:
    """The model that files make; names that are not given are looked for."""
    if weights is None:
        known = [name for name in files if name in _WEIGHTS_NAMES or name.endswith(_WEIGHTS_ENDS)]
        some = known or [name for name in files if name.endswith(HDF5_ENDS)]
        weights = _only(path, some, "HDF5 file of weights", files)
    if options is None:
        beside = options_beside(weights, files)
        some = [name for name in files if name.endswith(OPTIONS_NAME)] if beside is None else [beside]
        options = _only(path, some, OPTIONS_NAME, files)
    vocabulary = next((files[name] for name in _VOCABULARY_NAMES if name in files), None)
    return Distribution(path, files[weights], files[options], vocabulary)


def _only(path: Path, names: Sequence[str], what: str, files: Files) -> str:
    """The only one of names.

    Raises:
        WeightsError: there is none, or several.
    """
    if len(names) != 1:
        problem = f"more than one {what}:" if names else f"no {what} among"
        raise WeightsError(f"{path}: not a model: {problem} {_listed(names or files) or 'its files'}")
    return names[0]


def options_beside(name: str, names: Collection[str]) -> str | None:
    """Which of these names is that of the options of the weights `name`, as bilm and AllenNLP name them."""
    stem = PurePosixPath(name).stem
    wanted = [f"{stem}.options.json", OPTIONS_NAME]
    if stem.endswith("_weights"):
        wanted.insert(0, stem.removesuffix("weights") + OPTIONS_NAME)
    return next((one for one in wanted if one in names), None)


def _listed(names: Iterable[str]) -> str:
    names = sorted(names)
    return ", ".join(map(messages.excerpt, names[:3])) + (", ..." if len(names) > 3 else "")


def _is_zip(path: Path) -> bool:
    with messages.os_errors_as(DataError, str(path)), path.open("rb") as file:
        return file.read(4) in zip_archive.ZIP_MAGIC
