"""The exceptions of the package: user errors are `BilmError`s.

The command line turns a `BilmError` into ``Error: ...`` and exit status 1; anything else is a bug
and keeps its traceback.
"""

from __future__ import annotations

import os
from numbers import Integral


class BilmError(Exception):
    """Root of the errors caused by input, options or files, never by a defect of the package."""

    __init__ = Exception.__init__  # TensorFlow requires this to raise them unchanged out of a graph


class OptionsError(BilmError, ValueError):
    """Hyper-parameters that are malformed, unknown or contradict each other."""


class ArgumentError(OptionsError):
    """Arguments of a call that are missing, unknown or exclude each other."""


class VocabularyError(BilmError, ValueError):
    """A vocabulary file that cannot be used, or that does not fit a model."""


class DataError(BilmError, ValueError):
    """Text that is missing, unreadable or not what the command expects."""


class WeightsError(BilmError, ValueError):
    """Weight files whose arrays are missing, unexpected or misshapen."""


class BackendError(BilmError, ImportError):
    """Keras runs on a backend that is missing, or that does not do what is asked for."""


class DivergenceError(BilmError, ArithmeticError):
    """Training whose loss or gradient became NaN or infinite."""


class CheckpointError(BilmError, ValueError):
    """A run directory or checkpoint that is absent, damaged or in the way."""


class LostWorkerError(CheckpointError):
    """Another worker of a training run is gone; the checkpoints stay."""


class ProcessError(BilmError, RuntimeError):
    """A process in which a model cannot run, because of the state of TensorFlow."""


def require_positive(**numbers: int) -> None:
    """Raise an `OptionsError` that names the first argument that is not an integer of at least 1."""
    for name, number in numbers.items():
        if not isinstance(number, Integral) or isinstance(number, bool):
            raise OptionsError(f"{name} is {number!r:.80}; it must be an integer")
        if number < 1:
            raise OptionsError(f"{name} is {number}; it must be at least 1")


def require_paths(**paths: object) -> None:
    """Raise an `ArgumentError` that names the first argument that is no path, or an empty one."""
    for name, path in paths.items():
        if not isinstance(path, str | os.PathLike) or path == "":
            raise ArgumentError(f"`{name}` is {path!r:.80}; it must be a path")


def require_flags(**switches: bool | None) -> None:
    """Raise an `ArgumentError` that names the first argument that is neither True nor False nor None."""
    for name, value in switches.items():
        if value is not None and not isinstance(value, bool):
            raise ArgumentError(f"`{name}` is {value!r:.80}; it must be True or False")
