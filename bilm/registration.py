"""Registers our layers with Keras, so that ``import bilm`` is enough to load a model with them.

Keras finds a class by the name that it was registered with, and our modules register their classes when they
are imported. `bilm` imports them only when they are needed, so that its commands answer without TensorFlow.
Therefore, as soon as Keras is imported, each name is registered with a placeholder that imports the class.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = "bilm"
HOMES = {
    "Adagrad": "bilm.training.optimizer",
    "Adam": "bilm.training.adam",
    "CharCNN": "bilm.layers.char_cnn",
    "Elmo": "bilm.embedding.elmo_layer",
    "Encoder": "bilm.models.encoder",
    "LanguageModel": "bilm.models.language_model",
    "Muon": "bilm.training.muon",
    "ProjectedLSTM": "bilm.layers.lstm",
    "ScalarMix": "bilm.layers.scalar_mix",
    "SentenceVectorizer": "bilm.layers.sentence_vectorizer",
    "VocabularySoftmax": "bilm.layers.softmax",
}
"""The module of each class that is registered with Keras."""


class _Deferred:
    """Placeholder for a class until Keras makes an instance."""

    def __init__(self, name: str) -> None:
        self._name = name

    def from_config(self, config: dict[str, Any]) -> object:
        """Import the class, which replaces this one in Keras's table, and make an instance."""
        return getattr(importlib.import_module(HOMES[self._name]), self._name).from_config(config)


class _AfterKeras(MetaPathFinder):
    """Registers our names when Keras has been imported, whoever imports it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Keras's own spec, with a loader that then registers our names; None for other modules."""
        if fullname != "keras":
            return None
        others = (finder for finder in list(sys.meta_path) if finder is not self)
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                _register(module)

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def register_with_keras() -> None:
    """Give Keras our names, at once if it has been imported, else as soon as it is."""
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "saving"):
        _register(keras)
    else:
        sys.meta_path.insert(0, _AfterKeras())


def _register(keras: ModuleType) -> None:
    known = keras.saving.get_custom_objects()
    for name in HOMES:
        known.setdefault(f"{_PACKAGE}>{name}", _Deferred(name))
