"""Keras on the backend that the user has set, and the module for that backend.

Other packages import Keras from this module only; the modules of this package import it directly.
``on_tensorflow``, ``on_torch`` and ``on_jax`` each define:

- ``run_lstm``: run one layer over a window or over whole rows,
- ``Layer``: the base class of layers that users copy and pickle; ``Dropout``: the dropout layer,
- ``gather``: rows of a table by number; ``max_over_windows``: the maxima over the second of three axes,
- ``distinct_rows`` and ``encode_in_parts``: encode each distinct word once, with others of its length,
- ``compiled``: a function for inference, compiled if the backend compiles,
- ``FIXED_SHAPES``: True if every new shape is compiled, so that callers should use few shapes,
- ``is_symbolic``: True for a tensor without values yet (on TensorFlow ``asserted`` adds a condition to it),
- ``is_dense``: True for a tensor with a value in each place, now or when it runs,
- ``runs_in_fork``: True if models can run in a fork of a process with a model,
- ``n_gpus``: the number of GPUs.
"""

import contextlib
import functools
import logging
import os
from numbers import Integral
from typing import TYPE_CHECKING

from bilm.backend.settings import LIBRARIES, read_at_import
from bilm.errors import BackendError, OptionsError, ProcessError
from bilm.io.messages import held_back, reason

_LOG = logging.getLogger(__name__)

_CHOICES = "tensorflow, torch or jax"
_WANTED = "set the environment variable KERAS_BACKEND to {} before Keras is imported"


# What TensorFlow reads as it is imported, alone; output that no setting silences is held back.
_ADDED = {name: value for name, value in read_at_import().items() if name not in os.environ}
os.environ.update(_ADDED)
_IS_QUIET = os.environ["TF_CPP_MIN_LOG_LEVEL"] >= "3"
try:
    with held_back(shows_on_error=True) if _IS_QUIET else contextlib.nullcontext():
        import keras
except (ImportError, MemoryError, ValueError) as error:
    # Keras imports the backend that the user has set, which may not be installed.
    is_choice = isinstance(error, (ModuleNotFoundError, ValueError))
    remedy = _WANTED.format(_CHOICES) if is_choice else "is memory limited (ulimit -v)?"
    raise BackendError(f"Keras cannot be imported ({reason(error)}); {remedy}") from error
finally:
    for _name in _ADDED:
        del os.environ[_name]
BACKEND: str = keras.config.backend()
"""The backend's name, a key of `bilm.backend.settings.LIBRARIES`."""

if BACKEND not in LIBRARIES:
    raise BackendError(f"Keras runs on {BACKEND}, and bilm on {_CHOICES}; {_WANTED.format(_CHOICES)}")
if keras.config.floatx() != "float32":
    _LOG.warning("Keras' floatx %s is ignored: a biLM's weights are float32", keras.config.floatx())


from bilm.backend.lstm_cell import Tensor as Tensor  # noqa: E402

if TYPE_CHECKING or BACKEND == "tensorflow":
    from bilm.backend import on_tensorflow as backend
elif BACKEND == "torch":
    from bilm.backend import on_torch as backend
else:
    from bilm.backend import on_jax as backend


def require_tensorflow(feature: str) -> None:
    """Require TensorFlow for a feature that no other backend has.

    Args:
        feature: beginning of the message.

    Raises:
        BackendError: Keras runs on another backend.
    """
    if BACKEND != "tensorflow":
        remedy = _WANTED.format("tensorflow")
        raise BackendError(f"{feature} needs TensorFlow, and Keras runs on {BACKEND}; {remedy}")


# --- interfaces that Keras does not promise; `tests/test_private_interfaces.py` tests each -----------------


def is_outermost(layer: keras.layers.Layer) -> bool:
    """Return True while a layer is called by itself, not by a surrounding layer or model."""
    return layer._get_call_context().entry_layer is layer


def infers_shapes() -> bool:
    """Return True while Keras calls layers only to infer the shapes of their results."""
    with keras.SymbolicScope() as scope:
        return scope.original_scope is not None


# --- devices and processes ---------------------------------------------------------------------------------


_home = functools.cache(os.getpid)  # the process that made the first model: a fork inherits the result


def require_ready() -> None:
    """Refuse to make or run a model where it would fail or wait for ever.

    Raises:
        ProcessError: this process was forked from one with a model, and lacks the threads of the backend; or
            TensorFlow does not execute eagerly.
    """
    if os.getpid() != _home() and not backend.runs_in_fork():
        raise ProcessError(
            f"this process was forked from one that had made a model, and {LIBRARIES[BACKEND]} cannot run in "
            'a fork: start processes with multiprocessing.get_context("spawn"), or make the first model in '
            "each fork"
        )
    if BACKEND == "tensorflow":
        backend.require_eager()


def on_device(cuda_device: int | None) -> contextlib.AbstractContextManager[object]:
    """Create and run everything in the block on a device.

    Args:
        cuda_device: -1 for the CPU or the number of a GPU, as in AllenNLP; None leaves the choice to the
            backend, which takes the first GPU if there is one.

    Raises:
        OptionsError: there is no such GPU, or it is not named by a number.
    """
    if cuda_device is None:
        return contextlib.nullcontext()
    n_gpus = backend.n_gpus()
    is_number = isinstance(cuda_device, Integral) and not isinstance(cuda_device, bool)
    if not (is_number and -1 <= cuda_device < n_gpus):
        choices = f"{n_gpus} GPUs here, numbered from 0, and -1 is the CPU"
        raise OptionsError(f"`cuda_device` is {cuda_device!r:.80}; {LIBRARIES[BACKEND]} finds {choices}")
    cpu = "cpu:0" if BACKEND == "jax" else "cpu"  # JAX needs a number
    return keras.device(cpu if cuda_device < 0 else f"gpu:{cuda_device}")
