"""The process around a command: standard streams, signals and exit."""

import importlib.util
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn, TextIO

import click

from bilm.backend.settings import LIBRARIES
from bilm.cli import main
from bilm.errors import BackendError
from bilm.installation import conflict
from bilm.io.messages import message_lines


class StandardStream(io.FileIO):
    """The raw stream behind a standard stream.

    After a failed write nothing more is written: later output, including what is still buffered when the
    interpreter ends, is dropped.

    Args:
        descriptor: 1 or 2; is not closed.
        title: name of the stream in messages.
        is_dispensable: continue without the stream after a failure; otherwise the first failure is raised.
    """

    def __init__(self, descriptor: int, title: str, is_dispensable: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.title = title
        self.is_dispensable = is_dispensable
        self.has_failed = False

    def write(self, data: Any, /) -> int:  # noqa: ANN401
        """Write bytes, or drop them.

        Raises:
            OSError: first failure, with the title as file name.
        """
        if self.has_failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self.has_failed = True
            if not self.is_dispensable:
                raise OSError(error.errno, error.strerror, self.title) from error
            if self.title == "standard output":
                click.echo(f"{self.title}: {error.strerror}; continuing without it", err=True)
            return memoryview(data).nbytes


def guard_standard_streams() -> None:
    """Put `StandardStream` behind standard output and error; open closed streams on the null device.

    No file that is opened later gets the number of a standard stream. Standard error is dispensable in every
    command, standard output only after `go_on_without_output`.
    """
    descriptors = [
        number if getattr(sys, name) is not None else os.open(os.devnull, os.O_RDWR)  # the lowest free number
        for number, name in enumerate(("stdin", "stdout", "stderr"))
    ]
    if sys.stdin is None:
        sys.stdin = open(descriptors[0], encoding="utf-8", closefd=False)
    sys.stdout = _text(StandardStream(descriptors[1], "standard output", False), sys.stdout)
    sys.stderr = _text(StandardStream(descriptors[2], "standard error", True), sys.stderr)


def go_on_without_output() -> None:
    """Let a job that writes files continue if standard output fails, which is reported once."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, StandardStream):
        raw.is_dispensable = True


def _text(raw: StandardStream, before: TextIO | None) -> io.TextIOWrapper:
    """Wrap a raw stream as text in the encoding of `before`; characters it cannot encode are escaped."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if before is None else before.encoding,
        errors="backslashreplace",
        line_buffering=raw.isatty() or raw.is_dispensable,
    )


def import_tensorflow() -> None:
    """Import TensorFlow.

    Keras runs on TensorFlow, whatever KERAS_BACKEND says. TensorFlow allocates GPU memory as needed instead
    of all at once, unless TF_FORCE_GPU_ALLOW_GROWTH is set, and multiplies in float32 instead of TF32, which
    `--precision tf32` enables. On two cores each operation runs on one, unless TF_NUM_INTRAOP_THREADS is set:
    the two directions run at the same time, which is faster than to divide the operations of both.
    """
    chosen = os.environ.get("KERAS_BACKEND", "tensorflow")
    if chosen != "tensorflow" and "keras" not in sys.modules:  # Keras reads it on import
        click.echo(f"KERAS_BACKEND={chosen!r:.80} is ignored: the command runs on TensorFlow", err=True)
    os.environ["KERAS_BACKEND"] = "tensorflow"
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()) == 2:
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
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
    importlib.import_module("bilm.backend.keras_backend")


STOPPED_STATUS = 75
"""Exit status of a job that was stopped and has saved its state: EX_TEMPFAIL, try again."""


class StopRequests:
    """Context manager in which the first SIGTERM, SIGINT or SIGHUP raises KeyboardInterrupt.

    The command then cleans up; later signals do not interrupt that, except that a second SIGINT ends the
    process at once. A thread reads the signals, because a handler in Python runs only after a call into
    TensorFlow has returned. Ignored signals stay ignored, such as SIGHUP under ``nohup``.

    Args:
        saves: whether the command can save its state. SIGUSR1 then stops it too, and after `save_first` no
            signal raises: the command calls this object after every step.
        patience: seconds after which a command that saves is ended if the interrupt does not reach it.

    Attributes:
        received: first signal, or None.
    """

    def __init__(self, saves: bool = True, patience: float = 10.0) -> None:
        self.received: signal.Signals | None = None
        self._signals = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, *([signal.SIGUSR1] if saves else [])]
        self._patience = patience if saves else None
        self._handlers: dict[int, Any] = {}
        self._n_interrupts = 0
        self._saves_first = False
        self._is_leaving = threading.Event()

    def __call__(self) -> bool:
        """Tell whether a stop was requested."""
        return self.received is not None

    @property
    def reason(self) -> str | None:
        """The reason to stop, or None."""
        return None if self.received is None else f"received {self.received.name}"

    def save_first(self) -> None:
        """Stop raising: from now on the caller checks after every step, and saves."""
        self._saves_first = True

    def __enter__(self) -> "StopRequests":
        """Start listening."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        for number in self._signals:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        """Stop listening."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup)
        os.close(self._write)
        self._thread.join()
        os.close(self._read)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number)
        if not self._saves_first and not self._is_leaving.is_set():
            self._is_leaving.set()
            raise KeyboardInterrupt

    def _listen(self) -> None:
        while numbers := os.read(self._read, 1):
            if numbers[0] not in self._handlers:
                continue
            number = signal.Signals(numbers[0])
            self.received = self.received or number
            self._n_interrupts += number is signal.SIGINT
            if self._n_interrupts == 2:
                os._exit(128 + signal.SIGINT)
            if self._saves_first:
                hint = "; Ctrl-C again exits at once" if number is signal.SIGINT else ""
                click.echo(f"received {number.name}: finishing the step and saving{hint}", err=True)
            elif self._patience is not None:
                threading.Thread(target=self._leave, args=[self._patience], daemon=True).start()

    def _leave(self, seconds: float) -> None:
        """End the process if it hangs outside of Python, such as waiting for other workers."""
        if not self._is_leaving.wait(seconds) and not self._saves_first:
            os._exit(STOPPED_STATUS)


def run(args: Sequence[str] | None = None, prog_name: str | None = None) -> NoReturn:
    """Run a command and end the process.

    Args:
        args: arguments; by default the arguments of the process.
        prog_name: name of the program in messages; by default its name in the shell.
    """
    guard_standard_streams()
    if (message := conflict()) is not None and "_BILM_COMPLETE" not in os.environ:  # not in shell completion
        click.echo(f"Warning: {message_lines(message)}", err=True)
    signals = StopRequests(saves=False)
    try:
        with signals:
            main(args=args, prog_name=prog_name)
    finally:
        if signals.received is not None:  # the default action; shells show 128 + number
            signal.signal(signals.received, signal.SIG_DFL)
            os.kill(os.getpid(), signals.received)
    raise AssertionError("click ends the process")
