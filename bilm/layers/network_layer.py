"""The base of the network's layers, whose weights come from files."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bilm.backend.keras_backend import keras


class NetworkLayer(keras.layers.Layer):
    """Layer of the network whose weights may start from arrays.

    Arrays are initial values, not assigned afterwards: Keras also builds layers in graphs and in scopes
    without state, where an assignment is lost.
    """

    def start_from(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set initial values, by names that end in the layer's name and the weight's, before it is built."""
        paths = {name: name.split("/") for name in arrays}
        self._initial = {path[-1]: arrays[name] for name, path in paths.items() if path[-2] == self.name}

    def add_weight(self, *, name: str, initializer: Any, **kwargs: Any) -> keras.Variable:  # noqa: ANN401
        """Create a weight from the array of its name or, without one, with the initializer."""
        if name in getattr(self, "_initial", ()):
            initializer = keras.initializers.Constant(self._initial.pop(name))
        # The network casts by itself; the policy of a model around it would change what is read.
        return super().add_weight(name=name, initializer=initializer, autocast=False, **kwargs)
