"""Progress of ``bilm embed``: a line every few seconds, or one updated in place on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

import click

from bilm.cli.progress import clock

if TYPE_CHECKING:
    from bilm.embedding_files.embed_file import EmbeddingReport

_SECONDS_BETWEEN_LINES = 10.0


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
        """Nothing is shown before the first words are done."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the line."""
        if self._shown and self.on_terminal:
            click.echo(err=True)

    def __call__(self, report: EmbeddingReport) -> None:
        """Tell of what is done, when it is time."""
        now = time.monotonic()
        if now - self._since < (0.5 if self.on_terminal else _SECONDS_BETWEEN_LINES):
            return
        self._since, self._shown = now, True
        line = self.line(report)
        click.echo(f"\r{line:<78}" if self.on_terminal else line, err=True, nl=not self.on_terminal)

    def line(self, report: EmbeddingReport) -> str:
        """What is shown of a report; the time left is for a text that was begun at its start."""
        rate = report.n_tokens / max(report.seconds, 1e-9)
        line = f"{report.n_lines:,} lines  {report.n_tokens:,} words  {rate:,.0f} tokens/s"
        if self.n_tokens is None or report.n_kept or not rate:
            return line
        left = clock((self.n_tokens - report.n_tokens) / rate)
        return f"{line}  {report.n_tokens / self.n_tokens:.1%}  {left} left"
