"""Opening of a model by its path: a run directory, or distributed options and weights.

All commands and calls that read a model use this module.
"""

import dataclasses
from contextlib import suppress
from pathlib import Path

from bilm.errors import ArgumentError, BilmError, require_kind
from bilm.io import PathLike
from bilm.run_directory.files import is_run
from bilm.weights.distribution import ModelFile, StoredModel, find_distribution, find_weights


@dataclasses.dataclass(frozen=True)
class ModelArguments:
    """Arguments of a call or command that name a model to read.

    Attributes:
        model: path of a model: a run directory; a folder or archive of options and weights, as on
            vectors.nlpl.eu; or one of these two files, with the other beside it.
        save_dir: run directory.
        options_file: options of dumped weights.
        weight_file: dumped weights.
        checkpoint: checkpoint of a run, see `RunDirectory.choose`; None for the newest.

    Raises:
        ArgumentError: one that is a path is something else.
    """

    model: PathLike | None = None
    save_dir: PathLike | None = None
    options_file: PathLike | None = None
    weight_file: PathLike | None = None
    checkpoint: PathLike | int | None = None

    def __post_init__(self) -> None:
        for name in ("model", "save_dir", "options_file", "weight_file"):
            require_kind(name, getattr(self, name), PathLike | None)

    @property
    def inputs(self) -> list[PathLike | None]:
        """Files and run directories that are read, for `bilm.io.outputs.refuse_inputs`."""
        files = [self.model, self.save_dir, self.options_file, self.weight_file]
        if path := self.model or self.weight_file or self.options_file:
            with suppress(BilmError):  # a run; or an invalid path, reported when it is opened
                files += find_distribution(Path(path)).files
        return files

    def open(self) -> StoredModel:
        """Open the model.

        Raises:
            ArgumentError: the arguments name no model, or several; or `checkpoint` is set, but the model is
                not a run.
            BilmError: there is no model, or it is damaged, or it belongs to another program.
        """
        n_missing = [self.model, self.save_dir, self.options_file or self.weight_file].count(None)
        if n_missing == 3:
            raise ArgumentError("give `model`, a run directory or a model's weights")
        both = self.options_file is not None and self.weight_file is not None
        if n_missing < 2 or (both and self.checkpoint is not None):
            raise ArgumentError(
                "give one model only, and `checkpoint` only for a run; `options_file` goes with `weight_file`"
            )
        if self.options_file is not None and self.weight_file is not None:
            options, weights = ModelFile(Path(self.options_file)), find_weights(self.weight_file)
            return StoredModel(weights.path, weights, options)
        # Of options and weights, the others are beside them.
        path = Path(self.save_dir or self.model or self.options_file or self.weight_file or "")
        if self.save_dir is not None or is_run(path):
            from bilm.run_directory.directory import RunModel  # TensorFlow reads checkpoints

            return RunModel(path, self.checkpoint)
        found = find_distribution(path)
        if self.checkpoint is not None:
            raise ArgumentError(f"`checkpoint` is for a run, and {path} is not a run directory")
        return found
