"""One description of a picture, drawn as an image or as a page, safe whatever its text."""

import re
import sys
from xml.etree import ElementTree

import pytest

from bilm.analysis.pictures import Picture, Series, Style, View, plotly_figure, save_picture
from bilm.errors import DataError
from tests.helpers import figure_of, markup_of

HOSTILE = "</script><img src=x onerror=alert(1)>&%{x}\x1b[2J\udcff\uffff$x$"
ESCAPED = "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&amp;&#37;{x}\\x1b[2J\\udcff\\uffff$x$"
LINE = Style("solid", 1.0, "circle", 4.0)


def picture(has_numbers=True, **changes):
    texts = {"name": HOSTILE, "group": HOSTILE, "labels": [HOSTILE] * 2, "hover": [f"{HOSTILE}\nmore"] * 2}
    series = Series([1, 2], [3.0, float("nan")], HOSTILE, LINE, **texts | changes)
    views = [View(HOSTILE, HOSTILE, [series]), View("other", "other", [series])]
    return Picture(HOSTILE, HOSTILE, views, has_numbers=has_numbers)


@pytest.mark.parametrize("ending", ["html", "png", "svg", "pdf"])
def test_the_text_of_a_picture_is_only_text(ending, tmp_path):
    pytest.importorskip("plotly")
    pytest.importorskip("matplotlib")
    path = tmp_path / f"a.{ending}"
    for has_numbers in (False, True):
        save_picture(picture(has_numbers), path)
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
def test_the_same_picture_has_the_same_bytes(ending, tmp_path, monkeypatch):
    pytest.importorskip("plotly")
    pytest.importorskip("matplotlib")
    for epoch in ("0", "1795240000"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)  # in place of the date, where one is written
        save_picture(picture(), tmp_path / f"{epoch}.{ending}")
    assert (tmp_path / f"0.{ending}").read_bytes() == (tmp_path / f"1795240000.{ending}").read_bytes()


def test_what_a_library_refuses_is_one_line(tmp_path):
    pytest.importorskip("matplotlib")
    with pytest.raises(DataError, match=r"a\.svg: cannot be written: [^\n]+$"):
        save_picture(picture(colour="no colour"), tmp_path / "a.svg")
    assert not any(tmp_path.iterdir())


def test_a_long_text_has_lines_on_hover():
    (trace, _) = plotly_figure(picture(hover=["word " * 30] * 2))["data"]
    assert trace["hovertext"][0].count("<br>") == 3


@pytest.mark.parametrize(("ending", "library"), [("HTML", "plotly"), ("png", "matplotlib")])
def test_without_what_draws_it(tmp_path, monkeypatch, ending, library):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=rf"a\.{ending}: needs {library}: pip install {library}$"):
        save_picture(picture(), tmp_path / f"a.{ending}")
    assert not any(tmp_path.iterdir())


def test_a_picture_that_cannot_be_written(tmp_path):
    with pytest.raises(DataError, match=r"the file name must end in \.html, \.png, \.svg or \.pdf"):
        save_picture(picture(), tmp_path / "a.docx")
    pytest.importorskip("plotly")
    with pytest.raises(DataError, match="cannot be written: No such file"):
        save_picture(picture(), tmp_path / "none" / "a.html")
