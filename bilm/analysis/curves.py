"""Training curves: perplexity of one or more runs, drawn with matplotlib, an optional extra."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.analysis.figures import drawn_text, require_matplotlib, save_figure
from bilm.errors import DataError
from bilm.io import PathLike
from bilm.run_directory.records import METRICS_FILE, HeldoutRecord, Metrics, TrainRecord, read_metrics

if TYPE_CHECKING:
    from matplotlib.axes import Axes

X_AXES = {"step": "training steps", "tokens": "tokens", "epoch": "epochs", "time": "hours"}
"""What curves are drawn against, and how the axis is labelled."""

FORMATS = ("png", "svg")

# Okabe and Ito's colours, which differ for colour-blind readers too; without their yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MOST_MARKED = 60  # points of a curve; more of them would hide it

_SAMPLED, _FULL = "training, sampled softmax", "training"
_HELDOUT, _SLICE, _BEST = "heldout", "training text, full softmax", "best heldout"
_STYLES: dict[str, dict[str, Any]] = {
    _HELDOUT: {"linewidth": 1.8, "marker": "o", "markersize": 3.5},
    _BEST: {"linestyle": "none", "marker": "o", "markersize": 10, "markerfacecolor": "none"},
    _SLICE: {"linewidth": 1.4, "linestyle": "--"},
    _FULL: {"linewidth": 0.9, "alpha": 0.6},
    _SAMPLED: {"linewidth": 1.1, "linestyle": ":", "alpha": 0.9},
}


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


def check_format(path: PathLike) -> str:
    """The format that a picture's ending says.

    Raises:
        DataError: neither PNG nor SVG.
    """
    ending = Path(path).suffix[1:].lower()
    if ending not in FORMATS:
        raise DataError(f"{path}: the file name must end in .png or .svg")
    return ending


def plot_training(runs: Sequence[RunCurves], path: PathLike, x: str = "step") -> None:
    """Draw perplexity in training, of heldout text and of training text; one colour per run.

    Args:
        runs: at least one.
        path: file to write, ``.png`` or ``.svg``.
        x: one of `X_AXES`; time is that since the first record of each run.

    Raises:
        DataError: matplotlib is not installed, or the file has another ending or cannot be written.
    """
    form = check_format(path)
    require_matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.add_subplot()
    handles = []
    for run, colour in zip(runs, _colours(len(runs)), strict=True):
        for kind, xs, ys in _curves(run.metrics, x):
            style = _STYLES[kind] | ({"marker": ""} if _n_points(ys) > _MOST_MARKED else {})
            axes.plot(xs, ys, color=colour, label=kind, **style)
        handles.append(Line2D([], [], color=colour, linewidth=4, label=_legend_text(run)))
    drawn = {line.get_label() for line in axes.lines}
    handles += [
        Line2D([], [], color="0.3", label=kind, **style) for kind, style in _STYLES.items() if kind in drawn
    ]
    _dress(axes, X_AXES[x], whole=x in ("step", "tokens"))
    figure.legend(handles=handles, loc="outside right upper", frameon=False)
    save_figure(figure, path, form)


def _colours(n_runs: int) -> Iterable[Any]:
    if n_runs <= len(_COLOURS):
        return _COLOURS[:n_runs]
    from matplotlib import colormaps

    return [colormaps["viridis"](0.95 * i / (n_runs - 1)) for i in range(n_runs)]


_Curve = tuple[str, list[float], list[float]]


def _curves(metrics: Metrics, x: str) -> Iterator[_Curve]:
    """Kind and points of each curve that a run has."""
    train, heldout = metrics.train, metrics.heldout
    places = _places(metrics, x)
    at_train = [places[one.step] for one in train]
    at_heldout = [places[one.step] for one in heldout]
    # A gap stays a gap: a call may sample the softmax and the next one not.
    curves: list[_Curve] = [
        (_SAMPLED, at_train, [one.perplexity if one.sampled else math.nan for one in train]),
        (_FULL, at_train, [math.nan if one.sampled else one.perplexity for one in train]),
        (_SLICE, at_heldout, [one.train_perplexity or math.nan for one in heldout]),
        (_HELDOUT, at_heldout, [one.perplexity for one in heldout]),
        (_BEST, at_heldout, [one.perplexity if one is metrics.best else math.nan for one in heldout]),
    ]
    return (curve for curve in curves if _n_points(curve[2]))


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


def _n_points(ys: list[float]) -> int:
    return sum(not math.isnan(y) for y in ys)


def _legend_text(run: RunCurves) -> str:
    """The name, none of it mathematics or a sign to be left out, and the best perplexity."""
    name = drawn_text(run.name)
    name = f" {name}" if name.startswith("_") else name
    best = run.metrics.best
    return name if best is None else f"{name}, best {best.perplexity:,.2f} at step {best.step:,}"


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
