"""How often something happens."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bilm.errors import OptionsError
from bilm.io.shown import quoted


@dataclass(frozen=True)
class Interval:
    """How often something happens: every so many steps, or minutes."""

    steps: int | None = None
    minutes: float | None = None

    @classmethod
    def of(cls, given: int | str | Interval) -> Interval:
        """``1250`` steps, or ``"30m"``: minutes.

        Raises:
            OptionsError: it is neither.
        """
        if isinstance(given, Interval):
            return given
        match = re.fullmatch(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<minutes>m?)", str(given))
        number = float(match["number"]) if match else 0.0
        if match and match["minutes"] and number > 0:
            return cls(minutes=number)
        if match and number >= 1 and number == int(number):
            return cls(steps=int(number))
        raise OptionsError(
            f"{quoted(str(given))} is neither a number of steps, such as 1250, nor of minutes, such as 30m"
        )

    def is_due(self, n_done: int, seconds: float) -> bool:
        """Whether it is time, `n_done` steps into the call and so long after the last time."""
        if self.steps is not None:
            return n_done % self.steps == 0
        return self.minutes is not None and seconds >= 60 * self.minutes
