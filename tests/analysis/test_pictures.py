"""One description of a picture, drawn as an image, as a page or in characters, safe whatever its text."""

import itertools
import re
import sys
from math import nan
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.analysis.curves import text_chart
from bilm.analysis.pictures import (
    Picture,
    Series,
    Style,
    View,
    label_sides,
    matplotlib_figure,
    plotly_figure,
    save_picture,
)
from bilm.errors import DataError
from tests.helpers import figure_of, markup_of

pytest.importorskip("plotly")
matplotlib = pytest.importorskip("matplotlib")

HOSTILE = "</script><img src=x onerror=alert(1)>&%{x}\x1b[2J\udcff\uffff$x$ \ufeffy"
ESCAPED = "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&amp;&#37;{x}\\x1b[2J\\udcff\\uffff$x$ \\ufeffy"
LINE = Style("solid", 1.0, "circle", 4.0)


def picture(has_numbers=True, **changes):
    texts = {"name": HOSTILE, "group": HOSTILE, "labels": [HOSTILE] * 2, "hover": [f"{HOSTILE}\nmore"] * 2}
    series = Series([1, 2], [3.0, float("nan")], HOSTILE, LINE, **texts | changes)
    views = [View(HOSTILE, HOSTILE, [series]), View("other", "other", [series])]
    return Picture(HOSTILE, HOSTILE, views, has_numbers=has_numbers)


slow = pytest.mark.slow


@pytest.mark.parametrize(
    "ending", ["html", "svg", pytest.param("png", marks=slow), pytest.param("pdf", marks=slow)]
)
def test_text_is_escaped(ending, tmp_path):
    path = tmp_path / f"a.{ending}"
    for has_numbers in (False, True):
        save_picture(picture(has_numbers), path, overwrite=has_numbers)
    if ending == "svg":
        ElementTree.parse(path)
    if ending == "html":
        trace = figure_of(path)["data"][0]
        assert trace["name"] == trace["legendgroup"] == ESCAPED
        assert [text.replace("<br>", " ") for text in trace["hovertext"]] == [f"{ESCAPED} more"] * 2
        assert trace["legendgrouptitle"]["text"].replace("<br>", " ") == ESCAPED
        assert f"<h1>{ESCAPED}</h1><p>{ESCAPED}</p>" in markup_of(path)
        assert not re.search(r"<(link|img|iframe|script [^>]*src)", markup_of(path))
        scripts = re.findall(r"<script[^>]*>(.*?)</script>", path.read_text("utf-8"), re.DOTALL)
        assert len(scripts) == path.read_text("utf-8").count("</script>") == 3  # none ends before its time


@pytest.mark.parametrize("ending", ["html", "png", "svg", "pdf"])
def test_equal_pictures_have_equal_bytes(ending, tmp_path, monkeypatch):
    for epoch in ("0", "1795240000"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)  # in place of the date, where one is written
        save_picture(picture(), tmp_path / f"{epoch}.{ending}")
        monkeypatch.setitem(matplotlib.rcParams, "axes.facecolor", "black")  # the user's style
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")  # and fonts
    save_picture(picture(), tmp_path / "fonts.svg")
    assert "<text" in (tmp_path / "fonts.svg").read_text()
    with pytest.raises(DataError, match="exists"):
        save_picture(picture(), tmp_path / f"0.{ending}")
    assert (tmp_path / f"0.{ending}").read_bytes() == (tmp_path / f"1795240000.{ending}").read_bytes()


def test_library_error_becomes_one_line(tmp_path):
    with pytest.raises(DataError, match=r"a\.svg: cannot be written: [^\n]+$"):
        save_picture(picture(colour="no colour"), tmp_path / "a.svg")
    assert not any(tmp_path.iterdir())


def test_hover_wraps_long_text():
    (trace, _) = plotly_figure(picture(hover=["word " * 30] * 2))["data"]
    assert trace["hovertext"][0].count("<br>") == 3


@pytest.mark.parametrize(("ending", "library"), [("HTML", "plotly"), ("png", "matplotlib")])
def test_missing_library_is_named(tmp_path, monkeypatch, ending, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=rf"a\.{ending}: needs {library}: pip install {library}$"):
        save_picture(picture(), tmp_path / f"a.{ending}")
    assert not any(tmp_path.iterdir())


def test_unwritable_picture_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"the file name must end in \.html, \.png, \.svg or \.pdf"):
        save_picture(picture(), tmp_path / "a.docx")
    with pytest.raises(DataError, match="is not a directory that you can write to"):
        save_picture(picture(), tmp_path / "none" / "a.html")


