"""Plots of vectors in two dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bilm.analysis.figures import drawn_text, picture_format, save_figure


def principal_plane(vectors: np.ndarray) -> np.ndarray:
    """Coordinates of vectors, (n, dim), in the plane that keeps most of their variance, (n, 2)."""
    left, scales, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    plane = (left * scales)[:, :2]
    return np.pad(plane, [(0, 0), (0, 2 - plane.shape[1])])


def plot_vectors(labels: Sequence[str], vectors: np.ndarray, path: str | Path) -> None:
    """Draw the directions of vectors in their principal plane, the first one marked.

    Args:
        labels: one per vector.
        vectors: shape (n, dim).
        path: file to write; its ending says the format, PNG without one.

    Raises:
        DataError: matplotlib is not installed, does not know the format, or the file cannot be written.
    """
    form = picture_format(path)
    from matplotlib.figure import Figure

    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    points = principal_plane(vectors.astype(np.float64) / np.maximum(norms, 1e-12))
    labels = [drawn_text(label) for label in labels]
    figure = Figure(figsize=(10, 6), layout="constrained")
    axes = figure.add_subplot()
    axes.scatter(points[1:, 0], points[1:, 1], color="tab:blue", s=18)
    axes.scatter(points[:1, 0], points[:1, 1], color="tab:red", s=60, marker="*")
    for label, point in zip(labels, points, strict=True):
        axes.annotate(label, point, xytext=(4, 3), textcoords="offset points", fontsize=8)
    axes.set_title(labels[0])
    axes.margins(0.25)
    save_figure(figure, path, form)
