"""The pages in a browser: they draw without a network, react, and run nothing that stands in their text."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

from tests.helpers import GOLDEN, heldout_line, run, train_line, write_lines

pytest.importorskip("plotly")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(BROWSERS)} is installed"),
]

CHAR = GOLDEN / "char"
HOSTILE = "<img/src=x/onerror=document.title='owned'> </script><script>document.title='owned'</script>"


def browse(page, *flags):
    """What the browser prints of a page."""
    common = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000")
    command = [BROWSER, *common, f"--user-data-dir={page.parent / 'profile'}", *flags, page.as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return done.stdout.decode()


def after(page, script):
    """What a script finds in a copy of a page."""
    copy = page.with_name("copy.html")
    text = page.read_text("utf-8")
    report = (
        f"document.body.innerHTML = '<pre id=found></pre>' + found(JSON.stringify((() => {{{script}}})()))"
    )
    escape = "const found = text => text.replace(/&/g, '&amp;').replace(/</g, '&lt;');"
    later = f"window.addEventListener('load', () => setTimeout(() => {{ {report} }}, 500))"
    probe = f"<script>{escape} {later}</script>"
    copy.write_text(text.replace("</body>", probe + "</body>"), "utf-8")
    dom = browse(copy, "--dump-dom")
    match = re.search(r'<pre id="found"></pre>(.*?)</body>', dom, re.DOTALL)
    assert match, dom[-2000:]
    return json.loads(html.unescape(match[1]))


@pytest.fixture
def near(tmp_path):
    """A page of neighbours, of a text with markup in it."""
    (tmp_path / "corpus.txt").write_text(f"a dog ran\nthe cat sat on a mat\n{HOSTILE} cat\n")
    model = ("--options-file", CHAR / "options.json", "--weight-file", CHAR / "weights.hdf5")
    page = tmp_path / "near.html"
    run("neighbours", "cat", f"the {HOSTILE} cat", tmp_path / "corpus.txt", *model, "-n", 20, "--plot", page)
    return page


@pytest.fixture
def curves(tmp_path):
    """A page of the curves of two runs."""
    for name, scale in (("one", 900.0), ("two", 500.0)):
        (tmp_path / name).mkdir()
        lines = [train_line(step, perplexity=scale / step) for step in range(1, 50)]
        lines.append(heldout_line(50, perplexity=scale, best=True))
        write_lines(tmp_path / name / "metrics.jsonl", *lines)
    run("plot", tmp_path / "one", tmp_path / "two", "--outfile", tmp_path / "curves.html")
    return tmp_path / "curves.html"


def test_neighbours_are_drawn(near):
    dom = browse(near, "--dump-dom")
    assert dom.count('<path class="point"') == 12 + 1  # words, and the star
    assert "layer 0 (words alone)" in dom and "<title>owned" not in dom


def test_a_sentence_is_shown_on_hover_and_layers_can_be_chosen(near):
    found = after(
        near,
        """
        const plot = document.getElementById("plot");
        const shown = () => plot.data.map(trace => trace.visible);
        const before = shown();
        Plotly.Fx.hover(plot, [{curveNumber: 4, pointNumber: 0}]);
        const hover = plot.querySelector(".hoverlayer").textContent;
        const button = plot.querySelectorAll(".updatemenu-button")[0];
        button.dispatchEvent(new MouseEvent("click", {bubbles: true}));
        return {before, hover, now: shown(), fetched: performance.getEntriesByType("resource").length,
                title: document.title, images: document.querySelectorAll("img").length};
        """,
    )
    assert found["before"] == [False] * 4 + [True] * 2 and found["now"] == [True] * 2 + [False] * 4
    assert "cosine similarity" in found["hover"] and "cat" in found["hover"]
    assert found["fetched"] == found["images"] == 0 and found["title"] == ""


def test_curves_are_drawn_and_the_axis_can_be_chosen(curves):
    found = after(
        curves,
        """
        const plot = document.getElementById("plot");
        Plotly.Fx.hover(plot, [{curveNumber: 0, pointNumber: 9}]);
        const hover = plot.querySelector(".hoverlayer").textContent;
        const lines = plot.querySelectorAll(".scatterlayer .trace").length;
        const button = [...plot.querySelectorAll(".updatemenu-button")].find(b => b.textContent == "epochs");
        button.dispatchEvent(new MouseEvent("click", {bubbles: true}));
        const legend = plot.querySelector(".legend").textContent;
        const tools = [...plot.querySelectorAll(".modebar-btn")].map(tool => tool.dataset.title);
        return {hover, lines, legend, tools, axis: plot.layout.xaxis.title.text};
        """,
    )
    assert found["hover"] == "one, training, sampled softmax10 training steps: 90.00"
    assert found["lines"] == 8 and found["axis"] == "epochs"
    assert found["tools"][0].startswith("Download") and not re.search("(?i)cloud|share", str(found["tools"]))
    assert len(found["tools"]) == 6
    assert "one, best 900.00 at step 50" in found["legend"]
