"""Training curves of runs, as a picture drawn with matplotlib or as a page drawn with plotly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.analysis.pages import (
    drawn_text,
    page_text,
    require_matplotlib,
    require_plotly,
    save_figure,
    save_page,
)
from bilm.errors import DataError
from bilm.io import PathLike
from bilm.run_directory.records import METRICS_FILE, HeldoutRecord, Metrics, TrainRecord, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X_AXES = {"step": "training steps", "tokens": "tokens", "epoch": "epochs", "time": "hours"}
"""What curves are drawn against, and how the axis is labelled."""

SAMPLED, FULL = "training, sampled softmax", "training"
HELDOUT, SLICE, BEST = "heldout", "training text, full softmax", "best heldout"
"""The kinds of curves."""

# Okabe and Ito's colours, which differ for colour-blind readers too; without their yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_SHADES = (
    (68, 1, 84),
    (59, 82, 139),
    (33, 145, 140),
    (94, 201, 98),
    (253, 231, 37),
)  # as matplotlib's viridis


@dataclass(frozen=True)
class RunCurves:
    """What is drawn of a run, and what the legend calls it."""

    name: str
    metrics: Metrics


def load_curves(directories: Sequence[PathLike]) -> list[RunCurves]:
    """Read the metrics of run directories; each is called by its own name, or by its path if two share it.

    Raises:
        DataError: a directory is missing, has no metrics, or has damaged ones.
    """
    paths = [Path(directory) for directory in directories]
    names = [path.resolve().name for path in paths]
    return [
        RunCurves(name if names.count(name) == 1 else str(path), _read(path))
        for name, path in zip(names, paths, strict=True)
    ]


def _read(directory: Path) -> Metrics:
    file = directory / METRICS_FILE
    if not file.is_file():
        if not directory.is_dir():
            raise DataError(f"{directory}: no such directory")
        raise DataError(
            f"{directory}: no {METRICS_FILE} in it, so there is nothing to draw; `bilm train` and "
            "`bilm restart` write it while they train"
        )
    metrics = read_metrics(file)
    if metrics.last is None:
        raise DataError(f"{file}: no records in it yet; let the run train for longer")
    return metrics


Curve = tuple[str, list[float], list[float]]


def curves_of(metrics: Metrics, x: str) -> Iterator[Curve]:
    """Kind, places and perplexities of each curve that a run has; NaN where there is a gap.

    Args:
        metrics: of a run.
        x: one of `X_AXES`; time is that since the first record.
    """
    train, heldout = metrics.train, metrics.heldout
    places = _places(metrics, x)
    at_train = [places[one.step] for one in train]
    at_heldout = [places[one.step] for one in heldout]
    # A gap stays a gap: a call may sample the softmax and the next one not.
    curves: list[Curve] = [
        (SAMPLED, at_train, [one.perplexity if one.sampled else math.nan for one in train]),
        (FULL, at_train, [math.nan if one.sampled else one.perplexity for one in train]),
        (SLICE, at_heldout, [one.train_perplexity or math.nan for one in heldout]),
        (HELDOUT, at_heldout, [one.perplexity for one in heldout]),
        (BEST, at_heldout, [one.perplexity if one is metrics.best else math.nan for one in heldout]),
    ]
    return (curve for curve in curves if n_points(curve[2]))


def _places(metrics: Metrics, x: str) -> dict[int, float]:
    """Where each step stands; tokens and epochs, which each call counts from zero, are summed over calls."""
    records: list[TrainRecord | HeldoutRecord] = [*metrics.train, *metrics.heldout]
    records.sort(key=lambda record: record.step)
    places: dict[int, float] = {}
    before = offset = 0.0
    for record in records:
        value = (record.time - records[0].time) / 3600 if x == "time" else getattr(record, x)
        if value < before and x in ("tokens", "epoch"):
            offset += before
        places[record.step] = offset + value
        before = value
    return places


def n_points(ys: list[float]) -> int:
    """How many perplexities a curve has."""
    return sum(not math.isnan(y) for y in ys)


def best_of(run: RunCurves) -> str:
    """What a legend says of a run's best heldout perplexity; nothing where it has none."""
    best = run.metrics.best
    return "" if best is None else f", best {best.perplexity:,.2f} at step {best.step:,}"


