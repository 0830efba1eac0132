"""Requests to stop a long job: signals and the clock."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType

import click

STOPPED_STATUS = 75
"""Exit status of a job that was told to stop and saved what it had: EX_TEMPFAIL, try again."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class StopRequests:
    """While entered, SIGTERM, SIGINT, SIGUSR1 and the end of the time allowed ask for a stop.

    A second SIGINT ends the process at once, whatever it is doing: the signals' numbers are read in
    a thread of their own, since a handler in Python waits for the step to end.

    Args:
        until: on the clock of `time.monotonic`, or None. The stop comes earlier, by the longest time
            that has passed between two questions: a step, a save or both.
    """

    def __init__(self, until: float | None = None) -> None:
        self.until = until
        self.reason: str | None = None
        self._asked = time.monotonic()
        self._longest = 0.0
        self._n_interrupts = 0

    def __call__(self) -> bool:
        """Whether somebody asked."""
        now = time.monotonic()
        self._longest, self._asked = max(self._longest, now - self._asked), now
        if self.until is not None and now + self._longest >= self.until:
            self.reason = self.reason or "the time allowed by --max-time is nearly over"
        return self.reason is not None

    def __enter__(self) -> StopRequests:
        """Listen."""
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._handlers = {number: signal.signal(number, _ignore) for number in _SIGNALS}
        self._wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, name="signals", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Listen no longer."""
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._write)
        self._thread.join()
        os.close(self._read)

    def _listen(self) -> None:
        while number := os.read(self._read, 1):
            if number[0] not in _SIGNALS:
                continue
            received = signal.Signals(number[0])
            self._n_interrupts += received is signal.SIGINT
            if self._n_interrupts == 2:
                os._exit(128 + signal.SIGINT)
            self.reason = f"received {received.name}"
            hint = "; Ctrl-C again leaves at once" if received is signal.SIGINT else ""
            click.echo(f"{self.reason}: finishing the step and saving{hint}", err=True)


def _ignore(number: int, frame: FrameType | None) -> None:
    """A handler for which only the wake-up counts."""
