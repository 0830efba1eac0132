"""Labels next to points, placed so that they cover neither each other nor the points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