# --- labels ---------------------------------------------------------------------------------------


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


@settings(max_examples=40)
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


def test_labels_without_room_are_left_out():
    assert label_sides(view_of((np.full((1, 2), 0.5), ["x" * 150]))) == [[None]]
    (sides,) = label_sides(view_of((np.full((300, 2), 0.5), ["label"] * 300)))
    assert sides[0] is not None and None in sides
    below, above = label_sides(view_of(*[(np.full((9, 2), 0.5), ["label"] * 9)] * 2))
    assert above[0] is not None and {*below} == {None}
    assert label_sides(view_of((np.zeros((2, 2)), []))) == [[]]


# --- charts in characters -------------------------------------------------------------------------


CURVE = Series([0, 1, 2, 4], [10.0, 500.0, 20.0, 5000.0], "", Style(), name="a line")
MARKS = Series([0, 1, 2, 3, 4], [20.0, nan, nan, 200.0, nan], "", Style(), name="points")


def chart(*curves, title="A title", width=40, is_ascii=True):
    return text_chart(title, curves, "steps", "perplexity", width, is_ascii)


def test_chart_is_drawn():
    """Its wide range asks for a logarithmic axis, and gaps have no line."""
    title, label, *rows, axis, numbers, steps, legend = chart(("", CURVE), ("o", MARKS)).splitlines()
    assert (title, label, steps.strip(), legend) == (
        *("A title", "perplexity (logarithmic)"),
        *("steps", ". a line   o points"),
    )
    ticks = ["5,000", "2,000", "1,000", "500", "200", "100", "50", "20", "10"]
    assert [row.partition(" +")[0].strip() for row in rows if " +" in row] == ticks
    assert rows[0] == "5,000 +                                ." and rows[-1] == "   10 +."
    assert rows[7] == "  200 +      .   ..           .o" and rows[12] == "   20 +o .             ."
    assert (axis, numbers) == (
        "      ++---------------+---------------+",
        "       0               2               4",
    )


def test_gap_at_the_beginning_keeps_the_axis_logarithmic():
    assert chart(("", Series([0, 1, 2], [nan, 1.0, 100.0], "", Style()))).splitlines()[1].endswith("mic)")


def test_braille_chart_has_dots():
    lines = chart(("", Series([0, 1], [0.0, 1.0], "", Style())), is_ascii=False).splitlines()
    assert lines[2] == "  1 ┤                                ⢀⡠⠊"
    assert lines[16] == "  0 ┤⡠⠊⠁"
    assert lines[17:19] == [
        "    └┬────────────────┬────────────────┬",
        "     0               0.5               1",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 160])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_chart_fits_width(width, is_ascii):
    steps = Series([1e6, 2.5e6], [251.01, 251.04], "", Style(), name="x" * 39)
    one = Series([1e6], [251.02], "", Style(), name="y " * 30)
    lines = chart(("", steps), ("A", one), title="a title " * 20, width=width, is_ascii=is_ascii).splitlines()
    assert max(map(len, lines)) == max(width, 40)
    assert not any(line != line.rstrip() for line in lines)
    assert sum("251.0" in line for line in lines) == 4


@pytest.mark.parametrize("y", [0.0, -3.0, 1e-9, 1e308, -1e308])
def test_chart_draws_single_point(y):
    assert "o" in chart(("o", Series([5], [y], "", Style())))
    assert "o" in chart(("o", Series([5, 6], [y, 1.0], "", Style())))


def test_image_shows_the_chosen_view():
    views = [View(name, name, [Series([1, 2], [y, 9.0], "p", LINE)]) for name, y in (("a", 3.0), ("b", 4.0))]
    (axes,) = matplotlib_figure(Picture("", "", views, chosen=1)).axes
    assert axes.get_xlabel() == "b" and [*axes.lines[0].get_ydata()] == [4.0, 9.0]
    dots = Series([0.2, 0.4], [0.3, 0.5], "p", LINE, values=[1.0, 2.0], labels=["a", "b"])
    axes, bar = matplotlib_figure(Picture("", "", [View("", "", [dots])], has_numbers=False, bar="near")).axes
    assert axes.collections[0].get_offsets().tolist() == [[0.2, 0.3], [0.4, 0.5]]
    assert bar.get_ylabel() == "near"
    assert [(text.get_text(), text.xy) for text in axes.texts] == [("a", (0.2, 0.3)), ("b", (0.4, 0.5))]
    pages = [plotly_figure(Picture("", "", views[:n]))["layout"] for n in (1, 2)]
    assert [len(page["updatemenus"]) for page in pages] == [0, 1]
