"""Writing a model as it is distributed: a directory of weights, options and vocabulary."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bilm.errors import BilmError, WeightsError
from bilm.io import PathLike
from bilm.io.atomic import replacing_directory
from bilm.io.messages import reason
from bilm.io.outputs import check_directory_output
from bilm.options.file import read_options
from bilm.run_directory.files import vocabulary_files
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.distribution import OPTIONS_NAME, VOCABULARY_NAME, WEIGHTS_NAME, find_distribution
from bilm.weights.hdf5_file import Arrays, write_hdf5
from bilm.weights.names import WeightName

_NAMES = (WEIGHTS_NAME, OPTIONS_NAME, VOCABULARY_NAME)


def check_model_directory(path: PathLike, overwrite: bool, inputs: Iterable[PathLike | None] = ()) -> None:
    """Refuse a directory that cannot be made, or by which something else would be lost.

    Args:
        path: the directory.
        overwrite: whether a model of ours may be there already, with nothing beside it.
        inputs: see `bilm.io.outputs.refuse_inputs`.

    Raises:
        DataError: says why not.
    """
    check_directory_output(path, overwrite, inputs, _is_ours, "a model")


def _is_ours(directory: Path) -> bool:
    """Whether a directory holds nothing but a model, whose options are as we write them, to the byte."""
    if any(
        inner.name not in _NAMES or inner.is_symlink() or not inner.is_file() for inner in directory.iterdir()
    ):
        return False
    file = directory / OPTIONS_NAME
    try:
        options = read_options(file, for_inference=True).options
        return file.read_bytes() == options_text(options.to_inference_json()).encode()
    except (BilmError, OSError):
        return False


def options_text(options: dict[str, Any]) -> str:
    """The options that go with weights, as their file has them."""
    return json.dumps(options, indent=1) + "\n"


def write_model_directory(
    path: Path,
    arrays: Arrays,
    names: Sequence[WeightName],
    options: dict[str, Any],
    vocabulary: Vocabulary,
    overwrite: bool = False,
) -> None:
    """Write ``model.hdf5``, ``options.json`` and ``vocab.txt``, and read them back as a model by its path.

    Args:
        path: of the directory, which is made.
        arrays: by our own names.
        names: of those to write.
        options: those that go with the weights, `Options.to_inference_json`.
        vocabulary: of the model.
        overwrite: see `check_model_directory`.

    Raises:
        BilmError: it cannot be written, or reads back differently; nothing of it is left.
    """
    try:
        with replacing_directory(path) as temporary:
            temporary.mkdir()
            try:
                _write(temporary, arrays, names, options, vocabulary)
            except BilmError as error:
                raise type(error)(str(error).replace(str(temporary), str(path))) from error
            check_model_directory(path, overwrite)  # which took its time
    except OSError as error:
        raise WeightsError(f"{path}: cannot be written: {reason(error)}") from error


def _write(
    directory: Path,
    arrays: Arrays,
    names: Sequence[WeightName],
    options: dict[str, Any],
    vocabulary: Vocabulary,
) -> None:
    write_hdf5(directory / WEIGHTS_NAME, arrays, names, {directory / OPTIONS_NAME: options_text(options)})
    (directory / VOCABULARY_NAME).write_bytes(vocabulary_files(vocabulary)[VOCABULARY_NAME])
    found = find_distribution(directory)
    weights, words = found.arrays(), found.vocabulary()
    are_equal = (
        found.options.to_inference_json() == options
        and weights.keys() == {name.own for name in names}
        and all(np.array_equal(weights[name.own], arrays[name.own]) for name in names)
        and words is not None
        and list(words.words) == list(vocabulary.words)
    )
    if not are_equal:
        raise WeightsError(f"{directory}: read back differently from what was written")
