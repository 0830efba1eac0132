"""Messages of a command, and lines on its progress while it runs."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

from bilm.cli.process import StopRequests
from bilm.runs.reporter import Reporter, Schedule
from bilm.training.meter import perplexity

if TYPE_CHECKING:
    from bilm.embedding.hdf5_output import EmbeddingReport
    from bilm.training.trainer import StepReport


class _Progress:
    """A line on the progress when it is time: on a terminal written anew, else one after the other."""

    def __init__(self, is_on_terminal: bool | None = None) -> None:
        self.is_on_terminal = sys.stderr.isatty() if is_on_terminal is None else is_on_terminal
        self._started = self._since = time.monotonic()
        self._is_open = False

    def is_due(self, now: float) -> bool:
        """Whether it is time."""
        return now - self._since >= (1.0 if self.is_on_terminal else 10.0)

    def show(self, line: str, now: float, err: bool = True) -> None:
        """Show a line, on standard error if it is written anew."""
        self._since = now
        if not self.is_on_terminal:
            click.echo(line, err=err)
            return
        width = shutil.get_terminal_size().columns - 1
        click.echo(f"\r{line[:width]:<{width}}", err=True, nl=False)
        self._is_open = True

    def end(self) -> None:
        """End the line, so that others can follow."""
        if self._is_open:
            click.echo(err=True)
        self._is_open = False


class TrainingProgress(_Progress):
    """A line on the steps of a call since the last one: the first, the last, and those in between.

    Args:
        schedule: of the call.
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule
        self._losses: list[float] = []
        self._n_tokens = 0
        self._after_first: tuple[float, int] | None = None

    def __call__(self, report: StepReport) -> None:
        """Count a step, and show it when it is time."""
        self._losses.append(report.loss)
        self._n_tokens += report.n_tokens
        now = time.monotonic()
        is_first = self._after_first is None
        started, done = self._after_first = self._after_first or (now, report.n_done)
        if not (is_first or report.n_done == report.n_steps or self.is_due(now)):
            return
        left = "?"
        if report.n_done > done:  # the first step is mostly compilation
            left = clock((now - started) / (report.n_done - done) * (report.n_steps - report.n_done))
        loss = sum(self._losses) / len(self._losses)
        sampled = "sampled " if self.schedule.sampled else ""
        rate = self._n_tokens / max(now - self._since, 1e-9)
        line = (
            f"step {report.step}  epoch {report.n_done / self.schedule.steps_per_epoch:.2f}  "
            f"{report.n_done / report.n_steps:.1%}  {sampled}loss {loss:.4f}  "
            f"{sampled}perplexity {perplexity(loss):.4g}  {rate:,.0f} tokens/s  {left} left"
        )
        self.show(line, now, err=False)
        self._losses, self._n_tokens = [], 0


class EvaluationProgress(_Progress):
    """Lines on standard error on how many targets are scored, none for a short text.

    Args:
        n_tokens: targets to score in each direction.
    """

    def __init__(self, n_tokens: int) -> None:
        super().__init__(is_on_terminal=False)
        self.n_tokens = n_tokens

    def __call__(self, n_scored: int) -> None:
        """Show how many targets are scored, when it is time."""
        now = time.monotonic()
        if self.is_due(now):
            rate = n_scored / (now - self._started)
            left = clock((self.n_tokens - n_scored) / rate)
            done = f"{n_scored:,} of {self.n_tokens:,} tokens  {n_scored / self.n_tokens:.1%}"
            self.show(f"scored {done}  {rate:,.0f} tokens/s  {left} left", now)


class EmbeddingProgress(_Progress):
    """A line on the text that is embedded.

    Args:
        n_tokens: words of the whole text, None if that is not known.
    """

    def __init__(self, n_tokens: int | None) -> None:
        super().__init__()
        self.n_tokens = n_tokens

    def __call__(self, report: EmbeddingReport) -> None:
        """Show the progress, when it is time; the time left is for a text that was begun at its start."""
        now = time.monotonic()
        if not self.is_due(now):
            return
        rate = report.n_tokens / max(report.seconds, 1e-9)
        line = f"{report.n_lines:,} lines  {report.n_tokens:,} words  {rate:,.0f} tokens/s"
        if self.n_tokens is not None and rate and not report.n_kept:
            left = clock((self.n_tokens - report.n_tokens) / rate)
            line += f"  {report.n_tokens / self.n_tokens:.1%}  {left} left"
        self.show(line, now)


def clock(seconds: float) -> str:
    """A time to go as hours, minutes and seconds."""
    whole = max(int(seconds), 0)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


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
        self.end()
        click.echo(line)

    def warn(self, line: str) -> None:
        """Print it to standard error."""
        self.end()
        click.echo(f"warning: {line}", err=True)

    def begin(self, schedule: Schedule) -> None:
        """Save on a signal from now on."""
        if self._stop is not None:
            self._stop.save_first()
        super().begin(schedule)
        self._training = TrainingProgress(schedule)

    def step(self, report: StepReport) -> None:
        """Print a line when it is time."""
        if self._training is not None:
            self._training(report)

    def end(self) -> None:
        """End the line on training, so that others can follow."""
        if self._training is not None:
            self._training.end()

    def scored(self, n_scored: int, n_tokens: int) -> None:
        """Print a line when it is time."""
        self._evaluation = self._evaluation or EvaluationProgress(n_tokens)
        self._evaluation(n_scored)
