"""A model by its path: a run directory, or options and weights as they are handed out.

Every command and call that reads a model finds it here.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.errors import ArgumentError, BilmError
from bilm.io import PathLike
from bilm.options import Options
from bilm.options.file import read_options
from bilm.run_directory.files import CheckpointIndex
from bilm.vocabulary.vocabulary import Vocabulary, load_vocabulary
from bilm.weights.distribution import OPTIONS_NAME, Distribution, find_distribution
from bilm.weights.hdf5_file import Arrays

if TYPE_CHECKING:
    from bilm.run_directory.directory import RunDirectory


@dataclasses.dataclass(frozen=True)
class RunModel:
    """A checkpoint of a run, ours or bilm-tf's.

    Attributes:
        run: the run directory.
        which: see `RunDirectory.choose`.
        weights: see `RunDirectory.weights`.
    """

    run: RunDirectory
    which: str = "latest"
    weights: str | None = None

    @property
    def options(self) -> Options:
        """Of the model."""
        return self.run.options

    @property
    def source(self) -> str:
        """What to call the weights in an error."""
        return str(self.run.path)

    def arrays(self) -> Arrays:
        """The weights by our own names, float32.

        Raises:
            BilmError: as `RunDirectory.weights`.
        """
        return self.run.weights(self.which, self.weights)

    def vocabulary(self, max_word_length: int | None = None) -> Vocabulary | None:
        """The run's copy of its vocabulary; None where there is none, as in bilm-tf's directories.

        Args:
            max_word_length: as for `load_vocabulary`.

        Raises:
            VocabularyError: it cannot be read.
        """
        file = self.run.vocabulary_file
        return load_vocabulary(file, max_word_length) if file.is_file() else None


ModelSource = RunModel | Distribution


@dataclasses.dataclass(frozen=True)
class ModelArguments:
    """The arguments by which a call or a command is given a model to read.

    Attributes:
        model: any of the forms that there are, see `open_model`.
        save_dir: a run directory.
        options_file: the options of dumped weights.
        weight_file: dumped weights.
        checkpoint: which of a run; None for the newest.
        weights: ``"raw"`` or ``"averaged"`` weights of a run; None for the averages where there are some.
    """

    model: PathLike | None = None
    save_dir: PathLike | None = None
    options_file: PathLike | None = None
    weight_file: PathLike | None = None
    checkpoint: str | int | None = None
    weights: str | None = None

    def open(self, takes_files: bool = True) -> ModelSource:
        """Find the model.

        Args:
            takes_files: whether there are `options_file` and `weight_file`.

        Raises:
            ArgumentError: the arguments name nothing, or two things.
            BilmError: as `open_model`.
        """
        files, of_run = (self.options_file, self.weight_file), (self.checkpoint, self.weights)
        which = None if self.checkpoint is None else str(self.checkpoint)
        if self.model is not None and self.save_dir is None and files == (None, None):
            return open_model(self.model, which, self.weights)
        if self.save_dir is not None and self.model is None and files == (None, None):
            return RunModel(_open_run(Path(self.save_dir)), _latest(which), self.weights)
        is_pair = (self.model, self.save_dir, *of_run) == (None,) * 4
        if is_pair and self.options_file is not None and self.weight_file is not None:
            return Distribution.of_files(Path(self.options_file), Path(self.weight_file))
        ways = ", `save_dir`, or `options_file` and `weight_file`" if takes_files else " or `save_dir`"
        raise ArgumentError(
            f"give `model`{ways}, and only one of them; `checkpoint` and `weights` are for a run"
        )


def _open_run(path: Path) -> RunDirectory:
    from bilm.run_directory.directory import (
        RunDirectory,  # reads checkpoints by TensorFlow, HDF5 does without
    )

    return RunDirectory.open(path)


def _latest(checkpoint: str | None) -> str:
    return "latest" if checkpoint is None else checkpoint


def open_model(path: PathLike, checkpoint: str | None = None, weights: str | None = None) -> ModelSource:
    """Find a model.

    Args:
        path: a run directory; a folder or a ZIP archive of options and HDF5 weights, as on vectors.nlpl.eu;
            or one of these two files, with the other beside it.
        checkpoint: which of a run, see `RunDirectory.choose`; None for the newest.
        weights: of a run, see `RunDirectory.weights`.

    Raises:
        ArgumentError: `checkpoint` or `weights` is given for what is not a run.
        BilmError: there is no model, or it is damaged; names what it is where that is another program's.
    """
    path = Path(path)
    if is_run(path):
        return RunModel(_open_run(path), _latest(checkpoint), weights)
    found = find_distribution(path)
    for name, value in (("checkpoint", checkpoint), ("weights", weights)):
        if value is not None:
            raise ArgumentError(f"`{name}` is for a run, and {path} is not a run directory")
    return found


def is_run(path: Path) -> bool:
    """Whether a directory is that of a run: it has a run's options, and checkpoints or nothing else.

    Options that go with dumped weights lack the size of the vocabulary. Where they have it, as often on
    vectors.nlpl.eu, the weights make the difference.
    """
    if not path.is_dir():
        return False
    file, has_checkpoints = path / OPTIONS_NAME, CheckpointIndex(path).exists()
    try:
        are_of_a_run = file.is_file() and read_options(file).options.n_tokens_vocab is not None
    except BilmError:  # which is said when the run is opened
        are_of_a_run = has_checkpoints
    if has_checkpoints and are_of_a_run:
        return True
    return (has_checkpoints or are_of_a_run) and not _is_distribution(path)


def _is_distribution(path: Path) -> bool:
    try:
        find_distribution(path)
    except BilmError:
        return False
    return True
