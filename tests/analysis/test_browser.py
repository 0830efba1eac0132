"""The pages in a browser: they draw without a network, react, and run nothing that stands in their text."""

import html
import json
import re
import shutil
import subprocess

import pytest

from tests.helpers import MODEL, run

pytest.importorskip("plotly")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason=f"no browser: none of {', '.join(BROWSERS)} is installed"),
]

HOSTILE = "<img/src=x/onerror=document.title='owned'> </script><script>document.title='owned'</script>"


# In place of the page, what the script finds in it.
PROBE = """<script>
const report = () => {
    const plot = document.getElementById("plot");
    const shown = () => plot.data.map(trace => trace.visible);
    const before = shown();
    Plotly.Fx.hover(plot, [{curveNumber: 4, pointNumber: 0}]);
    const hover = plot.querySelector(".hoverlayer").textContent;
    const click = name => plot.querySelector(name).dispatchEvent(new MouseEvent("click", {bubbles: true}));
    click(".updatemenu-header");
    click(".updatemenu-dropdown-button");
    return {before, hover, now: shown(), fetched: performance.getEntriesByType("resource").length,
            title: document.title, images: document.querySelectorAll("img").length};
};
window.addEventListener("load", () => setTimeout(() => {
    const found = JSON.stringify(report()).replace(/&/g, "&amp;").replace(/</g, "&lt;");
    document.body.innerHTML = "<pre id=found></pre>" + found;
}, 500));
</script></body>"""


def test_a_sentence_is_shown_on_hover_and_layers_can_be_chosen(tmp_path):
    """The text has markup in it."""
    page, corpus = tmp_path / "near.html", tmp_path / "corpus.txt"
    corpus.write_text(f"a dog ran\nthe cat sat on a mat\n{HOSTILE} cat\n")
    run("neighbours", "cat", f"the {HOSTILE} cat", corpus, *MODEL, "-n", 20, "--plot", page)
    page.write_text(page.read_text("utf-8").replace("</body>", PROBE), "utf-8")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom")
    command = [BROWSER, *flags, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    dom = subprocess.run(command, capture_output=True, timeout=240, check=True, text=True).stdout
    match = re.search(r'<pre id="found"></pre>(.*?)</body>', dom, re.DOTALL)
    assert match, dom[-2000:]
    found = json.loads(html.unescape(match[1]))
    assert found["before"] == [False] * 4 + [True] * 2 and found["now"] == [True] * 2 + [False] * 4
    assert "cosine similarity" in found["hover"] and "cat" in found["hover"]
    assert found["fetched"] == found["images"] == 0 and "owned" != found["title"]
