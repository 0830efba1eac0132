"""Importing TensorFlow, or another backend of Keras, without the lines that are logged meanwhile."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys

import click

from bilm.backend.names import LIBRARIES
from bilm.errors import BackendError
from bilm.io.shown import quoted
from bilm.io.standard_error import held_back


def import_tensorflow() -> None:
    """Import TensorFlow, holding back what its libraries print to standard error meanwhile.

    They print before any of their settings can take effect, about missing GPUs and
    processor features. If the import fails, everything is shown. Set TF_CPP_MIN_LOG_LEVEL below 3 to see it.

    Keras is set to run on TensorFlow, whatever backend the user has chosen. TensorFlow is set to take a GPU's
    memory as it is needed instead of all at once, unless TF_FORCE_GPU_ALLOW_GROWTH says otherwise, and to
    multiply in float32 instead of TF32, which `--precision tf32` allows.
    """
    _choose_backend()
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3") >= "3" and "tensorflow" not in sys.modules:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        with held_back(shows_on_error=True):
            import tensorflow  # noqa: F401
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)


def import_backend(name: str) -> None:
    """Import Keras on a backend, and nothing of TensorFlow if that is another one.

    Args:
        name: one of `bilm.backend.names.LIBRARIES`.

    Raises:
        BackendError: it is not installed.
    """
    if name == "tensorflow":
        import_tensorflow()
        return
    if importlib.util.find_spec(name) is None:
        raise BackendError(f"{LIBRARIES[name]} is not installed; run pip install 'bilm-tf2[{name}]'")
    os.environ["KERAS_BACKEND"] = name
    importlib.import_module("bilm.backend.keras_backend")


def _choose_backend() -> None:
    """Make Keras, which reads this variable when it is imported, use TensorFlow."""
    before = os.environ.get("KERAS_BACKEND", "tensorflow")
    if before != "tensorflow" and "keras" not in sys.modules:
        click.echo(f"KERAS_BACKEND={quoted(before)} is ignored: the command runs on TensorFlow", err=True)
    os.environ["KERAS_BACKEND"] = "tensorflow"
