"""What a command shows while it runs: progress bars and lines."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from bilm.cli.process import StopRequests
from bilm.runs.reporter import Reporter, Schedule
from bilm.training.meter import perplexity

if TYPE_CHECKING:
    from bilm.embedding.hdf5_output import EmbeddingReport
    from bilm.runs.reporter import Schedule
    from bilm.training.trainer import StepReport


_SECONDS_BETWEEN_LINES = 10.0


class TrainingProgress:
    """A callback of `bilm.runs.loop.TrainingRun`; also a context manager, which ends the bar.

    Args:
        schedule: of the call.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.label = "sampled " if schedule.sampled else ""
        self.bar: Any = None
        if sys.stderr.isatty():
            self.bar = click.progressbar(
                length=schedule.n_steps,
                file=sys.stderr,
                item_show_func=lambda line: line,
                show_eta=False,  # click's own counts the steps done before as done in no time
            )
        self._loss = self._tokens = self._steps = 0.0
        self._since = self._started = time.monotonic()
        self._after_first: tuple[float, int] | None = None

    def __enter__(self) -> TrainingProgress:
        """Show the bar."""
        if self.bar is not None:
            self.bar.__enter__()
            self.bar.update(self.schedule.n_done)
        return self

    def __exit__(self, *error: object) -> None:
        """End the bar."""
        if self.bar is not None:
            self.bar.__exit__(*error)

    def __call__(self, report: StepReport) -> None:
        """Count a step, and show it when it is time."""
        self._loss += report.loss
        self._tokens += report.n_tokens
        self._steps += 1
        now = time.monotonic()
        last = report.n_done == report.n_steps
        if self._after_first is None:  # the first step is mostly compilation
            self._after_first = (now, report.n_done)
        due = now - self._since >= (1.0 if self.bar is not None else _SECONDS_BETWEEN_LINES)
        if self.bar is not None:
            self.bar.update(1, self._line(report, now, self.bar_fields) if due or last else None)
        elif due or last or report.n_done == 1:
            click.echo(self._line(report, now, self.line_fields))
        if due or last or report.n_done == 1:
            self._loss = self._tokens = self._steps = 0.0
            self._since = now

    bar_fields = (
        "{label}loss {loss:.4f}  {label}perplexity {perplexity:.4g}  {rate:,.0f} tokens/s  {left} left"
    )
    line_fields = (
        "step {step}  epoch {epoch:.2f}  {done:.1%}  {label}loss {loss:.4f}  "
        "{label}perplexity {perplexity:.4g}  {rate:,.0f} tokens/s  {left} left"
    )

    def _line(self, report: StepReport, now: float, fields: str) -> str:
        loss = self._loss / self._steps
        return fields.format(
            step=report.step,
            epoch=report.n_done / self.schedule.steps_per_epoch,
            done=report.n_done / report.n_steps,
            label=self.label,
            loss=loss,
            perplexity=perplexity(loss),
            rate=self._tokens / max(now - self._since, 1e-9),
            left=self._time_left(report, now),
        )

    def _time_left(self, report: StepReport, now: float) -> str:
        if self._after_first is None or report.n_done == self._after_first[1]:
            return "?"
        started, done = self._after_first
        seconds = (now - started) / (report.n_done - done) * (report.n_steps - report.n_done)
        return clock(seconds)


class EvaluationProgress:
    """A callback of `bilm.training.evaluation.Evaluator`: lines on standard error, none for a short text.

    Args:
        n_tokens: targets to score in each direction.
    """

    def __init__(self, n_tokens: int) -> None:
        self.n_tokens = n_tokens
        self._started = self._since = time.monotonic()

    def __call__(self, n_scored: int) -> None:
        """Show how many targets are scored, when it is time."""
        now = time.monotonic()
        if now - self._since < _SECONDS_BETWEEN_LINES:
            return
        self._since = now
        rate = n_scored / (now - self._started)
        left = clock((self.n_tokens - n_scored) / rate)
        done = f"{n_scored:,} of {self.n_tokens:,} tokens"
        click.echo(
            f"scored {done}  {n_scored / self.n_tokens:.1%}  {rate:,.0f} tokens/s  {left} left", err=True
        )


class EmbeddingProgress:
    """A callback of `embed_file`; also a context manager, which ends the line.

    Args:
        n_tokens: words of the whole text, None if that is not known.
    """

    def __init__(self, n_tokens: int | None) -> None:
        self.n_tokens = n_tokens
        self.on_terminal = sys.stderr.isatty()
        self._since = time.monotonic()
        self._shown = False

    def __enter__(self) -> EmbeddingProgress:
        """Show nothing before the first words are done."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the line."""
        if self._shown and self.on_terminal:
            click.echo(err=True)

    def __call__(self, report: EmbeddingReport) -> None:
        """Show the progress, when it is time."""
        now = time.monotonic()
        if now - self._since < (0.5 if self.on_terminal else _SECONDS_BETWEEN_LINES):
            return
        self._since, self._shown = now, True
        line = self.line(report)
        click.echo(f"\r{line:<78}" if self.on_terminal else line, err=True, nl=not self.on_terminal)

    def line(self, report: EmbeddingReport) -> str:
        """The line for a report; the time left is for a text that was begun at its start."""
        rate = report.n_tokens / max(report.seconds, 1e-9)
        line = f"{report.n_lines:,} lines  {report.n_tokens:,} words  {rate:,.0f} tokens/s"
        if self.n_tokens is None or report.n_kept or not rate:
            return line
        left = clock((self.n_tokens - report.n_tokens) / rate)
        return f"{line}  {report.n_tokens / self.n_tokens:.1%}  {left} left"


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
