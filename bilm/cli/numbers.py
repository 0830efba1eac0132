"""Command-line values that are numbers, bounded in value and in length."""

from __future__ import annotations

import math
from typing import Any

import click

from bilm.io.shown import quoted

MOST_DIGITS = 18  # so that a number fits into 64 bits, with room for sums
MOST_ROWS = 1 << 20  # of a batch, as in the options


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
