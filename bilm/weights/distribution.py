"""Stored models, and distributions: the stored models that are not runs.

A distribution consists of options, weights and perhaps a vocabulary, in a folder or an archive. Its files
have the names that vectors.nlpl.eu, simple_elmo, AllenNLP or bilm-tf give them. Weights are HDF5, or the
state dict of an AllenNLP model.
"""

import dataclasses
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path, PurePath, PurePosixPath
from typing import TYPE_CHECKING

import h5py

from bilm.errors import ArgumentError, BilmError, DataError, OptionsError, VocabularyError, WeightsError
from bilm.io import PathLike, foreign, messages, outputs, run_files, shards
from bilm.io.archives import TarArchive, ZipArchive
from bilm.options import Options
from bilm.options.options_file import load_inference_options
from bilm.text.pipeline import ModelSteps
from bilm.vocabulary.vocabulary import Vocabulary, load_vocabulary
from bilm.vocabulary.vocabulary_file import vocabulary_words
from bilm.weights import arrays, hdf5_file
from bilm.weights.names import WeightName, dump_names
from bilm.weights.state_dict import is_state_dict, state_dict_arrays

if TYPE_CHECKING:
    from bilm.weights.checkpoint_file import CheckpointFile

WEIGHTS_NAME, OPTIONS_NAME, VOCABULARY_NAME = "model.hdf5", "options.json", "vocab.txt"
"""File names of a model on vectors.nlpl.eu and in simple_elmo; bilm adds `bilm.io.run_files.TEXT_FILE`."""

_ALLENNLP_FOLDER = "fta"
"""Folder of the files that an AllenNLP configuration names, as ``KEY.options_file``, ``KEY.weight_file``."""
_OPTIONS_ENDS = (OPTIONS_NAME, ".options_file")

_WEIGHTS_NAMES = (WEIGHTS_NAME, "weights.hdf5")
_WEIGHTS_ENDS = ("_weights.hdf5", "_weights.h5")
HDF5_ENDS = (".hdf5", ".h5")
_ALLENNLP_NAMES = ("weights.th", "best.th")
"""State dicts in AllenNLP's archives and training directories; the first is taken."""
VOCABULARY_NAMES = (VOCABULARY_NAME, "vocab.txt.gz")


@dataclasses.dataclass(frozen=True)
class ModelFile:
    """A file of a model, on disk or in an archive; ``str()`` returns its name for errors.

    Attributes:
        path: path of the file, or of the archive.
        archive: the archive; None on disk.
        member: name in the archive.
    """

    path: Path
    archive: ZipArchive | TarArchive | None = None
    member: str = ""

    def __str__(self) -> str:
        return str(self.path) if self.archive is None else f"{self.path}/{self.member}"

    @property
    def n_bytes(self) -> int:
        """Size of the file."""
        return self.path.stat().st_size if self.archive is None else self.archive.sizes[self.member]

    def content(self, failure: type[BilmError]) -> bytes:
        """Return the bytes of the file.

        Raises:
            BilmError: the file cannot be read (of class `failure`), or the archive is damaged (`DataError`).
        """
        if self.archive is not None:
            return self.archive.read(self.member)
        return outputs.read_file(self.path, failure, or_pipe=True)

    @contextmanager
    def _opened(self) -> Iterator[hdf5_file.Stored]:
        """Open weights, by HDF5 name, in the format that their first bytes name."""
        content = None if self.archive is None else io.BytesIO(self.content(WeightsError))
        with foreign.explained(self.path, WeightsError), messages.os_errors_as(WeightsError, str(self)):
            outputs.require_regular(self.path, WeightsError)
            stream = content or self.path.open("rb")
        with stream:
            if is_state_dict(stream):
                yield state_dict_arrays(stream, str(self))
                return
            with hdf5_file.opened_hdf5(str(self), WeightsError, stream) as file:
                yield hdf5_file.stored_arrays(file, str(self))

    def read(self, names: Iterable[WeightName]) -> arrays.Arrays:
        """Read weights by bilm's names, float32, with the softmax if there is one.

        Raises:
            DataError: the archive cannot be read.
            WeightsError: the file cannot be read, or its arrays do not fit `names`.
        """
        with self._opened() as stored:
            return hdf5_file.read_arrays(stored, names, str(self))

    @cached_property
    def shapes(self) -> arrays.Shapes:
        """Shape of every array of a weight file, by its HDF5 name.

        Raises:
            DataError: the archive cannot be read.
            WeightsError: the file cannot be read, or holds something other than weights.
        """
        with self._opened() as stored:
            return {name: array.shape for name, array in stored.items()}


