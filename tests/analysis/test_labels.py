"""Labels that do not cover each other."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.analysis.neighbours import Neighbours, Occurrence, neighbours_picture
from bilm.analysis.pictures import matplotlib_figure, place_labels

FRAME = (400.0, 300.0)
RADIUS = 5.0


def placed(points, sizes, frame=FRAME):
    return place_labels(points, sizes, frame, radius=RADIUS, distances=(8, 20, 40))


def boxes_of(places, sizes):
    """Left, bottom, right, top of those that have a place."""
    found = zip(places, sizes, strict=True)
    return [(p.left, p.bottom, p.left + w, p.bottom + h) for p, (w, h) in found if p is not None]


def overlap(one, other):
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_labels_cover_neither_each_other_nor_points(seed, n_labels):
    random = np.random.default_rng(seed)
    points = random.uniform(0, 1, (n_labels, 2)) * FRAME
    sizes = random.uniform((10, 8), (150, 16), (n_labels, 2))
    boxes = boxes_of(placed(points, sizes), sizes)
    assert not [pair for pair in itertools.combinations(boxes, 2) if overlap(*pair)]
    marks = [(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in points]
    assert not [pair for pair in itertools.product(boxes, marks) if overlap(*pair)]
    assert all(left >= 0 and low >= 0 and right <= 400 and top <= 300 for left, low, right, top in boxes)


def test_a_label_stands_beside_its_point_and_the_first_have_the_choice():
    points = np.array([[100.0, 100.0], [102.0, 100.0]])
    sizes = np.full((2, 2), (60.0, 10.0))
    first, second = placed(points, sizes)
    assert (first.left, first.bottom, first.distance, first.angle) == (108.0, 95.0, 8.0, 0.0)
    assert (second.left, second.bottom, second.angle) == (34.0, 95.0, np.pi)


def test_a_label_without_room_is_left_out():
    assert placed(np.array([[200.0, 150.0]]), np.array([[500.0, 10.0]])) == [None]
    crowd = np.full((300, 2), 150.0)
    places = placed(crowd, np.full((300, 2), (80.0, 12.0)))
    assert places[0] is not None and None in places
    assert placed(np.zeros((0, 2)), np.zeros((0, 2))) == []


def test_a_picture_of_near_vectors_has_labels_apart():
    pytest.importorskip("matplotlib")
    from matplotlib.text import Text

    random = np.random.default_rng(0)
    vectors = 1 + 0.01 * random.normal(size=(30, 8)).astype(np.float32)
    words = "some words that stand in a line".split()
    found = [Occurrence(i, words, i % 6, 0.9, vector) for i, vector in enumerate(vectors[1:])]
    figure = matplotlib_figure(neighbours_picture(words, 2, [Neighbours(vectors[0], found)]))
    axes = figure.axes[0]
    for text in axes.texts:
        text.update_positions(figure.canvas.get_renderer())
    extents = [Text.get_window_extent(text).extents for text in axes.texts]  # without the lines to the points
    assert 15 < len(extents) <= 30 and axes.texts[0].get_text() == "words [that] stand"
    assert not [pair for pair in itertools.combinations(extents, 2) if overlap(*pair)]
    assert len(figure.texts) == (len(extents) < 30)  # which says how many labels there are
