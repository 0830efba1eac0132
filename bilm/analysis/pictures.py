"""Pictures described as data, drawn by matplotlib (PNG, SVG, PDF) or by plotly as a page (HTML)."""

from __future__ import annotations

import html
import importlib
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.atomic import replacing
from bilm.io.messages import printable

if TYPE_CHECKING:
    import numpy as np
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
        opacity: from 0 to 1.
    """

    dash: str = ""
    width: float = 1.0
    marker: str = ""
    size: float = 0.0
    opacity: float = 1.0


@dataclass(frozen=True, eq=False)
class Series:
    """Points, with a line through them or not. All texts are plain.

    Attributes:
        xs: places of the points.
        ys: places of the points, NaN where there is a gap.
        style: the look.
        colour: as ``#rrggbb``.
        values: a number for each point, which a colour shows in place of `colour`.
        name: in the legend; empty for a series that the legend leaves out.
        group: of the series, with a title in the legend; its name alone comes before the comma.
        labels: of the points.
        hover: of the points: text that a page shows when one is pointed at.
    """

    xs: Sequence[float]
    ys: Sequence[float]
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
    """A picture.

    Attributes:
        title: above it.
        note: below the title on a page, which tells what can be done there.
        y_label: of the vertical axis.
        views: at least one.
        chosen: number of the view that is shown first, or alone.
        is_log: whether the vertical axis is logarithmic; without it the axes have no numbers.
        bar: what the colours of `Series.values` show.
    """

    title: str
    note: str
    y_label: str
    views: Sequence[View]
    chosen: int = 0
    is_log: bool = False
    bar: str = ""


def picture_format(path: PathLike) -> str:
    """The format that the ending of a file's name says, which can be drawn here.

    Raises:
        DataError: there is no such format, or what draws it is not installed.
    """
    form = Path(path).suffix[1:].lower()
    if form not in FORMATS:
        raise DataError(f"{path}: the file name must end in .html, .png, .svg or .pdf")
    if form == PAGE:
        _require("plotly", "a page (.html) needs plotly: pip install plotly")
    else:
        require_matplotlib()
    return form


def require_matplotlib() -> None:
    """Check that images can be drawn, before the work begins.

    Raises:
        DataError: matplotlib is not installed.
    """
    _require("matplotlib", "a plot needs matplotlib: pip install matplotlib")


def _require(module: str, message: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise DataError(message) from error


def save_picture(picture: Picture, path: PathLike) -> None:
    """Write a picture to a file, whole or not at all.

    Args:
        picture: what is drawn.
        path: of the file; its ending says the format.

    Raises:
        DataError: the format is not known, what draws it is not installed, or the file cannot be written.
    """
    form = picture_format(path)
    try:
        with replacing(Path(path)) as temporary:
            if form == PAGE:
                temporary.write_text(_page(picture), "utf-8")
            else:
                matplotlib_figure(picture).savefig(temporary, format=form, dpi=120)
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be drawn: {getattr(error, 'strerror', None) or error}") from error


# What XML, and so SVG, does not allow, besides the control characters.
_NOT_IN_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def _shown(text: str) -> str:
    """Text with the characters escaped that cannot be shown."""
    return _NOT_IN_XML.sub(lambda match: rf"\u{ord(match[0]):04x}", printable(text))


# --- images -----------------------------------------------------------------------------------------------

_MOST_MARKED = 60  # points of a line; more markers than that would hide it
_DASHES = {"solid": "-", "dot": ":", "dash": "--", "": "none"}
_MARKERS = {"circle": "o", "circle-open": "o", "star": "*", "": ""}
_LABEL_SIZE = 8


def matplotlib_figure(picture: Picture) -> Figure:
    """A picture as matplotlib draws it."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    view = picture.views[picture.chosen]
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.add_subplot()
    groups, kinds = {}, {}
    for series in view.series:
        look = _look(series.style)
        if series.style.dash and n_points(series.ys) > _MOST_MARKED:
            look["marker"] = ""
        if series.values is None:
            axes.plot(series.xs, series.ys, color=series.colour, label=_drawn(series.name), **look)
        elif len(series.xs):
            size = series.style.size**2
            dots = axes.scatter(series.xs, series.ys, c=series.values, cmap="viridis_r", s=size)
            figure.colorbar(dots, label=_drawn(picture.bar), shrink=0.7, aspect=30)
        if series.name:
            groups[series.group] = {"color": series.colour, "linewidth": 4}
            kinds[series.name] = {"color": "0.3", **_look(series.style)}
    handles = [Line2D([], [], label=_drawn(text), **look) for text, look in [*groups.items(), *kinds.items()]]
    if handles:
        figure.legend(handles=handles, loc="outside right upper", frameon=False)
    axes.set_xlabel(_drawn(view.x_label))
    axes.set_ylabel(_drawn(picture.y_label))
    if picture.is_log:
        _number_axes(axes)
    else:
        axes.set_title(_drawn(picture.title))
        axes.margins(0.2)
        axes.tick_params(length=0, labelbottom=False, labelleft=False)
    if any(series.labels for series in view.series):
        _write_labels(figure, axes, view)
    return figure


