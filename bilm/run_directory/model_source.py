"""A model by its path: a run directory, or options and weights as they are handed out.

Every command and call that reads a model finds it here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.errors import ArgumentError, BilmError, CheckpointError, OptionsError
from bilm.io import PathLike
from bilm.options import Options
from bilm.options.file import read_options
from bilm.run_directory.files import MARK_FILE, CheckpointIndex
from bilm.run_directory.records import CALLS_FILE, METRICS_FILE
from bilm.vocabulary.vocabulary import Vocabulary, load_vocabulary
from bilm.weights.distribution import OPTIONS_NAME, Distribution, ModelFile, find_distribution
from bilm.weights.hdf5_file import Arrays
from bilm.weights.names import WeightName
from bilm.weights.stored_model import StoredModel

if TYPE_CHECKING:
    import keras

    from bilm.run_directory.directory import RunDirectory
    from bilm.weights.checkpoint_file import CheckpointFile
    from bilm.weights.transfer import Remapping


class RunModel(StoredModel):
    """A checkpoint of a run, ours or bilm-tf's; it is chosen when it is first needed.

    Args:
        path: of the run directory.
        which: see `RunDirectory.choose`; None for the newest.
        weights: see `RunDirectory.weights`.

    Attributes:
        run: the run directory.
        which: the checkpoint's name.
        weights: see `RunDirectory.weights`.

    Raises:
        BilmError: as `RunDirectory.open`.
    """

    fixed = (*StoredModel.fixed, "share_embedding_softmax")

    def __init__(self, path: Path, which: str | None = None, weights: str | None = None) -> None:
        from bilm.run_directory.directory import RunDirectory  # TensorFlow reads checkpoints

        self.path = path
        self.run: RunDirectory = RunDirectory.open(path)
        self.which = "latest" if which is None else which
        self.weights = weights

    @cached_property
    def checkpoint(self) -> CheckpointFile:
        """The checkpoint.

        Raises:
            BilmError: as `RunDirectory.weights`.
        """
        from bilm.run_directory.state import uses_averages

        checkpoint = self.run.choose(self.which)
        uses_averages(checkpoint, self.weights)
        return checkpoint

    @property
    def options(self) -> Options:
        """The options of the run."""
        return self.run.options

    @property
    def source(self) -> str:
        """The prefix of the checkpoint."""
        return str(self.checkpoint.prefix)

    @property
    def files(self) -> list[Path]:
        """The run directory."""
        return [self.path]

    @property
    def names(self) -> Sequence[WeightName]:
        """The names of all arrays."""
        return self.run.names

    @property
    def n_words(self) -> int | None:
        """The number of words in the vocabulary."""
        return self.options.n_tokens_vocab

    n_predicted = n_words

    @property
    def step(self) -> int:  # type: ignore[override]  # read when it is needed
        """The number of steps behind the checkpoint."""
        return self.checkpoint.step()

    @property
    def note(self) -> str:  # type: ignore[override]
        """Says where averages of the weights are meant."""
        from bilm.run_directory.state import uses_averages

        return ", averaged weights" if uses_averages(self.checkpoint, self.weights) else ""

    def arrays(self) -> Arrays:
        """The weights by our own names, float32.

        Raises:
            BilmError: as `RunDirectory.weights`.
        """
        from bilm.run_directory.state import read_weights

        return read_weights(self.checkpoint, self.names, self.weights)

    def vocabulary(self, max_word_length: int | None = None) -> Vocabulary | None:
        """The run's copy of its vocabulary; None in bilm-tf's directories, which have none.

        Args:
            max_word_length: as for `load_vocabulary`.

        Raises:
            VocabularyError: it cannot be read.
        """
        file = self.run.vocabulary_file
        return load_vocabulary(file, max_word_length) if file.is_file() else None

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Refuse a vocabulary other than the run's.

        Raises:
            VocabularyError: says what differs.
        """
        self.run.check_vocabulary(vocabulary)

    def training_options(self, given: Collection[str] = ()) -> Options:
        """The options to go on training with, see `complete_options`.

        Args:
            given: keys that have a value from elsewhere.

        Raises:
            CheckpointError: the checkpoint is damaged.
        """
        from bilm.run_directory.directory import complete_options

        return complete_options(self.run, self.checkpoint, given) if self.run.missing else self.options

    def require_in_place(self) -> None:
        """Refuse to go on training where the model is.

        Raises:
            CheckpointError: the checkpoint does not exist or is damaged, or a file of somebody else's has
                the name of a record.
            OptionsError: it is not the newest.
        """
        from bilm.run_directory.state import read_state

        newest = self.checkpoint if self.which == "latest" else self.run.latest()
        if self.checkpoint.prefix != newest.prefix:
            raise OptionsError(
                f"`checkpoint` {self.which}: {self.source} is not the newest of {self.path}, whose later "
                "steps would be overwritten; give `save_to`"
            )
        records = [self.path / name for name in (METRICS_FILE, CALLS_FILE)]
        if not (self.path / MARK_FILE).exists() and read_state(self.checkpoint) is None:
            for file in filter(Path.exists, records):  # which bilm-tf does not write
                raise CheckpointError(f"{file}: was not written by the run in this directory; move it away")

    def restore_optimizer(
        self,
        optimizer: keras.optimizers.Optimizer,
        variables: Mapping[str, keras.Variable],
        remapping: Remapping | None = None,
    ) -> None:
        """Set an optimizer to its state in the checkpoint; warns if there is none.

        Args:
            optimizer: built with the variables.
            variables: of the model, by our own names.
            remapping: to the vocabulary of the model, if that is another one.

        Raises:
            BilmError: the state is damaged, or does not fit.
        """
        from bilm.run_directory.state import restore_optimizer

        restore_optimizer(optimizer, variables, self.checkpoint, self.names, remapping)

    def predicting_options(self, needed: Sequence[str] | None = None) -> Options:
        """The options with what the run's ``options.json`` lacks, see `complete_options`.

        Args:
            needed: the keys that matter; None for all.

        Raises:
            CheckpointError: the checkpoint is damaged.
        """
        from bilm.run_directory.directory import complete_options

        return (
            complete_options(self.run, self.checkpoint, needed=needed) if self.run.missing else self.options
        )


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

    def open(self, takes_files: bool = True) -> StoredModel:
        """Find the model.

        Args:
            takes_files: whether there are `options_file` and `weight_file`.

        Raises:
            ArgumentError: the arguments name nothing, or two things.
            BilmError: as `open_model`.
        """
        if "" in (self.model, self.save_dir, self.options_file, self.weight_file):
            raise ArgumentError("the path of the model is empty; is a variable unset?")
        which = None if self.checkpoint is None else str(self.checkpoint)
        ways = [
            self.model is not None,
            self.save_dir is not None,
            (self.options_file, self.weight_file) != (None, None),
        ]
        if sum(ways) == 1:
            if self.model is not None:
                return open_model(self.model, which, self.weights)
            if self.save_dir is not None:
                return RunModel(Path(self.save_dir), which, self.weights)
            is_of_run = (self.checkpoint, self.weights) != (None, None)
            if self.options_file is not None and self.weight_file is not None and not is_of_run:
                options, weights = Path(self.options_file), Path(self.weight_file)
                return Distribution(weights, ModelFile(weights), ModelFile(options))
        names = ", `save_dir`, or `options_file` and `weight_file`" if takes_files else " or `save_dir`"
        raise ArgumentError(
            f"give `model`{names}, and only one of them; `checkpoint` and `weights` are for a run"
        )


def open_model(path: PathLike, checkpoint: str | None = None, weights: str | None = None) -> StoredModel:
    """Find a model.

    Args:
        path: a run directory; a folder or a ZIP archive of options and HDF5 weights, as on vectors.nlpl.eu;
            or one of these two files, with the other beside it.
        checkpoint: which of a run, see `RunDirectory.choose`; None for the newest.
        weights: of a run, see `RunDirectory.weights`.

    Raises:
        ArgumentError: `checkpoint` or `weights` is given for something other than a run.
        BilmError: there is no model, or it is damaged; names what it is where that is another program's.
    """
    path = Path(path)
    if is_run(path):
        return RunModel(path, checkpoint, weights)
    model = find_distribution(path)
    for name, value in (("checkpoint", checkpoint), ("weights", weights)):
        if value is not None:
            raise ArgumentError(f"`{name}` is for a run, and {path} is not a run directory")
    return model


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
