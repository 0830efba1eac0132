"""Training curves as a page to explore: values on hover, curves that can be hidden, a choice of axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bilm.analysis.pages import page_text, save_page
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
from bilm.io import PathLike

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
