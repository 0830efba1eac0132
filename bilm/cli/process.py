"""The process around a command: standard streams, signals and exit."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from bilm.cli import main
from bilm.cli.streams import guard_standard_streams
from bilm.installation import conflict
from bilm.io.shown import printable


def run(args: Sequence[str] | None = None, prog_name: str | None = None) -> NoReturn:
    """Run a command and end the process.

    Args:
        args: the arguments; those of the process if None.
        prog_name: name of the program in messages; as in the shell if None.
    """
    guard_standard_streams()
    _warn_of_conflict()
    interrupts = Interrupts()
    try:
        interrupts.listen()
        main(args=args, prog_name=prog_name)
    finally:
        if interrupts.received is not None:
            _die_of(interrupts.received)
    raise AssertionError("click ends the process")


def _warn_of_conflict() -> None:
    """Say that another package shares our directory, but not to a shell that completes a word."""
    message = conflict()
    if message is not None and "_BILM_COMPLETE" not in os.environ:
        click.echo(f"Warning: {printable(message)}", err=True)


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP as KeyboardInterrupt, so that a command cleans up.

    Later signals do not disturb that, except for a second SIGINT, which ends the process.

    Attributes:
        received: the number of the first signal, or None.
    """

    def __init__(self) -> None:
        self.received: int | None = None

    def listen(self) -> None:
        """Start listening; a signal ignored when the process began, as by ``nohup``, stays ignored."""
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
    """End the process by the signal's default action; a shell shows that as status 128 + `number`."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
