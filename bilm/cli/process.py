"""The process around a command: its standard streams, its signals, its exit."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from bilm.cli import main
from bilm.cli.streams import guard_standard_streams


def run(args: Sequence[str] | None = None, prog_name: str | None = None) -> NoReturn:
    """Run a command and end the process.

    Args:
        args: the words after the command's name; those of the process if None.
        prog_name: what messages call the program; what the shell called it if None.
    """
    guard_standard_streams()
    interrupts = Interrupts()
    try:
        interrupts.listen()
        main(args=args, prog_name=prog_name)
    finally:
        if interrupts.received is not None:
            _die_of(interrupts.received)
    raise AssertionError("click ends the process")


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP as KeyboardInterrupt, so that what a command has open is cleaned up.

    What comes after the first does not disturb that, but for a second SIGINT, which ends the process.

    Attributes:
        received: the number of the first signal, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None

    def listen(self) -> None:
        """Listen from now on; a signal that was ignored when the process began, as by ``nohup``, stays so."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = number
            raise KeyboardInterrupt
        if number == signal.SIGINT:
            _die_of(number)


def _die_of(number: int) -> None:
    """End as a process that did not handle the signal; a shell shows that as status 128 + `number`."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
