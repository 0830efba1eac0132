"""What a model needs of TensorFlow: eager execution, the process that made the model, a device."""

from __future__ import annotations

import contextlib
import os

import tensorflow as tf

from bilm.errors import OptionsError, ProcessError


def require_eager() -> None:
    """Refuse to run in the graphs and sessions of TensorFlow 1; a ``tf.function`` is no such graph.

    Raises:
        ProcessError: TensorFlow does not execute eagerly.
    """
    if not tf.compat.v1.executing_eagerly_outside_functions():
        raise ProcessError(
            "TensorFlow is in its version 1 mode (disable_v2_behavior, or inside a tf.Graph), and bilm needs "
            "eager TensorFlow 2: leave out placeholders and sessions, and call the model with the ids"
        )


class HomeProcess:
    """The process that a model was made in, which is the only one it can run in."""

    def __init__(self) -> None:
        self._number = os.getpid()

    def require(self) -> None:
        """Refuse to run in another, where TensorFlow would hang.

        Raises:
            ProcessError: this is a fork of the process.
        """
        if os.getpid() != self._number:
            raise ProcessError(
                "the model was made before this process was forked, and TensorFlow cannot run in a fork: "
                'start processes with multiprocessing.get_context("spawn"), or make the model in each of them'
            )


class Placement:
    """The device that a model is on, by AllenNLP's number.

    Args:
        cuda_device: -1 for the CPU, or the number of a GPU; None leaves it to TensorFlow, which takes the
            first GPU if there is one.

    Raises:
        OptionsError: there is no such GPU.
    """

    def __init__(self, cuda_device: int | None) -> None:
        self.cuda_device = cuda_device
        n_gpus = len(tf.config.list_logical_devices("GPU")) if cuda_device is not None else 0
        if cuda_device is not None and not -1 <= cuda_device < n_gpus:
            raise OptionsError(
                f"cuda_device is {cuda_device}; TensorFlow finds {n_gpus} GPUs here, numbered from 0, "
                "and -1 is the CPU"
            )

    def scope(self) -> contextlib.AbstractContextManager[object]:
        """What is made and run inside is on the device."""
        if self.cuda_device is None:
            return contextlib.nullcontext()
        return tf.device("/CPU:0" if self.cuda_device < 0 else f"/GPU:{self.cuda_device}")
