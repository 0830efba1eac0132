"""The neighbours of a word as a picture or as a page to explore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.analysis.neighbours import Neighbours, Occurrence
from bilm.analysis.pages import drawn_text, lines_of_words, page_text, picture_format, save_figure, save_page
from bilm.io import PathLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ANGLES = (
    np.pi / 8 * np.array([0, 8, 2, 6, 14, 10, 4, 12, 1, 7, 15, 9, 3, 5, 13, 11])
)  # beside the point first


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
    a, b = some[:, None], others[None]
    is_before = np.concatenate([a[..., :2] < b[..., 2:], b[..., :2] < a[..., 2:]], axis=2)
    return np.asarray(is_before.all(axis=2))


_RADIUS = 5.0  # of a point, in pixels of the figure
_DISTANCES = (9, 13, 20, 30, 45, 65, 90)  # of labels from points; from the third on a line joins them
_JOINED = 20
_FONT = 8


def principal_plane(vectors: np.ndarray) -> np.ndarray:
    """Coordinates of vectors, (n, dim), in the plane that keeps most of their variance, (n, 2)."""
    left, scales, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    plane = (left * scales)[:, :2]
    return np.pad(plane, [(0, 0), (0, 2 - plane.shape[1])])


def plane_of_directions(vectors: np.ndarray) -> np.ndarray:
    """The directions of vectors, (n, dim), in their principal plane, (n, 2)."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return principal_plane(vectors.astype(np.float64) / np.maximum(norms, 1e-12))


def plot_vectors(
    labels: Sequence[str], vectors: np.ndarray, path: str | Path, similarities: Sequence[float] | None = None
) -> None:
    """Draw the directions of vectors in their principal plane, the first one marked.

    Labels do not cover each other. Those for which there is no room, the later ones first, are left out, and
    the picture says how many.

    Args:
        labels: one per vector.
        vectors: shape (n, dim).
        path: file to write; its ending says the format, PNG without one.
        similarities: of all but the first to the first, which are shown as colours.

    Raises:
        DataError: matplotlib is not installed, does not know the format, or the file cannot be written.
    """
    form = picture_format(path)
    from matplotlib.figure import Figure

    points = plane_of_directions(vectors)
    labels = [drawn_text(label) for label in labels]
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.add_subplot()
    if similarities is None:
        axes.scatter(points[1:, 0], points[1:, 1], color="tab:blue", s=18)
    else:
        dots = axes.scatter(points[1:, 0], points[1:, 1], c=similarities, cmap="viridis_r", s=24)
        if len(points) > 1:
            figure.colorbar(dots, label="cosine similarity", shrink=0.7, aspect=30)
    axes.scatter(points[:1, 0], points[:1, 1], color="tab:red", s=110, marker="*")
    axes.set_title(labels[0])
    axes.margins(0.2)
    axes.set_xlabel("first principal component")
    axes.set_ylabel("second principal component")
    _label(figure, axes, labels, points)
    save_figure(figure, path, form)


