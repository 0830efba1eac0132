"""Train, test and use ELMo's bidirectional language models on TensorFlow 2 and Keras 3.

`prepare`, `train`, `restart`, `test` and `dump_weights` do the same as the commands of these names.
`ElmoEmbedder` turns sentences into vectors; `Elmo` is a Keras layer. ``docs/python-api.md`` describes all
public names, which ``__init__.pyi`` lists.
"""

import ast
import importlib
from pathlib import Path
from typing import Any

from bilm import errors as errors

__version__ = "0.2.0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {
    alias.name: node.module
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom) and node.module is not None
    for alias in node.names
}
_WITHOUT_KERAS = ("bilm.backend.", "bilm.data.", "bilm.options", "bilm.text.", "bilm.vocabulary.")
_ON_TENSORFLOW = (
    *("bilm.embedding.prediction", "bilm.layers.sentence_vectorizer", "bilm.models.language_model"),
    *("bilm.runs.test", "bilm.runs.train"),
)
__all__ = ["__version__", *_HOMES]


def __dir__() -> list[str]:
    """List the public names, also those that have not been imported."""
    return sorted(__all__)


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name when it is first used, so that ``bilm --help`` needs no TensorFlow."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _HOMES[name]
    if not module.startswith(_WITHOUT_KERAS):  # must precede TensorFlow, which imports Keras
        keras_backend = importlib.import_module("bilm.backend.keras_backend")
        if module.startswith(_ON_TENSORFLOW):
            keras_backend.require_tensorflow(f"bilm.{name}")
    return getattr(importlib.import_module(module), name)
