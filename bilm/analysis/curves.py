"""Training curves of runs, as a picture or as a chart in a terminal."""

import colorsys
import itertools
import math
import string
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from bilm.analysis.pictures import Picture, Series, Style, View, as_number, is_logarithmic, n_points
from bilm.errors import DataError
from bilm.io import PathLike, messages
from bilm.io.run_files import CALLS_FILE, METRICS_FILE
from bilm.run_directory.records import HeldoutRecord, Metrics, TrainRecord, read_calls, read_metrics

Record = TrainRecord | HeldoutRecord

X_AXES = {"step": "training steps", "tokens": "tokens", "epoch": "epochs", "time": "hours"}
"""Horizontal axes of curves, with their labels."""

PERPLEXITY, RATE, NORM, SPEED = "perplexity", "learning rate", "gradient norm", "tokens per second"
"""Panels of a picture."""

SAMPLED, FULL = "training, sampled softmax", "training"
HELDOUT, SLICE, BEST = "heldout", "training text, full softmax", "best heldout"
"""Kinds of curves of perplexity."""

_THIN = Style("solid", 0.9)
_STYLES = {
    SAMPLED: Style("dot", 1.1),
    FULL: _THIN,
    SLICE: Style("dash", 1.4),
    HELDOUT: Style("solid", 1.8, "circle", 3.5),
    BEST: Style(marker="circle-open", size=10),
}
# The palette of Okabe and Ito, distinct for colour-blind readers, without its yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def load_curves(directories: Sequence[PathLike]) -> dict[str, Metrics]:
    """Read the metrics of run directories, by name, or by path where two share a name.

    Raises:
        DataError: there is no such directory, or the metrics of a run are damaged or have fewer than the two
            records of a curve.
    """
    paths = [Path(directory) for directory in directories]
    names = [path.resolve().name for path in paths]
    curves = {}
    for name, path in zip(names, paths, strict=True):
        if not path.is_dir():
            raise DataError(f"{path}: {'is not a directory' if path.exists() else 'no such directory'}")
        metrics = read_metrics(path / METRICS_FILE)
        n_records = len(metrics.train) + len(metrics.heldout)
        if n_records < 2:
            raise DataError(
                f"{path}: has {'one record' if n_records else 'no record'} in {METRICS_FILE}, and a curve "
                "needs two; training writes one every --log-every steps and at each validation"
            )
        begun = tuple(call.step for call in read_calls(path / CALLS_FILE) if not call.n_done)
        curves[name if names.count(name) == 1 else str(path)] = replace(metrics, begun=begun)
    return curves


def headline(name: str, metrics: Metrics) -> str:
    """Format the name of a run, its last step, and its best heldout perplexity."""
    best, step = metrics.best, f", step {metrics.last.step:,}" if metrics.last else ""
    result = f", best heldout perplexity {best.perplexity:,.2f} at step {best.step:,}" if best else ""
    return f"{messages.printable(name)}{step}{result}"


def _title(runs: Mapping[str, Metrics]) -> str:
    if len(runs) == 1:
        return headline(*next(iter(runs.items())))
    return textwrap.shorten(messages.printable(", ".join(runs)), 120, placeholder="…")


def curves_of(metrics: Metrics, x: str, colour: str = _COLOURS[0], group: str = "") -> Iterator[Series]:
    """Yield the curves of a run, each in the panel of its unit; gaps are NaN.

    Args:
        metrics: metrics of the run.
        x: one of `X_AXES`; time counts from the first record.
        colour: colour of the curves.
        group: legend group of the curves.
    """
    train, heldout, nan = metrics.train, metrics.heldout, math.nan
    places = _places(metrics, x)
    # One call may sample the softmax and the next one not: NaN keeps the gap in each curve.
    curves: list[tuple[str, Sequence[Record], list[float]]] = [
        (SAMPLED, train, [record.perplexity if record.sampled else nan for record in train]),
        (FULL, train, [nan if record.sampled else record.perplexity for record in train]),
        (SLICE, heldout, [record.train_perplexity or nan for record in heldout]),
        (HELDOUT, heldout, [record.perplexity for record in heldout]),
        (BEST, heldout, [record.perplexity if record is metrics.best else nan for record in heldout]),
        (RATE, train, [record.learning_rate for record in train]),
        (NORM, train, [record.gradient_norm for record in train]),
        (SPEED, train, [record.tokens_per_second for record in train]),
    ]
    for kind, records, ys in curves:
        if n_points(ys):
            xs = [places[record.step] for record in records]
            panel, name = (PERPLEXITY, kind) if kind in _STYLES else (kind, "")
            yield Series(xs, ys, panel, _STYLES.get(kind, _THIN), colour, name=name, group=group)


