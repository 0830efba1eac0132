"""Pictures as data, drawn by matplotlib (PNG, SVG, PDF) or as a page by plotly (HTML)."""

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
from bilm.io import PathLike, atomic, messages

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE = "html"


@dataclass(frozen=True)
class Style:
    """Style of a series.

    Attributes:
        dash: line style: ``solid``, ``dot`` or ``dash``; empty for no line.
        width: line width, in points.
        marker: shape of the points: ``circle``, ``circle-open`` or ``star``; empty for no markers.
        size: marker size, in points.
    """

    dash: str = ""
    width: float = 1.0
    marker: str = ""
    size: float = 0.0


@dataclass(frozen=True, eq=False)
class Series:
    """Points, with or without a line. All texts are plain.

    Attributes:
        xs: horizontal coordinates.
        ys: vertical coordinates; NaN for a gap.
        panel: panel of the series, named by the label of its vertical axis.
        style: style of line and markers.
        colour: colour, as ``#rrggbb``.
        values: number of each point, shown as its colour instead of `colour`.
        name: name in the legend; empty to omit the series.
        group: title of its group in the legend; empty for no group.
        labels: labels of the points.
        hover: texts that a page shows when the mouse is over a point.
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
    """One of several alternatives to show: a page has a menu of them, an image shows one.

    Attributes:
        name: label in the menu.
        x_label: label of the horizontal axis.
        series: series to draw, later ones over earlier ones.
    """

    name: str
    x_label: str
    series: Sequence[Series]


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture of stacked panels, the first of which is the highest.

    Attributes:
        title: text above the panels.
        note: instructions below the title of a page.
        views: one or more views, all with the same panels.
        chosen: index of the view that an image shows and a page shows first.
        has_numbers: whether the axes have numbers; without, all coordinates are between 0 and 1.
        logarithmic: panels with a logarithmic axis if the range is wide.
        bar: label of the colour bar of `Series.values`.
    """

    title: str
    note: str
    views: Sequence[View]
    chosen: int = 0
    has_numbers: bool = True
    logarithmic: Sequence[str] = ()
    bar: str = ""

    def panels(self) -> dict[str, bool]:
        """Return the panels from the top, and whether their axes are logarithmic."""
        shown = self.views[self.chosen].series
        by_panel = {item.panel: [other for other in shown if other.panel == item.panel] for item in shown}
        return {
            panel: panel in self.logarithmic and is_logarithmic(series) for panel, series in by_panel.items()
        }


def is_logarithmic(series: Sequence[Series]) -> bool:
    """Tell whether an axis should be logarithmic: all values are positive, and their ratio exceeds ten."""
    values = [y for points in series for y in points.ys if not math.isnan(y)]
    return bool(values) and 0 < 10 * min(values) < max(values)


def as_number(value: float) -> str:
    """Format a number at an axis."""
    return f"{value:,.10g}"


def picture_format(path: PathLike) -> str:
    """Return the format of a file by its extension.

    Raises:
        DataError: the extension is unknown, or the library that draws the format is not installed.
    """
    form = Path(path).suffix[1:].lower()
    if form not in (PAGE, "png", "svg", "pdf"):
        raise DataError(f"{path}: the file name must end in .html, .png, .svg or .pdf")
    library = "plotly" if form == PAGE else "matplotlib"
    if importlib.util.find_spec(library) is None:
        raise DataError(f"{path}: needs {library}: pip install {library}")
    return form


def save_picture(picture: Picture, path: PathLike, overwrite: bool = False) -> None:
    """Write a picture to a file, atomically.

    Args:
        picture: picture to write.
        path: file to write; its extension gives the format.
        overwrite: the file may exist.

    Raises:
        DataError: the format is unknown, its library is not installed, or the file cannot be written.
    """
    form = picture_format(path)
    errors = ValueError, ArithmeticError
    with atomic.writing(path, overwrite=overwrite, failure=DataError, errors=errors) as (temporary,):
        if form == PAGE:
            temporary.write_text(_page(picture), "utf-8")
        else:
            from matplotlib import rcParams, style

            # In the user's fonts, but no other style, no random ids and no dates: equal bytes each time.
            fonts: dict[Any, Any] = rcParams.find_all(r"^(font|pdf|svg)\.")
            with style.context(["default", {**fonts, "svg.hashsalt": "bilm"}]):
                undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
                matplotlib_figure(picture).savefig(temporary, format=form, dpi=120, metadata=undated)


# Characters that XML, and so SVG, forbids, besides control characters; and the mark U+FEFF, on which
# matplotlib's PDF fails.
_FORBIDDEN = re.compile("[\ud800-\udfff\ufeff\ufffe\uffff]")


def _shown(text: str) -> str:
    """Escape characters that cannot be shown."""
    return _FORBIDDEN.sub(lambda match: rf"\u{ord(match[0]):04x}", messages.printable(text))


# --- images -----------------------------------------------------------------------------------------------

_MOST_MARKED = 60  # points of a line with markers; more would hide the line
_DASHES = {"solid": "-", "dot": ":", "dash": "--", "": "none"}
_MARKERS = {"circle": "o", "circle-open": "o", "star": "*", "": ""}


