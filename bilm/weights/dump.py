"""Dumped weights and the options beside them: where they go."""

import json
from dataclasses import dataclass
from pathlib import Path

from bilm.errors import WeightsError
from bilm.io import outputs, run_files
from bilm.options import Options
from bilm.weights.distribution import HDF5_ENDS, OPTIONS_NAME, options_of


@dataclass(frozen=True)
class DumpResult:
    """Result of a dump.

    Attributes:
        weight_file: HDF5 file with the weights.
        options_file: options of the weights.
        checkpoint: prefix of the checkpoint that was read, the weight file, or the name of the `Elmo` layer.
        n_arrays: number of arrays written.
        n_values: number of values in these arrays.
        vocabulary_file: vocabulary, if a directory was written.
        card_file: model card, if a directory was written.
    """

    weight_file: Path
    options_file: Path
    checkpoint: str
    n_arrays: int
    n_values: int
    vocabulary_file: Path | None = None
    card_file: Path | None = None


def options_beside(weights: Path, options: Options) -> tuple[Path, dict[Path, str]]:
    """Return the file for the options of dumped weights, and its text by path, empty if it has this text.

    Raises:
        DataError: a path is not a file.
        WeightsError: the weights have the name of the options.
    """
    text = options_text(options)
    outputs.require_kind(weights, outputs.FILE)
    options_file = _options_file(weights, text)
    if outputs.require_kind(options_file, outputs.FILE) == weights.resolve():
        raise WeightsError(f"{weights}: is the name of the options file; give the weights another name")
    return options_file, {} if _holds(options_file, text) else {options_file: text}


def options_text(options: Options) -> str:
    """Format the options as in the file that goes with dumped weights."""
    return json.dumps(options.to_inference_json(), indent=1) + "\n"


def _options_file(weights: Path, text: str) -> Path:
    """Choose the file for the options of weights: one that is read with them, and not another model's."""
    names = {path.name for path in weights.parent.glob("*")}
    name = options_of(weights.name, names) or OPTIONS_NAME
    has_others = name in names and any(
        other.endswith((*HDF5_ENDS, ".th")) for other in names - {weights.name}
    )
    is_theirs = has_others and not _holds(weights.with_name(name), text)
    if name == OPTIONS_NAME and (is_theirs or run_files.own_output(weights.parent)):
        return weights.with_suffix(".options.json")
    return weights.with_name(name)


def _holds(file: Path, text: str) -> bool:
    """Return true if a file has exactly this text, as after another dump of the same model."""
    try:
        return file.read_bytes() == text.encode()
    except OSError:
        return False
