"""Where a model is: the process that made it, and its device."""

from __future__ import annotations

import contextlib
import os

from bilm.backend.current import backend
from bilm.backend.keras_backend import BACKEND
from bilm.backend.names import LIBRARIES
from bilm.errors import OptionsError, ProcessError


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


class Placement:
    """The device that a model is on, by AllenNLP's number.

    Args:
        cuda_device: -1 for the CPU, or the number of a GPU; None leaves it to the backend, which takes the
            first GPU if there is one.

    Raises:
        OptionsError: there is no such GPU.
    """

    def __init__(self, cuda_device: int | None) -> None:
        self.cuda_device = cuda_device
        n_gpus = backend.n_gpus() if cuda_device is not None else 0
        if cuda_device is not None and not -1 <= cuda_device < n_gpus:
            raise OptionsError(
                f"cuda_device is {cuda_device}; {LIBRARIES[BACKEND]} finds {n_gpus} GPUs here, numbered "
                "from 0, and -1 is the CPU"
            )

    def scope(self) -> contextlib.AbstractContextManager[object]:
        """What is made and run inside is on the device."""
        return contextlib.nullcontext() if self.cuda_device is None else backend.device(self.cuda_device)
