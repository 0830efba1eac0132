"""The options of a run directory; for what is none, what it is instead."""

from __future__ import annotations

from pathlib import Path

from bilm.errors import CheckpointError, OptionsError
from bilm.foreign import what_it_is
from bilm.options.file import OptionsFile, read_options
from bilm.run_directory.checkpoints import CheckpointIndex


def read_run_options(path: Path) -> OptionsFile:
    """Read the options of a run.

    Args:
        path: of the directory.

    Raises:
        CheckpointError: it is not a run directory; says what it is, as far as that is known.
        OptionsError: its options are invalid, or not those that it was trained with.
    """
    file = path / "options.json"
    if not file.is_file():
        raise CheckpointError(f"{path}: not a run directory: {_what_else(path)}")
    read = read_options(file)
    if read.options.n_tokens_vocab is None:
        if not CheckpointIndex(path).exists():
            raise CheckpointError(
                f"{path}: not a run directory: its options.json goes with dumped weights, and it has no "
                "checkpoints; give it as `model`"
            )
        raise OptionsError(
            f"{file}: n_tokens_vocab: missing; these are options for inference, restore those that the run "
            "was trained with"
        )
    return read


def _what_else(path: Path) -> str:
    if not path.exists():
        return "no such directory"
    what = what_it_is(path)
    if what is not None:
        return f"it is {what}"
    return "no options.json in it" if path.is_dir() else "a file; a model that is a file is given as `model`"
