"""Messages of a command, and lines on its progress while it runs."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TYPE_CHECKING

import click

from bilm.runs.reporter import Reporter, Schedule
from bilm.training import meter

if TYPE_CHECKING:
    from bilm.cli.process import StopRequests
    from bilm.embedding.hdf5_output import EmbeddingReport


class ProgressLine:
    """A line on the progress when it is time: on a terminal written anew, else one after the other."""

    def __init__(self) -> None:
        self.is_on_terminal = sys.stderr.isatty()
        self._shown = time.monotonic()
        self._is_open = False

    def is_due(self) -> bool:
        """Whether it is time."""
        return time.monotonic() - self._shown >= (1.0 if self.is_on_terminal else 10.0)

    def show(self, line: str, err: bool = True) -> None:
        """Show a line, on standard error if it is written anew."""
        self._shown, self._is_open = time.monotonic(), self.is_on_terminal
        if self.is_on_terminal:
            width = shutil.get_terminal_size().columns - 1
            line = f"\r{line[:width]:<{width}}"
        click.echo(line, err=err or self.is_on_terminal, nl=not self.is_on_terminal)

    def end(self) -> None:
        """End the line, so that others can follow."""
        if self._is_open:
            click.echo(err=True)
        self._is_open = False


class EmbeddingProgress(ProgressLine):
    """A line on the text that is embedded.

    Args:
        n_tokens: words of the whole text, None if that is not known.
    """

    def __init__(self, n_tokens: int | None) -> None:
        super().__init__()
        self.n_tokens = n_tokens

    def __call__(self, report: EmbeddingReport) -> None:
        """Show the progress, when it is time; the time left is for a text that was begun at its start."""
        if not self.is_due():
            return
        rate = report.n_tokens / max(report.seconds, 1e-9)
        line = f"{report.n_lines:,} lines  {report.n_tokens:,} words  {rate:,.0f} tokens/s"
        if self.n_tokens is not None and rate and not report.n_kept:
            left = clock((self.n_tokens - report.n_tokens) / rate)
            line += f"  {report.n_tokens / self.n_tokens:.1%}  {left} left"
        self.show(line)


def clock(seconds: float) -> str:
    """A time to go as hours, minutes and seconds."""
    whole = max(int(seconds), 0)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


class PrintingReporter(Reporter):
    """Prints the messages of a command, and lines on its steps: the first, the last, and some in between.

    Args:
        stop: told when there is something to save; None for commands that save nothing.
    """

    def __init__(self, stop: StopRequests | None = None) -> None:
        self.command = click.get_current_context().find_root().meta["bilm.command"]
        self._stop = stop
        self._line = ProgressLine()
        self._since_line = meter.Meter()
        self._began: tuple[float, int] | None = None

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
        self._schedule = schedule

    def step(self, report: meter.StepReport) -> None:
        """Print a line on the steps since the last one, when it is time."""
        self._since_line.add(report)
        now, is_first = time.monotonic(), self._began is None
        started, done = self._began = self._began or (now, report.n_done)
        if not (is_first or report.n_done == report.n_steps or self._line.is_due()):
            return
        left = "?"
        if report.n_done > done:  # the first step is mostly compilation
            left = clock((now - started) / (report.n_done - done) * (report.n_steps - report.n_done))
        steps, self._since_line = self._since_line, meter.Meter()
        loss = meter.mean(steps.direction_losses)
        sampled = "sampled " if self._schedule.sampled else ""
        self._line.show(
            f"step {report.step}  epoch {report.n_done / self._schedule.steps_per_epoch:.2f}  "
            f"{report.n_done / report.n_steps:.1%}  {sampled}loss {loss:.4f}  "
            f"{sampled}perplexity {meter.perplexity(loss):.4g}  "
            f"{steps.n_tokens / max(steps.seconds, 1e-9):,.0f} tokens/s  {left} left",
            err=False,
        )

    def end(self) -> None:
        """End the line on the progress, so that others can follow."""
        self._line.end()

    def scored(self, n_scored: int, n_tokens: int) -> None:
        """Print a line to standard error when it is time."""
        now = time.monotonic()
        started, _ = self._began = self._began or (now, 0)
        if n_scored and self._line.is_due():
            rate = n_scored / max(now - started, 1e-9)
            left = clock((n_tokens - n_scored) / rate)
            done = f"{n_scored:,} of {n_tokens:,} tokens  {n_scored / n_tokens:.1%}"
            self._line.show(f"scored {done}  {rate:,.0f} tokens/s  {left} left")
