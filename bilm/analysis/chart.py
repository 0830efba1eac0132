"""A line chart in characters, for a terminal."""

import itertools
import math
import textwrap
from collections.abc import Sequence

import numpy as np

from bilm.analysis.pictures import Series, as_number, is_logarithmic

_N_ROWS = 15
# Bits of the dots in a character, bottom row first.
_BRAILLE = np.array([[64, 128], [4, 32], [2, 16], [1, 8]])


def text_chart(
    title: str, curves: Sequence[tuple[str, Series]], x_label: str, y_label: str, width: int, is_ascii: bool
) -> str:
    """Draw a line chart with numbered axes; the vertical axis is logarithmic for a wide range.

    Args:
        title: text above the chart.
        curves: one or more pairs of a character that marks the points (may be empty) and a named curve with
            at least one point; later curves are drawn over earlier ones.
        x_label: label of the horizontal axis.
        y_label: label of the vertical axis.
        width: width of the chart in characters, at least 40.
        is_ascii: draw with full stops instead of Braille patterns, and with plain axes.
    """
    width = max(width, 40)
    bits = np.ones((1, 1), int) if is_ascii else _BRAILLE
    patterns = " ." if is_ascii else [" ", *map(chr, range(0x2801, 0x2900))]
    bar, bar_tick, corner, line, line_tick = "|++-+" if is_ascii else "│┤└─┬"
    points = [np.clip(np.array([series.xs, series.ys], float).T, -1e300, 1e300) for _, series in curves]
    if is_log := is_logarithmic([series for _, series in curves]):
        points = [np.column_stack([xy[:, 0], np.log10(xy[:, 1])]) for xy in points]
    low, high = np.nanmin(np.concatenate(points), axis=0), np.nanmax(np.concatenate(points), axis=0)
    room = np.where(high > low, 0, np.maximum(np.abs(high) / 10, 1))
    low, high = low - room, high + room

    y_ticks = _log_ticks(low[1], high[1]) if is_log else _ticks(low[1], high[1], 6)
    margin = max(map(len, y_ticks.values())) + 2
    shape, per_character = np.array([width - margin, _N_ROWS]), np.array(bits.shape[::-1])
    x_ticks = _ticks(low[0], high[0], max(shape[0] // 14, 2))

    def places(xy: np.ndarray) -> np.ndarray:
        """Convert points (n, 2) to positions in dots, from the left and from the bottom."""
        return ((xy - low) / (high - low) * (shape * per_character - 1)).round()

    def in_characters(ticks: dict[float, str], axis: int) -> dict[int, str]:
        at = places(np.array([[value, value] for value in ticks]))[:, axis] // per_character[axis]
        return dict(zip(at.astype(int).tolist(), ticks.values(), strict=True))

    dots = np.zeros((shape * per_character)[::-1], bool)
    for xy in map(places, points):
        for start, end in (*zip(xy, xy, strict=True), *itertools.pairwise(xy)):
            if np.isfinite(start + end).all():
                dot = np.linspace(start, end, int(np.abs(end - start).max()) + 2).round().astype(int)
                dots[dot[:, 1], dot[:, 0]] = True
    parts = dots.reshape(shape[1], per_character[1], shape[0], per_character[0])
    rows = [[patterns[code] for code in row] for row in np.einsum("rycx,yx->rc", parts, bits)]
    for (mark, _), xy in zip(curves, map(places, points), strict=True):
        for column, row in (xy[np.isfinite(xy).all(axis=1)] // per_character).astype(int):
            rows[row][column] = mark or rows[row][column]

    labels, numbers = in_characters(y_ticks, 1), ""
    lines = [
        f"{labels.get(i, ''):>{margin - 2}} {bar_tick if i in labels else bar}{''.join(row)}".rstrip()
        for i, row in enumerate(rows)
    ]
    columns = in_characters(x_ticks, 0)
    axis = "".join(line_tick if i in columns else line for i in range(shape[0]))
    for column, label in columns.items():
        start = min(margin + column - len(label) // 2, width - len(label))
        numbers += " " * (start - len(numbers)) + label if start > len(numbers) else ""
    legend = [f"{mark or patterns[1 if is_ascii else 0x24]} {series.name}" for mark, series in curves]
    if len(joined := "   ".join(legend)) <= width:
        legend = [joined]
    return "\n".join(
        [
            *textwrap.wrap(title, width),
            f"{y_label} (logarithmic)" if is_log else y_label,
            *reversed(lines),
            " " * (margin - 1) + corner + axis,
            numbers,
            " " * (margin + (shape[0] - len(x_label)) // 2) + x_label,
            *(part for entry in legend for part in textwrap.wrap(entry, width, subsequent_indent="  ")),
        ]
    )


def _ticks(low: float, high: float, most: int) -> dict[float, str]:
    """Choose about `most` round numbers in a range, with their labels."""
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
    values = np.arange(math.ceil(low / step), math.floor(high / step) + 1) * step
    return {value: as_number(value) for value in values.tolist()}


def _log_ticks(low: float, high: float) -> dict[float, str]:
    """Choose powers of ten in a range of logarithms, in a short range also their multiples by 2 and 5."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    values = [factor * 10.0**power for power in powers for factor in ((1, 2, 5) if high - low < 4 else (1,))]
    logarithms = {math.log10(value): as_number(value) for value in values}
    return {value: label for value, label in logarithms.items() if low <= value <= high}
