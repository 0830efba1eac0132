"""Progress of a long task: a line that is updated on a terminal, occasional lines elsewhere."""

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress


class ProgressLine:
    """A line on standard error that is updated if that is a terminal; otherwise one line after another."""

    def __init__(self) -> None:
        from rich.console import Console  # imported here to keep `bilm --help` fast
        from rich.live import Live

        self._console = Console(stderr=True)
        is_terminal = self._console.is_terminal and self._console.file.isatty()  # rich asks the environment
        self._is_terminal = is_terminal and not self._console.is_dumb_terminal
        shares_terminal = sys.stdout is not None and sys.stdout.isatty()
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=shares_terminal
        )
        self._shown = time.monotonic()

    def is_due(self) -> bool:
        """Return whether it is time for another line: every second on a terminal, otherwise every ten."""
        return time.monotonic() - self._shown >= (1.0 if self._is_terminal else 10.0)

    def show(self, fields: Sequence[str], write: Callable[[str], None]) -> None:
        """Show a line.

        Args:
            fields: parts of the line, the most important first; a terminal shows as many as fit its width.
            write: writes the line if standard error is not a terminal.
        """
        from rich.text import Text

        self._shown = time.monotonic()
        if not self._is_terminal:
            write("  ".join(fields))
            return
        n_shown = len(fields)
        while n_shown > 1 and len("  ".join(fields[:n_shown])) >= self._console.width:
            n_shown -= 1
        line = Text("  ".join(fields[:n_shown]), no_wrap=True, overflow="crop")
        with suppress(OSError):  # the terminal was closed
            self._live.start()
            self._live.update(line, refresh=True)

    def close(self) -> None:
        """Remove the line, so that other output can follow."""
        with suppress(OSError):
            self._live.stop()


def clock(seconds: float) -> str:
    """Return a duration as days, hours, minutes and seconds."""
    whole = max(int(seconds), 0)
    days = f"{whole // 86400} d " if whole >= 86400 else ""
    return f"{days}{whole % 86400 // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