def matplotlib_figure(picture: Picture) -> "Figure":
    """Draw a picture with matplotlib."""
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
            n = n_points(series.ys)  # one alone is no line
            marker = "" if series.style.dash and n > _MOST_MARKED else look["marker"] or "." * (n == 1)
            axes.plot(series.xs, series.ys, color=series.colour, **look | {"marker": marker})
        elif len(series.xs):
            size = series.style.size**2
            dots = axes.scatter(series.xs, series.ys, c=series.values, cmap="viridis_r", s=size)
            figure.colorbar(dots, label=_drawn(picture.bar), shrink=0.7, aspect=30)
        if series.group:
            groups[series.group] = {"color": series.colour, "linewidth": 4}
        if series.name:
            kinds[series.name] = {"color": "0.3", **look}
    # The upper legend carries the title: constrained layout would let another title overlap it.
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
            _write_labels(axes, view)
    figure.align_ylabels()
    return figure


def n_points(ys: Sequence[float]) -> int:
    """Count the points of a series, without gaps."""
    return sum(not math.isnan(y) for y in ys)


def _look(style: Style) -> dict[str, Any]:
    """Convert a style to the arguments of matplotlib."""
    face = {"markerfacecolor": "none"} if style.marker == "circle-open" else {}
    line = {"linestyle": _DASHES[style.dash], "linewidth": style.width}
    return line | {"marker": _MARKERS[style.marker], "markersize": style.size} | face


def _drawn(text: str) -> str:
    """Escape text for matplotlib: no mathematics, and no leading underscore, which hides a legend entry."""
    text = _shown(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _number_axes(axes: "Axes", is_log: bool) -> None:
    """Give axes readable numbers and a light grid."""
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


def _write_labels(axes: "Axes", view: View) -> None:
    """Write the labels that fit; a page shows the others when the mouse is over their points."""
    for series, own in zip(view.series, label_sides(view), strict=True):
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
    """Render a picture as a self-contained page for any width; narrow pages omit the labels of points."""
    from plotly.io import to_html

    # Named, because one of plotly's default buttons sends data to a server.
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
    """Describe a picture for plotly, with a trace for each series of each view."""
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
    menu = {"buttons": views, "active": picture.chosen, "pad": {"b": 8}}
    menu |= {"x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom"}
    quiet = {"gridcolor": "#e8e8e8", "zeroline": False, "linecolor": "#888", "automargin": True}
    quiet |= frame | {"showticklabels": picture.has_numbers}
    part = 1 / (len(panels) + 2)  # share of the height for each panel but the first
    layout: dict[str, Any] = {
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "groupclick": "toggleitem", "yref": "container", "y": 0},
        "margin": {"t": 76, "b": 50, "l": 50, "r": 10},
        "updatemenus": [menu] if len(picture.views) > 1 else [],
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
        "y": [*series.ys],
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
        pairs = zip(series.labels, sides, strict=True)
        trace["text"] = [_escaped(label) if side else "" for label, side in pairs]
        trace["textposition"] = [side or "top center" for side in sides]
    if series.hover:
        trace |= {"hoverinfo": "text", "hovertext": [_wrapped(text, 44) for text in series.hover]}
    else:
        point = f"{_escaped(series.name or series.panel)}<br>%{{x:,}} {_escaped(view.x_label)}: "
        trace["hovertemplate"] = f"{point}<b>%{{y:,.5~g}}</b><extra>{_escaped(series.group)}</extra>"
    return trace


def _wrapped(text: str, width: int) -> str:
    """Escape and wrap text for a narrow page."""
    return "<br>".join(_escaped(line) for part in text.splitlines() for line in textwrap.wrap(part, width))


def _escaped(text: str) -> str:
    """Escape text for a page: HTML, plotly's markup, and plotly's templates."""
    return html.escape(_shown(text), quote=False).replace("%{", "&#37;{")


# --- labels -----------------------------------------------------------------------------------------------

_FRAME = (900.0, 520.0)  # pixels of an image or a typical window
_LETTER, _LINE = 7.0, 15.0  # pixels of a label
_RADIUS, _GAP = 6.0, 9.0  # pixels: radius of a point, distance from its centre to its label
# Sides of a point by plotly's names, as directions (right, up), in order of preference.
_SIDES = {
    **{"middle right": (1, 0), "middle left": (-1, 0), "top right": (1, 1), "top left": (-1, 1)},
    **{"bottom right": (1, -1), "bottom left": (-1, -1), "top center": (0, 1), "bottom center": (0, -1)},
}


def label_sides(view: View) -> list[list[str | None]]:
    """Place the labels of points so that they cover neither each other nor points.

    The last series, drawn over the others, is placed first; within a series, the first point.

    Args:
        view: view whose points have coordinates between 0 and 1. The frame has 900 x 520 pixels; a label is 7
            pixels wide per letter, 15 high, and 9 from the centre of its point.

    Returns:
        For each series, the side of each label by plotly's name, or None if it does not fit.
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
            box, other = boxes[:, None], taken[None]
            covers = np.all((box[..., :2] < other[..., 2:]) & (other[..., :2] < box[..., 2:]), axis=2)
            is_inside = np.all(corners >= 0, axis=1) & np.all(boxes[:, 2:] <= _FRAME, axis=1)
            is_free = is_inside & ~np.any(covers, axis=1)
            best = int(np.argmax(is_free))
            own.append([*_SIDES][best] if is_free[best] else None)
            if is_free[best]:
                taken = np.concatenate([taken, boxes[best : best + 1]])
    return sides
