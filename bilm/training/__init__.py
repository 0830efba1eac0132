"""Training steps: losses, gradients and optimizers.

The functions of bilm-tf's module ``bilm.training`` are importable from here, too.
"""

import importlib
from typing import Any

# Imported on first use, because `bilm.runs` imports this package.
_OF_BILM_TF = {
    "dump_weights": "bilm.runs.dump_weights.dump_weights",
    "load_options_latest_checkpoint": "bilm.run_directory.directory.load_options_latest_checkpoint",
    "load_vocab": "bilm.vocabulary.vocabulary.load_vocabulary",
    "test": "bilm.runs.bilm_tf.test",
    "train": "bilm.runs.bilm_tf.train",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a function by its name in bilm-tf's module."""
    if name not in _OF_BILM_TF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name != "load_vocab":  # before TensorFlow, as in `bilm`
        keras_backend = importlib.import_module("bilm.backend.keras_backend")
        if name in ("train", "test"):
            keras_backend.require_tensorflow(f"bilm.training.{name}")
    module, _, function = _OF_BILM_TF[name].rpartition(".")
    return getattr(importlib.import_module(module), function)