Files = Mapping[str, ModelFile]
"""Files of a folder by name."""


class StoredModel:
    """A model that can be read: a distribution, or a checkpoint of a run, which overrides some properties.

    Args:
        path: path that the user named.
        weight_file: weights.
        options_file: options.
        vocabulary_file: vocabulary, or None.
        text_file: ``text.json``, or None.

    Attributes:
        path: path that the user named.
        files: files and directories on disk that the model is read from.
        dumped: file of the weights; a run has none.
        options_file: options; a run has none here.
        vocabulary_file: vocabulary, or None.
        text_file: ``text.json`` with the steps from raw text to sentences, or None.

    Raises:
        BilmError: a property that is read on first use cannot be read.
    """

    def __init__(
        self,
        path: Path,
        weight_file: ModelFile,
        options_file: ModelFile,
        vocabulary_file: ModelFile | None = None,
        text_file: ModelFile | None = None,
    ) -> None:
        self.path, self.dumped = path, weight_file
        self.options_file, self.vocabulary_file, self.text_file = options_file, vocabulary_file, text_file
        files = (weight_file, options_file, vocabulary_file, text_file)
        self.files = [file.path for file in files if file is not None]

    @property
    def weight_file(self) -> "ModelFile | CheckpointFile":
        """Weights; ``str()`` returns their name in messages."""
        return self.dumped

    @cached_property
    def options(self) -> Options:
        """Options of the network; a warning names unrecognised keys.

        Raises:
            OptionsError: the options are invalid, or another program's.
        """
        file = self.options_file
        return load_inference_options(str(file), None if file.archive is None else file.content(OptionsError))

    @cached_property
    def names(self) -> Sequence[WeightName]:
        """Names of all arrays that the model may have."""
        return dump_names(self.options)

    @cached_property
    def n_predicted(self) -> int | None:
        """Number of words that the softmax predicts; None without a softmax."""
        return (self.dumped.shapes.get("softmax/b") or (None,))[0]

    @property
    def step(self) -> int | None:
        """Training steps of the weights; None if unknown."""
        return None

    @property
    def source(self) -> str:
        """Name of the weights in messages."""
        return str(self.weight_file)

    def arrays(self) -> arrays.Arrays:
        """Return the weights by bilm's names, float32, with the softmax if there is one.

        Raises:
            BilmError: the weights cannot be read or do not fit the options.
        """
        return self.weight_file.read(self.names)

    def predicting_options(self) -> Options:
        """Return the options of the whole language model; the arrays supply values that a dump lacks.

        Raises:
            WeightsError: there is no softmax.
        """
        if (n_words := self.n_predicted) is None:
            problem = "has no softmax, without which it gives vectors and no probabilities"
            remedy = "give the run that it was dumped from, or dump it with `with_softmax`"
            raise WeightsError(f"{self.source}: {problem}; {remedy}")
        is_tied = "softmax/W" not in self.dumped.shapes
        return dataclasses.replace(self.options, n_tokens_vocab=n_words, share_embedding_softmax=is_tied)

    @cached_property
    def steps(self) -> ModelSteps:
        """Steps from raw text to sentences as those of the training text, if the model has a ``text.json``.

        Raises:
            DataError: the file cannot be read.
        """
        file = self.text_file
        return ModelSteps(None if file is None else file.content(DataError), str(file or self.path))

    def vocabulary(self, max_word_length: int | None = None, validate: bool = True) -> Vocabulary | None:
        """Return the vocabulary stored with the model; None without one.

        Args:
            max_word_length: see `load_vocabulary`.
            validate: refuse or warn as `Vocabulary` with `validate_file`.

        Raises:
            VocabularyError: the vocabulary cannot be read or is not valid.
        """
        if (file := self.vocabulary_file) is None:
            return None
        words = vocabulary_words(file.content(VocabularyError), str(file), validate)
        return load_vocabulary(words, max_word_length)

    def require_vocabulary(
        self, file: PathLike | None, argument: str = "vocab_file", with_characters: bool = True
    ) -> Vocabulary:
        """Return the vocabulary in a file or, without a file, the model's own.

        Args:
            file: vocabulary file, or None.
            argument: name of the argument for `file`, for the error.
            with_characters: load the characters of the words too, if the model has a character CNN.

        Raises:
            ArgumentError: there is neither a file nor a stored vocabulary.
            VocabularyError: the vocabulary cannot be read or is not valid.
        """
        cnn = self.options.char_cnn if with_characters else None
        width = None if cnn is None else cnn.max_characters_per_token
        vocabulary = self.vocabulary(width) if file is None else load_vocabulary(file, width)
        if vocabulary is None:
            raise ArgumentError(f"{self.path} holds no vocabulary; give `{argument}`")
        vocabulary.unicode_form = self.options.unicode_form
        return vocabulary

    def own_vocabulary(
        self, file: PathLike | None, n_words: int | None = None, with_characters: bool = True
    ) -> Vocabulary:
        """Return the vocabulary as `require_vocabulary`, after a check that it is the model's.

        Args:
            file: vocabulary file, or None.
            n_words: number of words that the model needs; None if its arrays do not depend on it.
            with_characters: see `require_vocabulary`.

        Raises:
            ArgumentError: there is neither a file nor a stored vocabulary.
            VocabularyError: the vocabulary cannot be read, or is another model's.
        """
        vocabulary = self.require_vocabulary(file, with_characters=with_characters)
        self.check_vocabulary(vocabulary)
        require_size(vocabulary, n_words, self.source)
        return vocabulary

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Check that a vocabulary is the model's; a distribution only has the size of its word embedding.

        Raises:
            VocabularyError: the vocabularies differ.
        """
        require_size(vocabulary, (self.dumped.shapes.get("embedding") or (None,))[0], self.source)


def require_size(vocabulary: Vocabulary, n_words: int | None, source: str) -> None:
    """Check that a vocabulary has the size that a model needs.

    Args:
        vocabulary: the vocabulary.
        n_words: vocabulary size of the model; None if its arrays do not depend on it.
        source: name of the model in errors.

    Raises:
        VocabularyError: the sizes differ.
    """
    if n_words is not None and vocabulary.size != n_words:
        problem = f"the vocabulary has {vocabulary.size} words, the model in {source} {n_words}"
        raise VocabularyError(f"{problem}; give the vocabulary that the model was trained with")


def find_distribution(path: Path) -> StoredModel:
    """Find the files of a model.

    Args:
        path: a folder or an archive, or a file of weights or options with the other file beside it.

    Raises:
        BilmError: the path is not a model; if it is another program's, the message says what it is.
    """
    archive = _archive(path)
    if archive is None and not path.is_dir():
        return _of_file(path)
    try:
        if archive is None:
            return _model(path, _in_folder(path))
        files, around = _in_archive(archive), _in_folder(path.parent)
        if not any(name.endswith(_OPTIONS_ENDS) for name in files):
            files |= {name: around[name] for name in [options_of(path.name, around)] if name}
        return _model(path, files)
    except BilmError as error:
        kind = foreign.what_it_is(path) or run_files.corpus_at(path)
        if archive is not None:
            kind = foreign.describe_names(archive.sizes)
        if kind is None:
            raise
        raise WeightsError(f"{path}: is {kind}") from error


def find_weights(path: PathLike) -> ModelFile:
    """Return a file of weights, or the weights in an archive.

    Raises:
        BilmError: the path is an archive that cannot be read, or has no weights.
    """
    archive = _archive(path := Path(path))
    if archive is None:
        return ModelFile(path)
    files = _in_archive(archive)
    return files[_weights_among(path, files)]


def _archive(path: Path) -> ZipArchive | TarArchive | None:
    """Open an archive; return None for another file, such as a state dict, which PyTorch zips."""
    if not path.is_file():
        return None
    with messages.os_errors_as(DataError, str(path)), path.open("rb") as file:
        head = file.read(262)
        file.seek(0)
        if head[:4] in foreign.ZIP_MAGIC and not is_state_dict(file):
            return ZipArchive(path)
    is_tar = head[257:] == b"ustar" or path.name.endswith(foreign.TAR_ENDINGS)
    return TarArchive(path) if is_tar else None


def _in_folder(path: Path) -> Files:
    """List the files of a directory, as `_folder_of` defines it."""
    with messages.os_errors_as(DataError, str(path)):
        files = sorted([*path.iterdir(), *path.glob(f"{_ALLENNLP_FOLDER}/*")])
        return {file.name: ModelFile(file) for file in files if file.is_file() and not _is_hidden(file)}


def _is_hidden(path: PurePath) -> bool:
    """Return whether a name begins with a dot, as of the files that macOS adds."""
    return path.name.startswith(".")


def _folder_of(path: PurePosixPath) -> PurePosixPath:
    """Return the folder of a file; files of AllenNLP's folder ``fta`` belong to the one around it."""
    return path.parent.parent if path.parent.name == _ALLENNLP_FOLDER else path.parent