def n_points(ys: Sequence[float]) -> int:
    """How many points a series has, gaps left out."""
    return sum(not math.isnan(y) for y in ys)


def _look(style: Style) -> dict[str, Any]:
    """A style as matplotlib takes it."""
    look = {"linestyle": _DASHES[style.dash], "linewidth": style.width, "alpha": style.opacity}
    look |= {"marker": _MARKERS[style.marker], "markersize": style.size}
    return look | ({"markerfacecolor": "none"} if style.marker == "circle-open" else {})


def _drawn(text: str) -> str:
    """Text as matplotlib shows it: no mathematics, and no underscore first, which a legend leaves out."""
    text = _shown(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _number_axes(axes: Axes) -> None:
    """A logarithmic axis with readable numbers, counts with their powers of ten, and a quiet grid."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator, MaxNLocator, NullLocator

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    is_wide = high > 8 * low  # few powers of ten, or none, lie in a narrow range
    axes.yaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5)) if is_wide else MaxNLocator(7, steps=[1, 2, 5, 10])
    )
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}" if y >= 100 else f"{y:g}"))
    if axes.get_xlim()[1] >= 1000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=" "))
    axes.grid(color="0.9", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _write_labels(figure: Figure, axes: Axes, view: View) -> None:
    """Write the labels where there is room for them, those further away joined to their points by a line."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    figure.set_layout_engine("none")  # the axes stay where the labels are placed for
    frame = axes.get_window_extent(canvas.get_renderer())
    points, labels = _labelled(view)
    labels = [_drawn(label) for label in labels]
    pixels = axes.transData.transform(points) - [frame.x0, frame.y0]
    sizes = []
    for label in labels:
        text = axes.text(0, 0, label, fontsize=_LABEL_SIZE)
        sizes.append((text.get_window_extent().width, text.get_window_extent().height))
        text.remove()
    places = place_labels(
        pixels, np.array(sizes), (frame.width, frame.height), radius=5, distances=(9, 13, 20, 30, 45, 65, 90)
    )
    for label, point, pixel, place in zip(labels, points, pixels, places, strict=True):
        if place is not None:
            line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3}
            axes.annotate(
                label,
                point,
                xytext=((place.left, place.bottom) - pixel) * 72 / figure.dpi,
                textcoords="offset points",
                fontsize=_LABEL_SIZE,
                verticalalignment="bottom",
                arrowprops=line if place.distance >= 20 else None,
            )
    if None in places:
        note = f"{len(places) - places.count(None)} of {len(places)} labels; a page (.html) has them all"
        figure.text(0.995, 0.005, note, fontsize=7, color="0.4", horizontalalignment="right")


def _labelled(view: View) -> tuple[np.ndarray, list[str]]:
    """The points with labels, (n, 2), and these, of the last series first: it is drawn over the others."""
    import numpy as np

    labelled = [series for series in view.series if series.labels][::-1]
    points = np.array([point for series in labelled for point in zip(series.xs, series.ys, strict=True)])
    return points.reshape(-1, 2), [label for series in labelled for label in series.labels]


# --- pages ------------------------------------------------------------------------------------------------

_FRAME = (1000.0, 560.0)  # pixels of a usual window, for which labels are placed
_LETTER, _LINE = 7.0, 15.0  # pixels of a label
_MOST_BUTTONS = 8  # more views than that are a list to choose from


