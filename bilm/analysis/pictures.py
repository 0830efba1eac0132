"""Pictures described as data, drawn by matplotlib (PNG, SVG, PDF) or by plotly as a page (HTML)."""

from __future__ import annotations

import html
import importlib.util
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.atomic import replacing
from bilm.io.messages import os_errors_as, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE = "html"
FORMATS = (PAGE, "png", "svg", "pdf")
"""The endings of the files that can be written."""


@dataclass(frozen=True)
class Style:
    """The look of a series.

    Attributes:
        dash: of its line: ``solid``, ``dot`` or ``dash``; empty for no line.
        width: of the line, in points.
        marker: of its points: ``circle``, ``circle-open`` or ``star``; empty for none.
        size: of the marker, in points.
    """

    dash: str = ""
    width: float = 1.0
    marker: str = ""
    size: float = 0.0


@dataclass(frozen=True, eq=False)
class Series:
    """Points, with a line through them or not. All texts are plain.

    Attributes:
        xs: places of the points.
        ys: places of the points, NaN where there is a gap.
        panel: label of the vertical axis that it is drawn on; each axis has a panel of its own.
        style: the look.
        colour: as ``#rrggbb``.
        values: a number for each point, which a colour shows in place of `colour`.
        name: in the legend; empty for a series that the legend leaves out.
        group: of the series, with a title in the legend; empty for none.
        labels: of the points.
        hover: of the points: text that a page shows when one is pointed at.
    """

    xs: Sequence[float]
    ys: Sequence[float]
    panel: str
    style: Style
    colour: str = "#000000"
    values: Sequence[float] | None = None
    name: str = ""
    group: str = ""
    labels: Sequence[str] = ()
    hover: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class View:
    """A choice of what is drawn: a page has a button for each, an image shows one.

    Attributes:
        name: on the button.
        x_label: of the horizontal axis.
        series: what is drawn, the later over the earlier.
    """

    name: str
    x_label: str
    series: Sequence[Series]


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture: panels below each other, the first of which is the highest.

    Attributes:
        title: above it.
        note: below the title on a page, which tells what can be done there.
        views: at least one; all of them have the same panels.
        chosen: number of the view that is shown first, or alone.
        has_numbers: whether the axes have numbers; without, all points lie between 0 and 1.
        logarithmic: panels whose axes are logarithmic where their range is wide.
        bar: what the colours of `Series.values` show.
    """

    title: str
    note: str
    views: Sequence[View]
    chosen: int = 0
    has_numbers: bool = True
    logarithmic: Sequence[str] = ()
    bar: str = ""

    def panels(self) -> dict[str, bool]:
        """The panels from the top, and whether their axes are logarithmic."""
        shown = self.views[self.chosen].series
        by_panel = {one.panel: [other for other in shown if other.panel == one.panel] for one in shown}
        return {
            panel: panel in self.logarithmic and is_logarithmic(series) for panel, series in by_panel.items()
        }


def is_logarithmic(series: Sequence[Series]) -> bool:
    """Whether values, all of them positive, have a range so wide that an axis should be logarithmic."""
    values = [y for one in series for y in one.ys if not math.isnan(y)]
    return bool(values) and 0 < 10 * min(values) < max(values)


def as_number(value: float) -> str:
    """A number at an axis."""
    return f"{value:,.10g}"


def picture_format(path: PathLike) -> str:
    """The format that the ending of a file's name says, which can be drawn here.

    Raises:
        DataError: there is no such format, or what draws it is not installed.
    """
    form = Path(path).suffix[1:].lower()
    if form not in FORMATS:
        raise DataError(f"{path}: the file name must end in .html, .png, .svg or .pdf")
    library = "plotly" if form == PAGE else "matplotlib"
    if importlib.util.find_spec(library) is None:
        raise DataError(f"{path}: needs {library}: pip install {library}")
    return form


def save_picture(picture: Picture, path: PathLike) -> None:
    """Write a picture to a file, whole or not at all.

    Args:
        picture: what is drawn.
        path: of the file; its ending says the format.

    Raises:
        DataError: the format is not known, what draws it is not installed, or the file cannot be written.
    """
    form = picture_format(path)
    cannot = os_errors_as(DataError, f"{path}: cannot be written", ValueError, ArithmeticError)
    with cannot, replacing(Path(path)) as temporary:
        if form == PAGE:
            temporary.write_text(_page(picture), "utf-8")
        else:
            from matplotlib import rc_context

            # Nothing random and no date, so that the same records give the same bytes.
            with rc_context({"svg.hashsalt": "bilm"}):
                undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
                matplotlib_figure(picture).savefig(temporary, format=form, dpi=120, metadata=undated)


# What XML, and so SVG, does not allow, besides the control characters.
_NOT_IN_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def _shown(text: str) -> str:
    """Text with the characters escaped that cannot be shown."""
    return _NOT_IN_XML.sub(lambda match: rf"\u{ord(match[0]):04x}", printable(text))


# --- images -----------------------------------------------------------------------------------------------

_MOST_MARKED = 60  # points of a line; more markers than that would hide it
_DASHES = {"solid": "-", "dot": ":", "dash": "--", "": "none"}
_MARKERS = {"circle": "o", "circle-open": "o", "star": "*", "": ""}


def matplotlib_figure(picture: Picture) -> Figure:
    """A picture as matplotlib draws it."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    view, panels = picture.views[picture.chosen], picture.panels()
    n_more = len(panels) - 1
    figure = Figure(figsize=(10, 6 + 1.2 * n_more), layout="constrained")
    grid = figure.subplots(1 + n_more, sharex=True, squeeze=False, height_ratios=[4] + n_more * [1])
    axes_of: dict[str, Axes] = dict(zip(panels, grid[:, 0], strict=True))
    groups, kinds = {}, {}
    for series in view.series:
        axes, look = axes_of[series.panel], _look(series.style)
        if series.values is None:
            marker = "" if series.style.dash and n_points(series.ys) > _MOST_MARKED else look["marker"]
            axes.plot(series.xs, series.ys, color=series.colour, **look | {"marker": marker})
        elif len(series.xs):
            size = series.style.size**2
            dots = axes.scatter(series.xs, series.ys, c=series.values, cmap="viridis_r", s=size)
            figure.colorbar(dots, label=_drawn(picture.bar), shrink=0.7, aspect=30)
        if series.group:
            groups[series.group] = {"color": series.colour, "linewidth": 4}
        if series.name:
            kinds[series.name] = {"color": "0.3", **look}
    # The title is that of the upper legend, because constrained layout does not keep other titles from it.
    title = textwrap.fill(_drawn(picture.title), 90)
    for entries, options in (
        (groups, {"loc": "outside upper center", "title": title}),
        (kinds, {"loc": "outside lower center", "ncols": 4}),
    ):
        handles = [Line2D([], [], label=_drawn(text), **look) for text, look in entries.items()]
        figure.legend(handles=handles, frameon=False, **options)
    grid[-1, 0].set_xlabel(_drawn(view.x_label))
    for panel, axes in axes_of.items():
        axes.set_ylabel(_drawn(panel if axes is grid[0, 0] else textwrap.fill(panel, 10)))
        if picture.has_numbers:
            _number_axes(axes, panels[panel])
        else:
            axes.set(xlim=(0, 1), ylim=(0, 1))
            axes.tick_params(length=0, labelbottom=False, labelleft=False)
            _write_labels(figure, axes, view)
    figure.align_ylabels()
    return figure


