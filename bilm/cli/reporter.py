"""What a command prints while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bilm.cli.progress import EvaluationProgress, TrainingProgress
from bilm.cli.stopping import StopRequests
from bilm.training_loop.reporter import Reporter, Schedule

if TYPE_CHECKING:
    from bilm.training.trainer import StepReport


class PrintingReporter(Reporter):
    """Prints the messages and the progress of a command.

    Args:
        stop: told when there is something to save; None for commands that save nothing.
    """

    def __init__(self, stop: StopRequests | None = None) -> None:
        self.command = click.get_current_context().find_root().meta["bilm.command"]
        self._stop = stop
        self._training: TrainingProgress | None = None
        self._evaluation: EvaluationProgress | None = None

    def say(self, line: str) -> None:
        """Print it."""
        click.echo(line)

    def warn(self, line: str) -> None:
        """Print it to standard error."""
        click.echo(f"warning: {line}", err=True)

    def begin(self, schedule: Schedule) -> None:
        """Save on a signal from now on; show the bar."""
        if self._stop is not None:
            self._stop.save_first()
        super().begin(schedule)
        self._training = TrainingProgress(schedule)
        self._training.__enter__()

    def step(self, report: StepReport) -> None:
        """Move the bar, or print a line when it is time."""
        if self._training is not None:
            self._training(report)

    def end(self) -> None:
        """End the bar."""
        if self._training is not None:
            self._training.__exit__(None, None, None)

    def scored(self, n_scored: int, n_tokens: int) -> None:
        """Print a line when it is time."""
        self._evaluation = self._evaluation or EvaluationProgress(n_tokens)
        self._evaluation(n_scored)