def _page(picture: Picture) -> str:
    """A picture as a page with all that it needs."""
    from plotly.io import to_html

    # The buttons by name, since plotly's own choice has one that leads to a server.
    tools = ["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]
    return to_html(
        plotly_figure(picture),
        {"displaylogo": False, "modeBarButtons": [tools]},
        include_plotlyjs=True,
        validate=False,
        div_id="plot",
        default_height="96vh",
    )


def plotly_figure(picture: Picture) -> dict[str, Any]:
    """A picture as plotly describes it: a trace for each series of each view."""
    ranges = [_ranges(view) for view in picture.views]
    traces = [
        _trace(picture, view, series) | {"visible": view is picture.views[picture.chosen]}
        for view in picture.views
        for series in view.series
    ]
    menu = {"type": "buttons", "direction": "right", "yanchor": "bottom", "y": 1.01}
    if len(picture.views) > _MOST_BUTTONS:
        menu |= {"type": "dropdown", "direction": "down"}
    buttons = [
        {
            "label": _escaped(view.name),
            "method": "update",
            "args": [
                {"visible": [view is other for other in picture.views for _ in other.series]},
                {"xaxis.title.text": _escaped(view.x_label), **places},
            ],
        }
        for view, places in zip(picture.views, ranges, strict=True)
    ]
    scales = [
        {"label": label, "method": "relayout", "args": [{"yaxis.type": scale, "yaxis.autorange": True}]}
        for scale, label in (("log", "logarithmic"), ("linear", "linear"))
    ]
    quiet = {"gridcolor": "#e8e8e8", "zeroline": False, "linecolor": "#888", "showticklabels": picture.is_log}
    numbers = {"type": "log", "dtick": "D2", "tickformat": ",~r"} if picture.is_log else {}
    start, label = ranges[picture.chosen], _escaped(picture.views[picture.chosen].x_label)
    return {
        "data": traces,
        "layout": {
            "title": {
                "text": f"{_escaped(picture.title)}<br><sub>{_escaped(picture.note)}</sub>",
                **{"x": 0, "xref": "paper", "y": 1, "yanchor": "top", "pad": {"t": 16}},
            },
            "plot_bgcolor": "white",
            "hovermode": "closest",
            "hoverlabel": {"align": "left"},
            "xaxis": quiet | {"title": {"text": label}, "range": start.get("xaxis.range")},
            "yaxis": quiet
            | {"title": {"text": _escaped(picture.y_label)}, "range": start.get("yaxis.range")}
            | numbers,
            "legend": {"groupclick": "toggleitem", "tracegroupgap": 12},
            "margin": {"t": 120, "b": 50, "r": 20},
            "updatemenus": [
                menu | {"buttons": buttons, "active": picture.chosen, "x": 0, "xanchor": "left"},
                *([menu | {"buttons": scales, "x": 1, "xanchor": "right"}] if picture.is_log else []),
            ],
        },
    }


def _trace(picture: Picture, view: View, series: Series) -> dict[str, Any]:
    style = series.style
    is_point = n_points(series.ys) == 1  # a line needs two
    parts = {"lines": style.dash, "markers": style.marker or is_point, "text": series.labels}
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "+".join(part for part, is_there in parts.items() if is_there),
        "x": [float(f"{x:.7g}") for x in series.xs],
        "y": [None if math.isnan(y) else y for y in series.ys],
        "opacity": style.opacity,
        "line": {"width": style.width, "dash": style.dash or "solid", "color": series.colour},
        "marker": {"size": 1.5 * style.size or 6, "symbol": style.marker or "circle", "color": series.colour},
        "name": _escaped(series.name),
        "showlegend": bool(series.name),
        "legendgroup": _escaped(series.group),
        "legendgrouptitle": {"text": _escaped(series.group)},
    }
    if series.values is not None:
        low, high = min(series.values, default=0.0), max(series.values, default=1.0)
        bar = {"title": {"text": _escaped(picture.bar)}, "thickness": 14, "len": 0.8}
        trace["marker"] |= {
            **{"color": [*series.values], "cmin": low, "cmax": max(high, low + 1e-3), "colorbar": bar},
            **{"colorscale": "Viridis", "reversescale": True, "showscale": True},
        }
    if series.labels:
        sides = _sides(view, series)
        trace["text"] = [
            _escaped(label) if side else "" for label, side in zip(series.labels, sides, strict=True)
        ]
        trace["textposition"] = [side or "top center" for side in sides]
    if series.hover:
        lines = (
            [line for part in text.splitlines() for line in textwrap.wrap(part, 72)] for text in series.hover
        )
        trace |= {"hoverinfo": "text", "hovertext": ["<br>".join(map(_escaped, some)) for some in lines]}
    else:
        group = series.group.partition(",")[0]
        point = f"%{{x:,}} {_escaped(view.x_label)}: <b>%{{y:,.2f}}</b><extra></extra>"
        trace["hovertemplate"] = f"{_escaped(group)}, {_escaped(series.name)}<br>{point}"
    return trace