def _label(figure: Figure, axes: Axes, labels: Sequence[str], points: np.ndarray) -> None:
    """Write the labels where there is room for them, those further away joined to their points by a line."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    figure.set_layout_engine("none")  # the axes stay where the labels are placed for
    frame = axes.get_window_extent(canvas.get_renderer())
    pixels = axes.transData.transform(points) - [frame.x0, frame.y0]
    places = place_labels(
        pixels,
        np.array([_size_of(label, axes) for label in labels]),
        (frame.width, frame.height),
        radius=_RADIUS,
        distances=_DISTANCES,
    )
    for label, point, pixel, place in zip(labels, points, pixels, places, strict=True):
        if place is not None:
            line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.6, "shrinkA": 1, "shrinkB": 3}
            axes.annotate(
                label,
                point,
                xytext=((place.left, place.bottom) - pixel) * 72 / figure.dpi,
                textcoords="offset points",
                fontsize=_FONT,
                verticalalignment="bottom",
                arrowprops=line if place.distance >= _JOINED else None,
            )
    if None in places:
        note = f"{len(places) - places.count(None)} of {len(places)} labels; a page (.html) has them all"
        figure.text(0.995, 0.005, note, fontsize=7, color="0.4", horizontalalignment="right")


def _size_of(label: str, axes: Axes) -> tuple[float, float]:
    """Width and height of a label in pixels."""
    text = axes.text(0, 0, label, fontsize=_FONT)
    box = text.get_window_extent()
    text.remove()
    return box.width, box.height


_FRAME = (1000.0, 560.0)  # pixels of a usual window, for which labels are placed
_LETTER, _LINE = 7.0, 15.0  # pixels of a label
_PAGE_RADIUS = 6.0
_LONGEST_LABEL = 24
_LONGEST_SENTENCE = 40  # words on either side
_LONGEST_WORD = 60
_MOST_BUTTONS = 8  # more layers than that are a list to choose from
_NOTE = (
    "The words whose vectors have the smallest angles to that of the marked word (★), in the plane that "
    "keeps most of their variance. Point at a word for its sentence; drag to zoom, double-click to zoom out."
)


@dataclass(frozen=True)
class AskedWord:
    """The word whose neighbours are shown, in its sentence.

    Attributes:
        words: of the sentence.
        position: of the word, from 0.
    """

    words: list[str]
    position: int


def write_neighbours(asked: AskedWord, layers: Sequence[Neighbours], chosen: int, path: PathLike) -> None:
    """Write the neighbours of a word as a page.

    Args:
        asked: the word.
        layers: its neighbours in each layer, from 0.
        chosen: the layer that is shown first.
        path: file to write.

    Raises:
        DataError: plotly is not installed, or the file cannot be written.
    """
    parts = [page_text(word) for word in asked.words]
    parts[asked.position] = f"<mark>{parts[asked.position]}</mark>"
    save_page(
        neighbours_figure(asked, layers, chosen),
        path,
        title=f"bilm neighbours: {asked.words[asked.position]}",
        heading=" ".join(parts),
        note=_NOTE,
    )


def neighbours_figure(asked: AskedWord, layers: Sequence[Neighbours], chosen: int) -> dict[str, Any]:
    """What is drawn, as plotly's figure: for each layer a trace of its neighbours and one of the word."""
    traces: list[dict[str, Any]] = []
    ranges: list[dict[str, Any]] = []
    for number, layer in enumerate(layers):
        vectors = np.stack([layer.vector, *(one.vector for one in layer.found)])
        points = plane_of_directions(vectors)
        low, high = _limits(points)
        ranges.append({"xaxis.range": [low[0], high[0]], "yaxis.range": [low[1], high[1]]})
        labels = [asked.words[asked.position], *_labels(layer.found)]
        labels = [
            text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…" for text in labels
        ]
        sides = _sides(labels, (points - low) / (high - low) * _FRAME)
        shown = [page_text(label) if side else "" for label, side in zip(labels, sides, strict=True)]
        both = (slice(1, None), _dots(layer.found)), (slice(0, 1), _star(asked))
        for part, trace in both:
            trace |= {
                "type": "scatter",
                "mode": "markers+text",
                "x": _rounded(points[part, 0]),
                "y": _rounded(points[part, 1]),
                "text": shown[part],
                "textposition": [side or "top center" for side in sides[part]],
                "visible": number == chosen,
                "hoverinfo": "text",
                "showlegend": False,
            }
            traces.append(trace)
    return {"data": traces, "layout": _layout(ranges, chosen)}


def _dots(found: Sequence[Occurrence]) -> dict[str, Any]:
    """The neighbours, without their places."""
    similarities = [one.similarity for one in found]
    low, high = min(similarities, default=0.0), max(similarities, default=1.0)
    return {
        "hovertext": [
            f"cosine similarity {one.similarity:.4f}, line {one.line}<br>{_sentence(one.words, one.position)}"
            for one in found
        ],
        "marker": {
            "size": 2 * _PAGE_RADIUS,
            "color": [round(similarity, 4) for similarity in similarities],
            "cmin": low,
            "cmax": max(high, low + 1e-3),
            "colorscale": "Viridis",
            "reversescale": True,
            "showscale": True,
            "colorbar": {"title": {"text": "cosine<br>similarity"}, "thickness": 14, "len": 0.8},
        },
    }


