"""How often something happens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """How often something happens: every so many steps, or minutes."""

    steps: int | None = None
    minutes: float | None = None

    def is_due(self, n_done: int, seconds: float) -> bool:
        """Whether it is time, `n_done` steps into the call and so long after the last time."""
        if self.steps is not None:
            return n_done % self.steps == 0
        return self.minutes is not None and seconds >= 60 * self.minutes