def n_points(ys: Sequence[float]) -> int:
    """The number of points in a series, gaps left out."""
    return sum(not math.isnan(y) for y in ys)


def _look(style: Style) -> dict[str, Any]:
    """A style as matplotlib takes it."""
    face = {"markerfacecolor": "none"} if style.marker == "circle-open" else {}
    line = {"linestyle": _DASHES[style.dash], "linewidth": style.width}
    return line | {"marker": _MARKERS[style.marker], "markersize": style.size} | face


def _drawn(text: str) -> str:
    """Text as matplotlib shows it: no mathematics, and no underscore first, which a legend leaves out."""
    text = _shown(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _number_axes(axes: Axes, is_log: bool) -> None:
    """Axes with readable numbers and a quiet grid."""
    from matplotlib.ticker import LogLocator, NullLocator

    if is_log:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1e4 * low else (1,)))
        axes.yaxis.set_minor_locator(NullLocator())
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: as_number(value))
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _write_labels(figure: Figure, axes: Axes, view: View) -> None:
    """Write the labels that have room, and how many have none."""
    sides = label_sides(view)
    for series, own in zip(view.series, sides, strict=True):
        for x, y, label, side in zip(series.xs, series.ys, series.labels, own, strict=bool(own)):
            if side is not None:
                right, up = _SIDES[side]
                axes.annotate(
                    _drawn(label),
                    (x, y),
                    (right * _GAP * 0.72, up * _GAP * 0.72),  # points, 100 pixels to the inch
                    textcoords="offset points",
                    fontsize=8,
                    horizontalalignment=("center", "left", "right")[right],
                    verticalalignment=("center", "bottom", "top")[up],
                )
    n_labels, n_missing = sum(map(len, sides)), sum(own.count(None) for own in sides)
    if n_missing:
        note = f"{n_labels - n_missing} of {n_labels} labels; a page (.html) has them all"
        figure.text(0.995, 0.005, note, fontsize=7, color="0.4", horizontalalignment="right")


