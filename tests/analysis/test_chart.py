"""Charts in characters."""

from math import nan

import pytest

from bilm.analysis.chart import text_chart
from bilm.analysis.pictures import Series, Style

LINE = Series([0, 1, 2, 4], [10.0, 500.0, 20.0, 5000.0], "", Style(), name="a line")
MARKS = Series([0, 1, 2, 3, 4], [20.0, nan, nan, 200.0, nan], "", Style(), name="points")


def chart(*curves, title="A title", width=40, is_ascii=True):
    return text_chart(title, curves, "steps", "perplexity", width, is_ascii)


def test_a_chart():
    """Its wide range asks for a logarithmic axis, and gaps have no line."""
    title, label, *rows, axis, numbers, steps, legend = chart(("", LINE), ("o", MARKS)).splitlines()
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


def test_a_chart_in_braille_patterns_has_several_dots_to_a_character():
    lines = chart(("", Series([0, 1], [0.0, 1.0], "", Style())), is_ascii=False).splitlines()
    assert lines[2] == "  1 ┤                                ⢀⡠⠊"
    assert lines[16] == "  0 ┤⡠⠊⠁"
    assert lines[17:19] == [
        "    └┬────────────────┬────────────────┬",
        "     0               0.5               1",
    ]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 160])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_it_fits_the_width(width, is_ascii):
    steps = Series([1e6, 2.5e6], [251.01, 251.04], "", Style(), name="x" * 39)
    one = Series([1e6], [251.02], "", Style(), name="y " * 30)
    lines = chart(("", steps), ("A", one), title="a title " * 20, width=width, is_ascii=is_ascii).splitlines()
    assert max(map(len, lines)) == max(width, 40)
    assert not any(line != line.rstrip() for line in lines)
    assert sum("251.0" in line for line in lines) == 4


@pytest.mark.parametrize("y", [0.0, -3.0, 1e-9, 1e308, -1e308])
def test_a_single_point_is_drawn(y):
    assert "o" in chart(("o", Series([5], [y], "", Style())))
    assert "o" in chart(("o", Series([5, 6], [y, 1.0], "", Style())))