def _places(metrics: Metrics, x: str) -> dict[int, float]:
    """Return the position of each step; tokens and epochs, counted per call, are summed over calls."""
    records: list[Record] = sorted([*metrics.train, *metrics.heldout], key=lambda record: record.step)
    places: dict[int, float] = {}
    before, offset, last = 0.0, 0.0, -1
    for record in records:
        value = (record.time - records[0].time) / 3600 if x == "time" else getattr(record, x)
        is_next = value <= before or any(last <= step < record.step for step in metrics.begun)
        if record.step not in places and is_next and x in ("tokens", "epoch"):
            offset += before
        places[record.step] = offset + value
        before, last = value, record.step
    return places


def colours(n_runs: int) -> list[str]:
    """Choose a colour ``#rrggbb`` for each run; up to seven are distinct for colour-blind readers."""
    if n_runs <= len(_COLOURS):
        return list(_COLOURS[:n_runs])
    hues = (colorsys.hls_to_rgb(i / n_runs, 0.4, 0.8) for i in range(n_runs))
    return ["#" + "".join(f"{round(255 * part):02x}" for part in hue) for hue in hues]


def curves_picture(runs: Mapping[str, Metrics], x: str) -> Picture:
    """Make a picture of runs with panels for perplexity, learning rate, gradient norm and speed.

    Args:
        runs: metrics of one or more runs by name; each run has a colour.
        x: one of `X_AXES`, used by an image and shown first by a page; time counts from the first record.
    """
    groups = [headline(name, run) for name, run in runs.items()] if len(runs) > 1 else [""]
    drawn = [*zip(runs.values(), colours(len(runs)), groups, strict=True)]
    views = []
    for axis, label in X_AXES.items():
        curves = (curves_of(run, axis, colour, group) for run, colour, group in drawn)
        views.append(View(label, label, [*itertools.chain.from_iterable(curves)]))
    note = "Click the legend to hide a curve; drag to zoom, double-click to zoom out."
    return Picture(_title(runs), note, views, [*X_AXES].index(x), logarithmic=(PERPLEXITY, NORM))


def curves_chart(runs: Mapping[str, Metrics], x: str, width: int, is_ascii: bool) -> str:
    """Draw a chart in characters: heldout and training perplexity of one run, or one curve per run.

    Args:
        runs: metrics of one or more runs by name. For several, the chart shows the heldout perplexity, or the
            training perplexity of runs without one, with a letter at each point.
        x: one of `X_AXES`.
        width: width in characters.
        is_ascii: use ASCII only.

    Raises:
        DataError: no perplexity is a number.
    """
    curves: list[tuple[str, Series]] = []
    for (name, run), mark in zip(runs.items(), itertools.cycle(string.ascii_uppercase)):
        drawn = {series.name: series for series in curves_of(run, x) if series.panel == PERPLEXITY}
        if len(runs) == 1:
            marks = {SAMPLED: "", FULL: "", HELDOUT: "o", BEST: "@"}
            curves += [(marks[kind], series) for kind, series in drawn.items() if kind in marks]
        else:
            kinds = [kind for kind in (HELDOUT, SAMPLED, FULL) if kind in drawn][:1]
            curves += [(mark, replace(drawn[kind], name=f"{kind}: {headline(name, run)}")) for kind in kinds]
    if not curves:
        raise DataError(f"{', '.join(runs)}: no perplexity in {METRICS_FILE} is a number")
    return text_chart(_title(runs), curves, X_AXES[x], PERPLEXITY, width, is_ascii)


# --- charts in a terminal ----------------------------------------------------------------------------------

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
