"""The process around a command: standard streams, signals and exit."""

import importlib.util
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

import click

from bilm.backend.settings import LIBRARIES, cores_of_an_operation
from bilm.cli import main
from bilm.errors import BackendError
from bilm.io import background


def open_standard_streams() -> None:
    """Open closed standard streams on the null device, so that no file gets the number of one."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
            setattr(sys, name, open(number, "r+" if number else "r", encoding="utf-8", closefd=False))


def drop_output(stream: TextIO) -> None:
    """Send further output of a standard stream, and what is still buffered, to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def choose_tensorflow() -> None:
    """Set what TensorFlow and Keras read as they are imported.

    Keras runs on TensorFlow, whatever KERAS_BACKEND says. TensorFlow allocates GPU memory as needed instead
    of all at once, unless TF_FORCE_GPU_ALLOW_GROWTH is set. TF_NUM_INTRAOP_THREADS, if it is
    set, replaces `cores_of_an_operation`.
    """
    chosen = os.environ.get("KERAS_BACKEND", "tensorflow")
    if chosen != "tensorflow" and "keras" not in sys.modules:  # Keras reads it on import
        click.echo(f"KERAS_BACKEND={chosen!r:.80} is ignored: the command runs on TensorFlow", err=True)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", str(cores_of_an_operation(background.n_cores())))


def import_tensorflow() -> None:
    """Import TensorFlow, see `choose_tensorflow`."""
    choose_tensorflow()
    importlib.import_module("bilm.backend.keras_backend")
    import tensorflow as tf

    tf.config.experimental.enable_tensor_float_32_execution(False)


def import_backend(name: str) -> None:
    """Import Keras on a backend; TensorFlow is imported only for its own backend.

    Args:
        name: one of `bilm.backend.settings.LIBRARIES`.

    Raises:
        BackendError: the library is not installed.
    """
    if name == "tensorflow":
        import_tensorflow()
        return
    if importlib.util.find_spec(name) is None:
        raise BackendError(
            f"{LIBRARIES[name]} is not installed; in a clone of bilm, run pip install '.[{name}]'"
        )
    os.environ["KERAS_BACKEND"] = name
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # it reads the checkpoints of runs
    if name == "jax":  # which multiplies in TF32 on GPUs
        os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "float32")
    importlib.import_module("bilm.backend.keras_backend")


STOPPED_STATUS = 75
"""Exit status of a job that was stopped and has saved its state: EX_TEMPFAIL, try again."""


class StopRequests:
    """Context manager in which the first SIGTERM, SIGINT, SIGHUP or SIGUSR1 raises KeyboardInterrupt.

    The command then cleans up; later signals do not interrupt that, except that a second SIGINT ends the
    process at once. Ignored signals stay ignored, such as SIGHUP under ``nohup``.

    Attributes:
        received: first signal, or None.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._handlers: dict[int, Any] = {}
        self._saves_first = False

    @property
    def reason(self) -> str | None:
        """The reason to stop, or None."""
        return None if self.received is None else f"received {self.received.name}"

    def save_first(self) -> None:
        """Stop raising: from now on the caller checks after every step, and saves."""
        self._saves_first = True

    def __enter__(self) -> "StopRequests":
        """Start listening."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        """Stop listening."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _handle(self, number: int, *_: object) -> None:
        is_first = self.received is None
        self.received = self.received or signal.Signals(number)
        if number == signal.SIGINT:  # the default action needs no Python, which waits for TensorFlow
            signal.signal(number, signal.SIG_DFL)
        if is_first and not self._saves_first:
            raise KeyboardInterrupt


def run(args: Sequence[str] | None = None, prog_name: str | None = None) -> NoReturn:
    """Run a command and end the process.

    Args:
        args: arguments; by default the arguments of the process.
        prog_name: name of the program in messages; by default its name in the shell.
    """
    open_standard_streams()
    signals = StopRequests()
    try:
        with signals:
            main(args=args, prog_name=prog_name)
    finally:
        try:
            sys.stdout.flush()
        except OSError:  # reported before; the interpreter would report it again
            drop_output(sys.stdout)
        if signals.received is not None:  # the default action; shells show 128 + number
            signal.signal(signals.received, signal.SIG_DFL)
            os.kill(os.getpid(), signals.received)
            sys.exit(128 + signals.received)  # the first process of a container is not ended by it
    raise AssertionError("click ends the process")
