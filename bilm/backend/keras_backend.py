"""Keras on the backend that the user has set, and the module of what that backend does in its own way.

The package imports Keras from here only; the modules beside this one, which it loads, import Keras plainly.
Each of ``on_tensorflow``, ``on_torch`` and ``on_jax`` has

- ``run_lstm``: one layer over a window or over whole rows,
- ``Dropout``: the layer of that name,
- ``gather``: rows of a table by their numbers,
- ``distinct_rows`` and ``encode_in_parts``: each distinct word encoded once, among words of its length,
- ``compiled``: a function for inference, compiled where the backend compiles,
- ``FIXED_SHAPES``: whether it is compiled anew for every shape, so that few shapes should be used,
- ``is_symbolic``: whether a tensor has no values yet (on TensorFlow ``asserted`` adds a condition to it),
- ``is_dense``: whether it has a value in each place, or will have,
- ``require_ready``: whether it is in a mode that models can run in,
- ``n_gpus``: how many GPUs there are.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING

from bilm.backend.settings import LIBRARIES
from bilm.errors import BackendError, OptionsError, ProcessError
from bilm.io.messages import held_back

_LOG = logging.getLogger(__name__)

_CHOICES = "tensorflow, torch or jax"
_WANTED = "set the environment variable KERAS_BACKEND to {} before Keras is imported"

try:
    # No setting prevents what TensorFlow prints while it is imported, about missing GPUs for instance.
    if "keras" not in sys.modules and os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3") >= "3":
        with held_back(shows_on_error=True):
            import keras
    import keras
except (ImportError, ValueError) as error:
    # Keras imports the backend that the user has set, which may not be there.
    raise BackendError(
        f"Keras cannot be imported ({str(error).splitlines()[0]}); {_WANTED.format(_CHOICES)}"
    ) from error
BACKEND: str = keras.config.backend()
"""Which of `bilm.backend.settings.LIBRARIES` it is."""

if BACKEND not in LIBRARIES:
    raise BackendError(f"Keras runs on {BACKEND}, and bilm on {_CHOICES}; {_WANTED.format(_CHOICES)}")
if keras.config.floatx() != "float32":
    _LOG.warning("Keras' floatx %s is ignored: a biLM's weights are float32", keras.config.floatx())

from bilm.backend.lstm_cell import Tensor  # noqa: E402

if TYPE_CHECKING or BACKEND == "tensorflow":
    from bilm.backend import on_tensorflow as backend
elif BACKEND == "torch":
    from bilm.backend import on_torch as backend
else:
    from bilm.backend import on_jax as backend


def require_tensorflow(what: str) -> None:
    """Refuse what is done on TensorFlow only.

    Args:
        what: begins the message.

    Raises:
        BackendError: Keras runs on another backend.
    """
    if BACKEND != "tensorflow":
        raise BackendError(
            f"{what} needs TensorFlow, and Keras runs on {BACKEND}; {_WANTED.format('tensorflow')}"
        )


class HomeProcess:
    """The process that a model was made in, which is the only one it can run in."""

    def __init__(self) -> None:
        self._number = os.getpid()

    def require(self) -> None:
        """Refuse to run in another, where the threads of the backend are missing and it would wait for ever.

        Raises:
            ProcessError: this is a fork of the process.
        """
        if os.getpid() != self._number:
            raise ProcessError(
                "the model was made before this process was forked, and "
                f"{LIBRARIES[BACKEND]} cannot run in a fork: "
                'start processes with multiprocessing.get_context("spawn"), or make the model in each of them'
            )


def on_device(cuda_device: int | None) -> contextlib.AbstractContextManager[object]:
    """Make and run on a device all that is inside.

    Args:
        cuda_device: by AllenNLP's number: -1 for the CPU, or the number of a GPU; None leaves it to the
            backend, which takes the first GPU if there is one.

    Raises:
        OptionsError: there is no such GPU.
    """
    if cuda_device is None:
        return contextlib.nullcontext()
    n_gpus = backend.n_gpus()
    if not -1 <= cuda_device < n_gpus:
        raise OptionsError(
            f"cuda_device is {cuda_device}; {LIBRARIES[BACKEND]} finds {n_gpus} GPUs here, numbered from 0, "
            "and -1 is the CPU"
        )
    cpu = "cpu:0" if BACKEND == "jax" else "cpu"  # PyTorch copies what is on the other; JAX needs a number
    return keras.device(cpu if cuda_device < 0 else f"gpu:{cuda_device}")


__all__ = ["BACKEND", "HomeProcess", "Tensor", "backend", "keras", "on_device", "require_tensorflow"]
