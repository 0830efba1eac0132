"""Arrays <-> model, strictly: every weight of the model is set from an array of its shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bilm.layers.keras_backend import keras
from bilm.weights.files import read_hdf5
from bilm.weights.names import weight_names
from bilm.weights.shapes import check_shapes


def named_weights(model: keras.Model) -> dict[str, keras.Variable]:
    """The variables of a model by our own names: their paths without the model's name."""
    return {variable.path.split("/", 1)[1]: variable for variable in model.weights}


def set_weights(
    variables: Mapping[str, keras.Variable], arrays: Mapping[str, np.ndarray], source: str
) -> None:
    """Assign each array to the variable of its name.

    Raises:
        WeightsError: names every missing, unexpected or misshapen array; nothing is assigned then.
    """
    check_shapes(
        {name: array.shape for name, array in arrays.items()},
        {name: tuple(variable.shape) for name, variable in variables.items()},
        source,
    )
    for name, variable in variables.items():
        variable.assign(arrays[name])


def load_hdf5(model: keras.Model, path: str | Path) -> None:
    """Set a language model's weights from a dump; its softmax stays as it is if the dump has none.

    Raises:
        WeightsError: the file cannot be read, or does not fit the model's options.

    Example:
        >>> import dataclasses
        >>> from bilm import LanguageModel
        >>> from bilm.options.file import load_inference_options
        >>> options = load_inference_options("options.json")
        >>> model = LanguageModel(dataclasses.replace(options, n_tokens_vocab=73))
        >>> load_hdf5(model, "weights.hdf5")
    """
    arrays = read_hdf5(path, weight_names(model.options))
    variables = named_weights(model)
    if not any(name.startswith("softmax/") for name in arrays):
        variables = {
            name: variable for name, variable in variables.items() if not name.startswith("softmax/")
        }
    set_weights(variables, arrays, str(path))
