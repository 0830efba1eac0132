"""The exceptions of the package: user errors are `BilmError`s.

The command line turns a `BilmError` into ``Error: ...`` and exit status 1; anything else is a bug
and keeps its traceback.
"""


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
    """Raise an `OptionsError` that names the first number below 1."""
    for name, number in numbers.items():
        if number < 1:
            raise OptionsError(f"{name} is {number}; it must be at least 1")
