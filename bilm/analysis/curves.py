"""Training curves as a picture, drawn with matplotlib, or as a page to explore, drawn with plotly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.analysis.curve_page import write_curves
from bilm.analysis.figures import drawn_text, require_matplotlib, save_figure
from bilm.analysis.pages import require_plotly
from bilm.analysis.run_curves import (
    BEST,
    FULL,
    HELDOUT,
    SAMPLED,
    SLICE,
    X_AXES,
    RunCurves,
    best_of,
    colours,
    curves_of,
    n_points,
)
from bilm.errors import DataError
from bilm.io import PathLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
