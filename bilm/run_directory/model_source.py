"""Opening of a model by its path: a run directory, or distributed options and weights.

All commands and calls that read a model use this module.
"""

import dataclasses
from contextlib import suppress
from pathlib import Path

from bilm.errors import ArgumentError, BilmError, checked, require_paths
from bilm.io import PathLike
from bilm.run_directory.files import is_run
from bilm.weights.distribution import ModelFile, StoredModel, find_distribution, find_weights


@dataclasses.dataclass(frozen=True)
class ModelArguments:
    """Arguments of a call or command that name a model to read.

    Attributes:
        model: path of a model in any form, see `open_model`.
        save_dir: run directory.
        options_file: options of dumped weights.
        weight_file: dumped weights.
        checkpoint: checkpoint of a run; None for the newest.

    Raises:
        ArgumentError: one that is a path is something else.
    """

    model: PathLike | None = None
    save_dir: PathLike | None = None
    options_file: PathLike | None = None
    weight_file: PathLike | None = None
    checkpoint: str | int | None = None

    def __post_init__(self) -> None:
        require_paths(**{name: value for name, value in vars(self).items() if name != "checkpoint"})

    @property
    def inputs(self) -> list[PathLike | None]:
        """Files and run directories that are read, for `bilm.io.outputs.refuse_inputs`."""
        files = [self.model, self.save_dir, self.options_file, self.weight_file]
        if self.model is not None:
            with suppress(BilmError):  # a run; or an invalid path, reported when it is opened
                files += find_distribution(Path(self.model)).files
        return files

    def open(self) -> StoredModel:
        """Open the model.

        Raises:
            ArgumentError: the arguments name no model, or several.
            BilmError: as `open_model`.
        """
        n_missing = [self.model, self.save_dir, self.options_file or self.weight_file].count(None)
        if n_missing == 2:
            if self.save_dir is not None:
                return _open_run(Path(self.save_dir), self.checkpoint)
            given = [path for path in (self.model, self.options_file, self.weight_file) if path is not None]
            if len(given) == 1:  # of options and weights, the others are beside them
                return open_model(given[0], self.checkpoint)
            if self.checkpoint is None:
                options, weights = ModelFile(Path(given[0])), find_weights(given[1])
                return StoredModel(weights.path, weights, options)
        if n_missing == 3:
            raise ArgumentError("`model` is missing: a run directory, or a model's weights")
        raise ArgumentError("give one `model`; `checkpoint` is for a run, `options_file` for a `weight_file`")


@checked
def open_model(model: PathLike, checkpoint: str | int | None = None) -> StoredModel:
    """Open a model.

    Args:
        model: run directory; folder or archive of options and weights, as on vectors.nlpl.eu; or one
            of these two files, with the other beside it.
        checkpoint: checkpoint of a run, see `RunDirectory.choose`; None for the newest.

    Raises:
        ArgumentError: `checkpoint` is set, but the model is not a run.
        BilmError: there is no model, or it is damaged, or it belongs to another program.
    """
    path = Path(model)
    if is_run(path):
        return _open_run(path, checkpoint)
    found = find_distribution(path)
    if checkpoint is not None:
        raise ArgumentError(f"`checkpoint` is for a run, and {path} is not a run directory")
    return found


def _open_run(path: Path, checkpoint: str | int | None) -> StoredModel:
    from bilm.run_directory.directory import RunModel  # TensorFlow reads checkpoints

    return RunModel(path, checkpoint)
