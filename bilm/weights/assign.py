"""Arrays <-> model, strictly: every weight of the model is set from an array of its shape."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bilm.backend.keras_backend import keras
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
