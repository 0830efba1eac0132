"""The neighbours of a word as a page to explore: a map for each layer, with the sentences on hover."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilm.analysis.labels import place_labels
from bilm.analysis.neighbours import Neighbours, Occurrence
from bilm.analysis.pages import lines_of_words, page_text, save_page
from bilm.analysis.vector_plot import plane_of_directions
from bilm.io import PathLike

_FRAME = (1000.0, 560.0)  # pixels of a usual window, for which labels are placed
_LETTER, _LINE = 7.0, 15.0  # pixels of a label
_RADIUS = 6.0
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
            "size": 2 * _RADIUS,
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
    places = place_labels(pixels, sizes, _FRAME, radius=_RADIUS, distances=(_RADIUS + 3,), n_angles=8)
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