def _escaped(text: str) -> str:
    """Text that a page shows as it stands: no markup, HTML's or plotly's, and no template."""
    return html.escape(_shown(text), quote=False).replace("%{", "&#37;{")


def _sides(view: View, series: Series) -> list[str | None]:
    """Sides of the points where the labels of a series are, by plotly's names; None for no room."""
    import numpy as np

    points, labels = _labelled(view)
    low, high = _corners(points)
    sizes = np.array([(_LETTER * len(label), _LINE) for label in labels])
    pixels = (points - low) / (high - low) * _FRAME
    places = place_labels(pixels, sizes, _FRAME, radius=6, distances=(9,), n_angles=8)
    before = view.series[view.series.index(series) + 1 :]
    start = sum(len(other.labels) for other in before)
    return [
        None if place is None else _side(place.angle) for place in places[start : start + len(series.labels)]
    ]


def _side(angle: float) -> str:
    """The side of a point in the direction of an angle."""
    x, y = round(math.cos(angle)), round(math.sin(angle))
    return f"{('middle', 'top', 'bottom')[y]} {('center', 'right', 'left')[x]}"


def _ranges(view: View) -> dict[str, Any]:
    """Ranges of the axes; plotly finds them unless there are labels, for which it leaves no room."""
    points, labels = _labelled(view)
    if not labels:
        return {"xaxis.autorange": True, "yaxis.autorange": True}
    low, high = _corners(points)
    return {"xaxis.range": [low[0], high[0]], "yaxis.range": [low[1], high[1]]}


def _corners(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lower left and the upper right corner of what is shown: all points, and some room around them."""
    import numpy as np

    low, high = points.min(axis=0), points.max(axis=0)
    room = np.maximum(0.12 * (high - low), 1e-3)
    return low - room, high + room


# --- labels -----------------------------------------------------------------------------------------------

# Beside the point first.
_ANGLES = [math.pi / 8 * k for k in (0, 8, 2, 6, 14, 10, 4, 12, 1, 7, 15, 9, 3, 5, 13, 11)]


@dataclass(frozen=True)
class Place:
    """Where a label is, in the units of the points.

    Attributes:
        left: its left edge.
        bottom: its lower edge.
        distance: from the point to its nearest edge or corner.
        angle: in which direction it is from the point, from 0 to the right, counterclockwise.
    """

    left: float
    bottom: float
    distance: float
    angle: float


def place_labels(
    points: np.ndarray,
    sizes: np.ndarray,
    frame: tuple[float, float],
    *,
    radius: float,
    distances: Sequence[float],
    n_angles: int = 16,
) -> list[Place | None]:
    """Find a place for each label, in the order given, as near to its point as there is one.

    Args:
        points: (n, 2), x to the right and y upwards from the lower left corner of the frame.
        sizes: (n, 2), widths and heights of the labels.
        frame: width and height, within which the labels stay.
        radius: of what marks the points.
        distances: between the point and its label that are tried, in this order.
        n_angles: directions from the point that are tried, 8 or 16.

    Returns:
        A place for each label, or None where none is free.
    """
    import numpy as np

    taken = np.concatenate([points - radius, points + radius], axis=1)  # left, bottom, right, top
    steps = np.array([(distance, angle) for distance in distances for angle in _ANGLES[:n_angles]])
    towards = np.stack([np.cos(steps[:, 1]), np.sin(steps[:, 1])], axis=1)
    places: list[Place | None] = []
    for point, size in zip(points, sizes, strict=True):
        corners = point + steps[:, :1] * towards - size * (1 - towards) / 2
        boxes = np.concatenate([corners, corners + size], axis=1)
        is_inside = (corners >= 0).all(axis=1) & (boxes[:, 2:] <= frame).all(axis=1)
        is_free = is_inside & ~_overlap(boxes, taken).any(axis=1)
        if not is_free.any():
            places.append(None)
            continue
        best = int(np.argmax(is_free))
        places.append(Place(*corners[best].tolist(), *steps[best].tolist()))
        taken = np.concatenate([taken, boxes[best : best + 1]])
    return places


def _overlap(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Which boxes have a part in common, bool (some, others)."""
    import numpy as np

    a, b = some[:, None], others[None]
    is_before = np.concatenate([a[..., :2] < b[..., 2:], b[..., :2] < a[..., 2:]], axis=2)
    return np.asarray(is_before.all(axis=2))