def colours(n_runs: int) -> list[str]:
    """A colour for each run, as ``#rrggbb``: told apart without colour vision while there are few."""
    if n_runs <= len(_COLOURS):
        return list(_COLOURS[:n_runs])
    return [_shade(i / (n_runs - 1)) for i in range(n_runs)]


def _shade(share: float) -> str:
    """A colour between blue and yellow, by way of green; the later, the lighter."""
    places = share * 0.95 * (len(_SHADES) - 1)
    i = min(int(places), len(_SHADES) - 2)
    mixed = (round(a + (places - i) * (b - a)) for a, b in zip(_SHADES[i], _SHADES[i + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


_LINES: dict[str, dict[str, Any]] = {
    HELDOUT: {"mode": "lines+markers", "line": {"width": 2}, "marker": {"size": 6}},
    BEST: {"mode": "markers", "marker": {"size": 14, "symbol": "circle-open", "line": {"width": 2}}},
    SLICE: {"mode": "lines+markers", "line": {"width": 1.5, "dash": "dash"}, "marker": {"size": 4}},
    FULL: {"mode": "lines", "line": {"width": 1}, "opacity": 0.7},
    SAMPLED: {"mode": "lines", "line": {"width": 1.2, "dash": "dot"}},
}
_POINT = "%{x:,} %{xaxis.title.text}: <b>%{y:,.2f}</b>"
_NOTE = (
    "Perplexity over training. Point at a curve for its values; click the legend to hide a curve, drag to "
    "zoom, double-click to zoom out."
)


def write_curves(runs: Sequence[RunCurves], path: PathLike, x: str) -> None:
    """Write the curves of runs as a page.

    Args:
        runs: at least one.
        path: file to write.
        x: one of `X_AXES`, which the page begins with.

    Raises:
        DataError: plotly is not installed, or the file cannot be written.
    """
    names = ", ".join(run.name for run in runs)
    save_page(curves_figure(runs, x), path, title=f"bilm plot: {names}", heading=page_text(names), note=_NOTE)


def curves_figure(runs: Sequence[RunCurves], x: str) -> dict[str, Any]:
    """What is drawn of runs, as plotly's figure: a trace for each curve of each run."""
    traces: list[dict[str, Any]] = []
    places: dict[str, list[list[float]]] = {axis: [] for axis in X_AXES}
    for i, (run, colour) in enumerate(zip(runs, colours(len(runs)), strict=True)):
        by_axis = {axis: list(curves_of(run.metrics, axis)) for axis in X_AXES}
        for axis, curves in by_axis.items():
            places[axis] += [[_rounded(at) for at in xs] for _, xs, _ in curves]
        for kind, _, ys in by_axis[x]:
            traces.append(_trace(kind, ys, run, f"run {i}", colour))
    for trace, xs in zip(traces, places[x], strict=True):
        trace["x"] = xs
    return {"data": traces, "layout": _layout(x, places)}


def _trace(kind: str, ys: list[float], run: RunCurves, group: str, colour: str) -> dict[str, Any]:
    """A curve without its places."""
    name = page_text(run.name)
    alone = {"mode": "lines+markers"} if n_points(ys) == 1 and kind != BEST else {}  # a line needs two points
    return {
        "type": "scatter",
        "y": [None if math.isnan(y) else y for y in ys],
        "name": kind,
        "legendgroup": group,
        "legendgrouptitle": {"text": name + best_of(run)},
        "hovertemplate": f"{name}, {kind}<br>{_POINT}<extra></extra>",
        **{key: _coloured(value, colour) for key, value in (_LINES[kind] | alone).items()},
    }


def _coloured(value: Any, colour: str) -> Any:  # noqa: ANN401
    """The style of lines or markers, in a colour."""
    return {**value, "color": colour} if isinstance(value, dict) else value


def _layout(x: str, places: dict[str, list[list[float]]]) -> dict[str, Any]:
    quiet = {"gridcolor": "#e8e8e8", "zeroline": False, "linecolor": "#888"}
    axes = [
        {"label": label, "method": "update", "args": [{"x": places[axis]}, {"xaxis.title.text": label}]}
        for axis, label in X_AXES.items()
    ]
    scales = [
        {"label": label, "method": "relayout", "args": [{"yaxis.type": scale, "yaxis.autorange": True}]}
        for scale, label in (("log", "logarithmic"), ("linear", "linear"))
    ]
    menu = {"type": "buttons", "direction": "right", "yanchor": "bottom", "y": 1.02, "pad": {"b": 4}}
    return {
        "template": None,
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "xaxis": {**quiet, "title": {"text": X_AXES[x]}, "rangemode": "tozero"},
        "yaxis": {
            **quiet,
            "title": {"text": "perplexity"},
            "type": "log",
            "dtick": "D2",
            "tickformat": ",~r",
        },
        "legend": {"groupclick": "toggleitem", "tracegroupgap": 12},
        "margin": {"t": 60, "r": 20},
        "updatemenus": [
            {**menu, "buttons": axes, "active": list(X_AXES).index(x), "x": 0, "xanchor": "left"},
            {**menu, "buttons": scales, "active": 0, "x": 1, "xanchor": "right"},
        ],
    }


def _rounded(place: float) -> float:
    """A place with as many digits as can be seen."""
    return float(f"{place:.7g}")


FORMATS = ("html", "png", "svg")

_MOST_MARKED = 60  # points of a curve; more of them would hide it

_STYLES: dict[str, dict[str, Any]] = {
    HELDOUT: {"linewidth": 1.8, "marker": "o", "markersize": 3.5},
    BEST: {"linestyle": "none", "marker": "o", "markersize": 10, "markerfacecolor": "none"},
    SLICE: {"linewidth": 1.4, "linestyle": "--"},
    FULL: {"linewidth": 0.9, "alpha": 0.6},
    SAMPLED: {"linewidth": 1.1, "linestyle": ":", "alpha": 0.9},
}


def check_format(path: PathLike) -> str:
    """The format that the ending of a file's name says.

    Raises:
        DataError: neither HTML, PNG nor SVG.
    """
    ending = Path(path).suffix[1:].lower()
    if ending not in FORMATS:
        raise DataError(f"{path}: the file name must end in .html, .png or .svg")
    return ending


def require_drawing(form: str) -> None:
    """Check that files of a format can be drawn, before the work begins.

    Raises:
        DataError: matplotlib, or for HTML plotly, is not installed.
    """
    (require_plotly if form == "html" else require_matplotlib)()


def plot_training(runs: Sequence[RunCurves], path: PathLike, x: str = "step") -> None:
    """Draw perplexity in training, of heldout text and of training text; one colour per run.

    Args:
        runs: at least one.
        path: file to write, ``.html``, ``.png`` or ``.svg``.
        x: one of `X_AXES`; time is that since the first record of each run.

    Raises:
        DataError: what draws it is not installed, or the file has another ending or cannot be written.
    """
    form = check_format(path)
    require_drawing(form)
    if form == "html":
        return write_curves(runs, path, x)
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.add_subplot()
    handles = []
    for run, colour in zip(runs, colours(len(runs)), strict=True):
        for kind, xs, ys in curves_of(run.metrics, x):
            style = _STYLES[kind] | ({"marker": ""} if n_points(ys) > _MOST_MARKED else {})
            axes.plot(xs, ys, color=colour, label=kind, **style)
        handles.append(Line2D([], [], color=colour, linewidth=4, label=_legend_text(run)))
    drawn = {line.get_label() for line in axes.lines}
    handles += [
        Line2D([], [], color="0.3", label=kind, **style) for kind, style in _STYLES.items() if kind in drawn
    ]
    _dress(axes, X_AXES[x], whole=x in ("step", "tokens"))
    figure.legend(handles=handles, loc="outside right upper", frameon=False)
    save_figure(figure, path, form)


def _legend_text(run: RunCurves) -> str:
    """The name, none of it mathematics or a sign to be left out, and the best perplexity."""
    name = drawn_text(run.name)
    name = f" {name}" if name.startswith("_") else name
    return name + best_of(run)


def _dress(axes: Axes, label: str, whole: bool) -> None:
    """Labels, a logarithmic axis with readable numbers, and a quiet grid."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    is_wide = high > 8 * low  # few powers of ten, or none, lie in a narrow range
    axes.yaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5)) if is_wide else MaxNLocator(7, steps=[1, 2, 5, 10])
    )
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}" if y >= 100 else f"{y:g}"))
    if whole:
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.set_xlabel(label)
    axes.set_ylabel("perplexity")
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