def _star(asked: AskedWord) -> dict[str, Any]:
    """The word asked for, without its place."""
    return {
        "hovertext": [f"the word asked for<br>{_sentence(asked.words, asked.position)}"],
        "marker": {"size": 18, "symbol": "star", "color": "#d62728"},
        "textfont": {"color": "#d62728"},
    }


def _sentence(words: Sequence[str], position: int) -> str:
    """A sentence, or what is near the word in a long one, with the word bold."""
    start, end = max(position - _LONGEST_SENTENCE, 0), position + 1 + _LONGEST_SENTENCE
    part = [word if len(word) <= _LONGEST_WORD else f"{word[:_LONGEST_WORD]}…" for word in words[start:end]]
    before, after = ["…"] * (start > 0), ["…"] * (end < len(words))
    return lines_of_words([*before, *part, *after], position - start + len(before))


def _labels(found: Sequence[Occurrence]) -> list[str]:
    """The words; with those next to them where all are the same word."""
    words = [one.words[one.position] for one in found]
    if len({word.lower() for word in words}) > 1:
        return words
    return [" ".join(one.words[max(one.position - 1, 0) : one.position + 2]) for one in found]


def _sides(labels: Sequence[str], pixels: np.ndarray) -> list[str | None]:
    """On which side of its point each label is, as plotly calls it; None where it would cover another."""
    sizes = np.array([(_LETTER * len(label), _LINE) for label in labels])
    places = place_labels(
        pixels, sizes, _FRAME, radius=_PAGE_RADIUS, distances=(_PAGE_RADIUS + 3,), n_angles=8
    )
    return [None if place is None else _side(place.angle) for place in places]


def _side(angle: float) -> str:
    """The side of a point in the direction of an angle."""
    x, y = round(float(np.cos(angle))), round(float(np.sin(angle)))
    return f"{('middle', 'top', 'bottom')[y]} {('center', 'right', 'left')[x]}"


def _limits(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The corners of what is shown: all points, and some room around them."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = np.maximum(0.12 * (high - low), 1e-3)
    return low - room, high + room


def _layout(ranges: Sequence[dict[str, Any]], chosen: int) -> dict[str, Any]:
    n_layers = len(ranges)
    buttons = [
        {
            "label": f"layer {k}" + (" (words alone)" if k == 0 else " (top)" if k == n_layers - 1 else ""),
            "method": "update",
            "args": [{"visible": [i // 2 == k for i in range(2 * n_layers)]}, ranges[k]],
        }
        for k in range(n_layers)
    ]
    axis = {
        "showticklabels": False,
        "zeroline": False,
        "gridcolor": "#eee",
        "linecolor": "#888",
        "mirror": True,
    }
    x, y = ranges[chosen]["xaxis.range"], ranges[chosen]["yaxis.range"]
    return {
        "plot_bgcolor": "white",
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "bgcolor": "white", "bordercolor": "#888", "font": {"color": "#222"}},
        "xaxis": {**axis, "title": {"text": "first principal component"}, "range": x},
        "yaxis": {**axis, "title": {"text": "second principal component"}, "range": y},
        "margin": {"t": 50, "l": 50, "r": 20, "b": 40},
        "updatemenus": [
            {
                "type": "buttons" if n_layers <= _MOST_BUTTONS else "dropdown",
                "direction": "right" if n_layers <= _MOST_BUTTONS else "down",
                "buttons": buttons,
                "active": chosen,
                "x": 0,
                "xanchor": "left",
                "y": 1.02,
                "yanchor": "bottom",
            }
        ],
    }


def _rounded(values: np.ndarray) -> list[float]:
    return [round(value, 5) for value in values.tolist()]
