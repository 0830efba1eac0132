"""Exceptions of the package, and checks of simple arguments.

Errors of the user are `BilmError`s, which the command line turns into ``Error: ...`` and exit status 1. Any
other exception is a bug and keeps its traceback.
"""

import os
from numbers import Integral


class BilmError(Exception):
    """Base class of errors caused by input, options or files, never by a bug in the package."""

    __init__ = Exception.__init__  # lets TensorFlow raise them unchanged out of a graph


class OptionsError(BilmError, ValueError):
    """Hyper-parameters are malformed or unknown, or contradict each other."""


class ArgumentError(OptionsError):
    """Arguments of a call are missing or unknown, or exclude each other."""


class VocabularyError(BilmError, ValueError):
    """A vocabulary file cannot be used, or does not fit the model."""


class DataError(BilmError, ValueError):
    """A text, or another file, is missing or unreadable, has the wrong form, or cannot be written."""


class WeightsError(BilmError, ValueError):
    """A weight file cannot be read, or its arrays are missing, unexpected or misshapen."""


class BackendError(BilmError, ImportError):
    """The Keras backend is not installed, or does not support the operation."""


class DivergenceError(BilmError, ArithmeticError):
    """The loss or the gradient became NaN or infinite during training."""


class CheckpointError(BilmError, ValueError):
    """A run directory or checkpoint is missing, damaged or in the way."""


class LostWorkerError(CheckpointError):
    """Another worker of a training run was lost; the checkpoints remain."""


class ProcessError(BilmError, RuntimeError):
    """TensorFlow's state in this process does not allow a model to run."""


def require_positive(**numbers: int) -> None:
    """Raise an `OptionsError` for the first argument that is not an integer of at least 1."""
    for name, number in numbers.items():
        if not isinstance(number, Integral) or isinstance(number, bool):
            raise OptionsError(f"{name} is {number!r:.80}; it must be an integer")
        if number < 1:
            raise OptionsError(f"{name} is {number}; it must be at least 1")


def require_paths(**paths: object) -> None:
    """Raise an `ArgumentError` for the first argument that is not a path, or is empty."""
    for name, path in paths.items():
        if not isinstance(path, str | os.PathLike) or path == "":
            raise ArgumentError(f"`{name}` is {path!r:.80}; it must be a path")


def require_flags(**switches: bool | None) -> None:
    """Raise an `ArgumentError` for the first argument that is not True, False or None."""
    for name, value in switches.items():
        if value is not None and not isinstance(value, bool):
            raise ArgumentError(f"`{name}` is {value!r:.80}; it must be True or False")
