"""Pages to explore a figure: one file, safe whatever its text."""

from __future__ import annotations

import base64
import hashlib
import re
import sys

import pytest

from bilm.analysis.pages import is_page, lines_of_words, page_text, save_page
from bilm.errors import DataError
from tests.pages_of_figures import figure_of, markup_of

HOSTILE = "</script><img src=x onerror=alert(1)>&%{x}\x1b[2J\udcff"


def save(path, **changes):
    figure = {"data": [{"type": "scatter", "y": [1], "text": [HOSTILE]}], "layout": {}}
    asked = {"title": HOSTILE, "heading": page_text(HOSTILE), "note": "none"} | changes
    save_page(figure, path, **asked)


def test_the_text_of_a_page_is_no_markup(tmp_path):
    pytest.importorskip("plotly")
    save(tmp_path / "a.html")
    assert figure_of(tmp_path / "a.html")["data"][0]["text"] == [HOSTILE]
    assert "<img" not in markup_of(tmp_path / "a.html")
    assert page_text(HOSTILE) == (
        "&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt;&amp;&#37;{x}\\x1b[2J\udcff"
    )


def test_nothing_but_the_two_scripts_of_the_page_may_run_or_be_fetched(tmp_path):
    pytest.importorskip("plotly")
    save(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text("utf-8")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    (policy,) = re.findall(r'Content-Security-Policy" content="(.*?)"', page)
    assert re.findall(r"'sha256-(.*?)'", policy) == hashes and len(hashes) == 2
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert not re.search(r"<(link|img|iframe|script [^>]*src)", markup_of(tmp_path / "a.html"))


def test_a_long_sentence_has_lines():
    words = ["<b>", *["word"] * 30]
    assert lines_of_words(words[:3], 1) == "&lt;b&gt; <b>word</b> word"
    assert lines_of_words(words, 0).startswith("<b>&lt;b&gt;</b> word")
    assert lines_of_words(words, 0).count("<br>") == 2
    assert lines_of_words([], 0) == ""


def test_a_page_is_known_by_its_name():
    assert is_page("a.html") and is_page("A.HTML") and not is_page("a.png") and not is_page("html")


def test_without_plotly(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(DataError, match=r"^a page \(\.html\) needs plotly: pip install plotly$"):
        save(tmp_path / "a.html")
    assert not any(tmp_path.iterdir())


def test_a_page_that_cannot_be_written(tmp_path):
    pytest.importorskip("plotly")
    with pytest.raises(DataError, match="cannot be written: No such file"):
        save(tmp_path / "none" / "a.html")
