"""Stopping a long job by signals."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

import click

STOPPED_STATUS = 75
"""Exit status of a job that was told to stop and saved what it had: EX_TEMPFAIL, try again."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)
_SECONDS_TO_LEAVE = 10.0


class StopRequests:
    """While entered, SIGTERM, SIGINT, SIGUSR1 and SIGHUP request a stop.

    Until `save_first` a signal raises KeyboardInterrupt, as there is nothing to save yet. A second
    SIGINT ends the process at once, whatever it is doing: the signals' numbers are read in a thread of
    their own, since a handler in Python waits for the step to end. SIGHUP stays ignored if it was,
    as under ``nohup``.

    Attributes:
        reason: why to stop, or None.
    """

    def __init__(self) -> None:
        self.reason: str | None = None
        self._n_interrupts = 0
        self._handlers: dict[signal.Signals, Any] = {}
        self._saves_first = False
        self._is_leaving = threading.Event()

    def __call__(self) -> bool:
        """Whether a stop was requested."""
        return self.reason is not None

    def save_first(self) -> None:
        """Raise nothing from now on: the caller asks after every step, and saves."""
        self._saves_first = True

    def __enter__(self) -> StopRequests:
        """Start listening."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        self._handlers = {number: signal.signal(number, self._handle) for number in _heeded()}
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
        self._note(number)
        if not self._saves_first and not self._is_leaving.is_set():
            self._is_leaving.set()
            raise KeyboardInterrupt

    def _note(self, number: int) -> None:
        self.reason = self.reason or f"received {signal.Signals(number).name}"

    def _listen(self) -> None:
        while number := os.read(self._read, 1):
            if number[0] not in self._handlers:
                continue
            self._note(number[0])
            is_interrupt = number[0] == signal.SIGINT
            self._n_interrupts += is_interrupt
            if self._n_interrupts == 2:
                os._exit(128 + signal.SIGINT)
            if self._saves_first:
                hint = "; Ctrl-C again exits at once" if is_interrupt else ""
                name = signal.Signals(number[0]).name
                click.echo(f"received {name}: finishing the step and saving{hint}", err=True)
            else:
                threading.Thread(target=self._leave, daemon=True).start()

    def _leave(self) -> None:
        """End the process if it is in a call that runs no Python code, such as waiting for other workers."""
        if not self._is_leaving.wait(_SECONDS_TO_LEAVE) and not self._saves_first:
            os._exit(STOPPED_STATUS)


def _heeded() -> list[signal.Signals]:
    """The signals that are not to stay ignored."""
    return [s for s in _SIGNALS if s != signal.SIGHUP or signal.getsignal(s) is not signal.SIG_IGN]
