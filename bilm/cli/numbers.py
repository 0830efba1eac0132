"""Command-line values that are numbers, bounded in value and in length, some with a unit."""

from __future__ import annotations

import math
import re
from typing import Any

import click

from bilm.errors import OptionsError
from bilm.io.shown import quoted
from bilm.training_loop.interval import Interval

MOST_DIGITS = 18  # so that a number fits into 64 bits, with room for sums
MOST_ROWS = 1 << 20  # of a batch, as in the options
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_CLOCK = re.compile(r"(?:(?P<d>[0-9]+)-)?(?P<h>[0-9]+):(?P<m>[0-5]?[0-9])(?::(?P<s>[0-5]?[0-9]))?")


class Integer(click.IntRange):
    """An integer from `min` to `max`; without these, of at most 18 digits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Parse one."""
        require_short(self, value, param, ctx)
        return super().convert(value, param, ctx)


class Number(click.types.FloatParamType):
    """A finite number."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Parse one."""
        require_short(self, value, param, ctx)
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class SaveInterval(click.ParamType):
    """``1250`` steps, or ``30m``: minutes."""

    name = "STEPS|MINUTESm"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Interval:  # noqa: ANN401
        """Parse one."""
        require_short(self, value, param, ctx)
        try:
            return Interval.of(value)
        except OptionsError as error:
            self.fail(str(error), param, ctx)


class EvalInterval(click.ParamType):
    """A number of steps, or ``epoch``."""

    name = "STEPS|epoch"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:  # noqa: ANN401
        """Parse one."""
        text = str(value)
        require_short(self, text, param, ctx)
        if text == "epoch":
            return text
        if text.isascii() and text.isdecimal() and int(text) > 0:
            return int(text)
        self.fail(f"{quoted(text)} is neither a number of steps nor 'epoch'", param, ctx)


class TimeSpan(click.ParamType):
    """``90m``, ``2h``, ``1:30:00`` (hours first) or ``1-12:00:00`` (days), in seconds."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401
        """Parse one."""
        if isinstance(value, float):
            return value
        require_short(self, value, param, ctx)
        seconds = 0.0
        if match := re.fullmatch(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[smhd])", value):
            seconds = float(match["number"]) * _SECONDS[match["unit"]]
        elif match := _CLOCK.fullmatch(value):
            seconds = sum(float(number or 0) * _SECONDS[unit] for unit, number in match.groupdict().items())
        if not seconds:
            self.fail(f"{quoted(value)} is not a time such as 90m, 2h, 1:30:00 or 1-12:00:00", param, ctx)
        return seconds


def require_short(
    kind: click.ParamType,
    value: object,
    param: click.Parameter | None = None,
    ctx: click.Context | None = None,
) -> None:
    """Refuse numbers with more digits than can be meant."""
    text = str(value).strip()
    if sum(map(str.isdigit, text)) > MOST_DIGITS:
        kind.fail(f"{quoted(text)} has more than {MOST_DIGITS} digits", param, ctx)