# --- pages ------------------------------------------------------------------------------------------------

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 8px; color: #2a3f5f; font: 13px "Open Sans", verdana, arial, sans-serif; }}
h1 {{ font-size: 17px; font-weight: normal; overflow-wrap: anywhere; }}
@media (max-width: 600px) {{ .textpoint {{ display: none; }} }}
</style>
<body><h1>{title}</h1><p>{note}</p>{plot}</body></html>
"""


def _page(picture: Picture) -> str:
    """A picture as a page with all that it needs, for any width; a narrow one has no labels at its points."""
    from plotly.io import to_html

    # The buttons by name, since plotly's own choice has one that leads to a server.
    tools = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]
    plot = to_html(
        plotly_figure(picture),
        {"displaylogo": False, "modeBarButtons": [tools], "responsive": True},
        full_html=False,
        include_plotlyjs=True,
        validate=False,
        div_id="plot",
        default_height=f"max(85vh, {340 + 110 * len(picture.panels())}px)",
    )
    return _PAGE.format(title=_escaped(picture.title), note=_escaped(picture.note), plot=plot)


def plotly_figure(picture: Picture) -> dict[str, Any]:
    """A picture as plotly describes it: a trace for each series of each view."""
    chosen, panels = picture.views[picture.chosen], picture.panels()
    axes = {panel: str(number) if number > 1 else "" for number, panel in enumerate(panels, 1)}
    traces = [
        _trace(picture, view, series, sides) | {"visible": view is chosen, "yaxis": f"y{axes[series.panel]}"}
        for view in picture.views
        for series, sides in zip(view.series, label_sides(view), strict=True)
    ]
    frame = {"autorange": True} if picture.has_numbers else {"range": [0, 1]}
    whole = {f"{axis}.{key}": frame[key] for axis in ("xaxis", "yaxis") for key in frame}
    views = [
        {
            "label": _escaped(view.name),
            "method": "update",
            "args": [
                {"visible": [view is other for other in picture.views for _ in other.series]},
                {"xaxis.title.text": _escaped(view.x_label), **whole},
            ],
        }
        for view in picture.views
    ]
    menu = {
        "buttons": views,
        "active": picture.chosen,
        "x": 0,
        "xanchor": "left",
        "y": 1,
        "yanchor": "bottom",
    }
    quiet = {"gridcolor": "#e8e8e8", "zeroline": False, "linecolor": "#888", "automargin": True}
    quiet |= frame | {"showticklabels": picture.has_numbers}
    part = 1 / (len(panels) + 2)  # of the height, for all panels but the first
    layout: dict[str, Any] = {
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "groupclick": "toggleitem", "yref": "container", "y": 0},
        "margin": {"t": 76, "b": 50, "l": 50, "r": 10},
        "updatemenus": [menu | {"pad": {"b": 8}}],
        "xaxis": quiet | {"title": {"text": _escaped(chosen.x_label)}, "anchor": f"y{[*axes.values()][-1]}"},
    }
    for i, (panel, is_log) in enumerate(panels.items()):
        bottom = (len(panels) - 1 - i) * part
        layout[f"yaxis{axes[panel]}"] = quiet | {
            "title": {"text": _wrapped(panel, 10 if i else 99), "font": {"size": 12}},
            "domain": [bottom, bottom + 0.8 * part if i else 1],
            "tickformat": ",~r",
            **({"type": "log", "dtick": "D2"} if is_log else {}),
        }
    return {"data": traces, "layout": layout}


def _trace(picture: Picture, view: View, series: Series, sides: Sequence[str | None]) -> dict[str, Any]:
    style = series.style
    is_point = n_points(series.ys) == 1  # a line needs two
    parts = {"lines": style.dash, "markers": style.marker or is_point, "text": series.labels}
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "+".join(part for part, is_there in parts.items() if is_there),
        "x": [float(f"{x:.7g}") for x in series.xs],
        "y": [None if math.isnan(y) else y for y in series.ys],
        "line": {"width": style.width, "dash": style.dash or "solid", "color": series.colour},
        "marker": {"size": 1.5 * style.size or 6, "symbol": style.marker or "circle", "color": series.colour},
        "name": _escaped(series.name),
        "showlegend": bool(series.name),
        "legendgroup": _escaped(series.group),
        "legendgrouptitle": {"text": _wrapped(series.group, 44)},
    }
    if series.values is not None:
        bar = {"title": {"text": _escaped(picture.bar), "side": "right"}, "thickness": 14}
        scale = {"colorscale": "Viridis", "reversescale": True, "showscale": True, "colorbar": bar}
        trace["marker"] |= scale | {"color": [*series.values]}
    if series.labels:
        trace["text"] = [
            _escaped(label) if side else "" for label, side in zip(series.labels, sides, strict=True)
        ]
        trace["textposition"] = [side or "top center" for side in sides]
    if series.hover:
        trace |= {"hoverinfo": "text", "hovertext": [_wrapped(text, 44) for text in series.hover]}
    else:
        point = f"{_escaped(series.name or series.panel)}<br>%{{x:,}} {_escaped(view.x_label)}: "
        trace["hovertemplate"] = f"{point}<b>%{{y:,.5~g}}</b><extra>{_escaped(series.group)}</extra>"
    return trace


def _wrapped(text: str, width: int) -> str:
    """Text in lines that a narrow page has room for."""
    return "<br>".join(_escaped(line) for part in text.splitlines() for line in textwrap.wrap(part, width))


def _escaped(text: str) -> str:
    """Text that a page shows as it stands: no markup, HTML's or plotly's, and no template."""
    return html.escape(_shown(text), quote=False).replace("%{", "&#37;{")


# --- labels -----------------------------------------------------------------------------------------------

_FRAME = (900.0, 520.0)  # pixels of an image or a usual window
_LETTER, _LINE = 7.0, 15.0  # pixels of a label
_RADIUS, _GAP = 6.0, 9.0  # pixels that a point takes, and from its middle to its label
# Sides of a point by plotly's names, to the right and upwards; beside the point first.
_SIDES = {
    **{"middle right": (1, 0), "middle left": (-1, 0), "top right": (1, 1), "top left": (-1, 1)},
    **{"bottom right": (1, -1), "bottom left": (-1, -1), "top center": (0, 1), "bottom center": (0, -1)},
}


def label_sides(view: View) -> list[list[str | None]]:
    """Choose the sides of the points where labels cover neither each other nor points.

    The last series, which is drawn over the others, has the first choice, and in a series the first point.

    Args:
        view: its labels, which belong to points between 0 and 1, are placed as in a frame of 900 x 520
            pixels, 7 pixels a letter and 15 high, 9 pixels from the middle of a point.

    Returns:
        For each series the side of each label by plotly's name, or None where there is no room.
    """
    sides: list[list[str | None]] = [[] for _ in view.series]
    pixels = [np.column_stack([series.xs, series.ys]) * _FRAME for series in view.series]
    middles = np.concatenate(pixels)
    taken = np.concatenate([middles - _RADIUS, middles + _RADIUS], axis=1)  # left, bottom, right, top
    towards = np.array([*_SIDES.values()])
    for series, points, own in reversed([*zip(view.series, pixels, sides, strict=True)]):
        for point, label in zip(points, series.labels, strict=False):
            size = np.array([_LETTER * len(label), _LINE])
            corners = point + _GAP * towards - size * (1 - towards) / 2
            boxes = np.concatenate([corners, corners + size], axis=1)
            one, other = boxes[:, None], taken[None]
            covers = np.all((one[..., :2] < other[..., 2:]) & (other[..., :2] < one[..., 2:]), axis=2)
            is_inside = np.all(corners >= 0, axis=1) & np.all(boxes[:, 2:] <= _FRAME, axis=1)
            is_free = is_inside & ~np.any(covers, axis=1)
            best = int(np.argmax(is_free))
            own.append([*_SIDES][best] if is_free[best] else None)
            if is_free[best]:
                taken = np.concatenate([taken, boxes[best : best + 1]])
    return sides