def _in_archive(archive: ZipArchive | TarArchive) -> dict[str, ModelFile]:
    """List the files of the only folder with options; without such a folder, the archive's own files."""
    paths = {path: name for name in archive.sizes if not _is_hidden(path := PurePosixPath(name))}
    options = [path for path in paths if path.name.endswith(_OPTIONS_ENDS)]
    folders = {*map(_folder_of, options)}
    if len(folders) > 1:
        names = shards.name_files(sorted(map(str, folders)))
        raise DataError(f"{archive.path}: several folders hold an {OPTIONS_NAME}: {names}")
    folder = folders.pop() if folders else PurePosixPath()
    inside = [path for path in paths if _folder_of(path) == folder]
    return {path.name: ModelFile(archive.path, archive, paths[path]) for path in inside}


def _of_file(path: Path) -> StoredModel:
    """Make the model of a file of weights or options and the other file beside it."""
    name, is_weights = path.name, False
    if path.is_file():
        with path.open("rb") as stream:
            is_weights = h5py.is_hdf5(path) or is_state_dict(stream)
    if not is_weights:
        if kind := foreign.what_it_is(path) or run_files.own_output(path):
            raise WeightsError(f"{path}: is {kind}")
        outputs.require_regular(path, WeightsError)
        if not name.endswith((*HDF5_ENDS, *_OPTIONS_ENDS)):
            hint = f"; give the run {path.parent}" if run_files.is_of_run(path) else ""
            message = "not a model: expected a folder, an archive or a file of weights"
            raise WeightsError(f"{path}: {message}{hint}")
    files = {**_in_folder(path.parent), name: ModelFile(path)}
    if not name.endswith(_OPTIONS_ENDS):
        return _model(path, files, weights=name)
    beside = name.removesuffix(OPTIONS_NAME).removesuffix("options_file")
    candidates = [f"{beside}{end}" for end in ("weights.hdf5", "hdf5", "weight_file") if beside]
    return _model(path, files, weights=next(filter(files.get, candidates), None), options=name)


