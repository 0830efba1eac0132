"""A training step and what it needs; bilm-tf's functions of this module's name are in `bilm.runs`."""

import importlib
from typing import Any

# Imported when they are first used: what stands in `bilm.runs` is built on this room.
_OF_BILM_TF = {
    "dump_weights": "bilm.runs.dump_weights.dump_weights",
    "load_options_latest_checkpoint": "bilm.run_directory.directory.load_options_latest_checkpoint",
    "load_vocab": "bilm.vocabulary.vocabulary.load_vocabulary",
    "test": "bilm.runs.test.test",
    "train": "bilm.runs.train.train",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """The functions of bilm-tf's module by their names there; their arguments are those of ours."""
    if name not in _OF_BILM_TF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, function = _OF_BILM_TF[name].rpartition(".")
    return getattr(importlib.import_module(module), function)
