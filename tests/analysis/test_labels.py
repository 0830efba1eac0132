"""Labels that do not cover each other."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.analysis.pictures import Series, Style, View, label_sides

FRAME = np.array([900.0, 520.0])
DIRECTIONS = {"left": -1, "bottom": -1, "center": 0, "middle": 0, "right": 1, "top": 1}


def view_of(*series):
    """A view of points (n, 2) with labels, for each series."""
    return View("", "", [Series(*points.T.tolist(), "", Style(), labels=labels) for points, labels in series])


def boxes_of(view):
    """Left, bottom, right, top of the labels that have a side, and the middles of the points, in pixels."""
    points = [np.array([series.xs, series.ys]).T for series in view.series]
    boxes = []
    for series, own, sides in zip(view.series, points, label_sides(view), strict=True):
        for point, label, side in zip(own * FRAME, series.labels, sides, strict=True):
            if side is not None:
                up, right = (DIRECTIONS[word] for word in side.split())
                size = np.array([7 * len(label), 15])
                corner = point + 9 * np.array([right, up]) - size * (1 - np.array([right, up])) / 2
                boxes.append((*corner, *(corner + size)))
    return boxes, np.concatenate(points) * FRAME


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_labels_cover_neither_each_other_nor_points(seed, n_labels):
    random = np.random.default_rng(seed)
    labels = ["x" * length for length in random.integers(1, 30, n_labels)]
    boxes, points = boxes_of(view_of((random.uniform(0.1, 0.9, (n_labels, 2)), labels)))
    assert boxes
    assert not [pair for pair in itertools.combinations(boxes, 2) if overlap(*pair)]
    marks = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    assert not [pair for pair in itertools.product(boxes, marks) if overlap(*pair)]
    assert all(left >= 0 and low >= 0 and right <= 900 and top <= 520 for left, low, right, top in boxes)


def test_a_label_without_room_is_left_out():
    assert label_sides(view_of((np.full((1, 2), 0.5), ["x" * 150]))) == [[None]]
    (sides,) = label_sides(view_of((np.full((300, 2), 0.5), ["label"] * 300)))
    assert sides[0] is not None and None in sides
    assert label_sides(view_of((np.zeros((2, 2)), []))) == [[]]