def _model(path: Path, files: Files, weights: str | None = None, options: str | None = None) -> StoredModel:
    """Make the model of some files, searching for the weights or options if their name is None."""
    weights = _weights_among(path, files) if weights is None else weights
    if options is None:
        beside = options_of(weights, files)
        candidates = [name for name in files if name.endswith(_OPTIONS_ENDS)] if beside is None else [beside]
        options = _only(path, candidates, OPTIONS_NAME, files)
    vocabulary = next((files[name] for name in VOCABULARY_NAMES if name in files), None)
    return StoredModel(path, files[weights], files[options], vocabulary, files.get(run_files.TEXT_FILE))


def _weights_among(path: Path, files: Files) -> str:
    """Return the name of the only weights.

    Raises:
        WeightsError: there are none or several.
    """
    usual = [name for name in files if name in _WEIGHTS_NAMES or name.endswith(_WEIGHTS_ENDS)]
    usual = [name for name in usual if "_softmax_" not in name]  # which AllenNLP published apart
    of_allennlp = [name for name in _ALLENNLP_NAMES if name in files][:1]
    of_allennlp = of_allennlp or [name for name in files if name.endswith(".weight_file")]
    candidates = usual or [name for name in files if name.endswith(HDF5_ENDS)] or of_allennlp
    return _only(path, candidates, "file of weights", files)


def _only(path: Path, names: Sequence[str], kind: str, files: Files) -> str:
    """Return the only name of its kind.

    Raises:
        WeightsError: there are no names or several.
    """
    if len(names) != 1:
        problem = f"more than one {kind}; give one of" if names else f"no {kind}; found"
        raise WeightsError(f"{path}: not a model: {problem} {shards.name_files(sorted(names or files))}")
    return names[0]


def options_of(name: str, names: Collection[str]) -> str | None:
    """Return the name that bilm or AllenNLP gives the options of the weights `name`; None if missing."""
    stem = PurePosixPath(name).stem
    candidates = [f"{stem}.options.json", f"{stem}.options_file", OPTIONS_NAME]
    if stem.endswith("_weights"):
        candidates.insert(0, stem.removesuffix("weights") + OPTIONS_NAME)
    return next((candidate for candidate in candidates if candidate in names), None)
