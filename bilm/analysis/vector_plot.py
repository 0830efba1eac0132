"""Plots of vectors in two dimensions, as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bilm.analysis.figures import drawn_text, picture_format, save_figure
from bilm.analysis.labels import place_labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
