"""Messages and progress lines of commands."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import click

from bilm.io.progress import ProgressLine, clock
from bilm.runs.reporter import ProgressReporter, Schedule

if TYPE_CHECKING:
    from bilm.cli.process import StopRequests
    from bilm.embedding.hdf5_output import EmbeddingReport

_to_stderr = functools.partial(click.echo, err=True)


class EmbeddingProgress(ProgressLine):
    """Progress line of embedding.

    Args:
        n_tokens: words of the whole text, or None if unknown.
    """

    def __init__(self, n_tokens: int | None) -> None:
        super().__init__()
        self.n_tokens = n_tokens

    def __call__(self, report: EmbeddingReport) -> None:
        """Show the progress if it is due; the time left is shown unless the command resumed."""
        if not self.is_due():
            return
        rate = report.n_tokens / max(report.seconds, 1e-9)
        fields = [f"{report.n_lines:,} lines", f"{report.n_tokens:,} words", f"{rate:,.0f} tokens/s"]
        if self.n_tokens is not None and rate and not report.n_kept:
            left = clock((self.n_tokens - report.n_tokens) / rate)
            fields = [f"{report.n_tokens / self.n_tokens:.1%}", f"{left} left", *fields]
        self.show(fields, _to_stderr)


class PrintingReporter(ProgressReporter):
    """Prints messages and steps to standard output, everything else to standard error.

    Args:
        stop: switched to `save_first` when training begins; None for commands that save nothing.
    """

    def __init__(self, stop: StopRequests | None = None) -> None:
        super().__init__()
        self.command = click.get_current_context().find_root().meta["bilm.command"]
        self._stop = stop

    def write(self, line: str, is_result: bool = True) -> None:
        """Print a line."""
        click.echo(line, err=not is_result)

    def begin(self, schedule: Schedule) -> None:
        """Save on signals from now on."""
        if self._stop is not None:
            self._stop.save_first()
        super().begin(schedule)
