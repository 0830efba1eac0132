"""The pages in a browser: they draw without a network, react, and run nothing that stands in their text."""

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


# In place of the page: its title, and how many images and traces it has and files it has fetched.
PROBE = """<script>
window.addEventListener("load", () => setTimeout(() => {
    const count = selector => document.querySelectorAll(selector).length;
    const fetched = performance.getEntriesByType("resource").length;
    const found = [document.title === "owned", count("img"), count("#plot .trace") > 0, fetched];
    document.body.innerHTML = `<pre>found ${found}</pre>`;
}, 500));
</script></body>"""


def test_page_is_drawn_offline_and_runs_no_text(tmp_path):
    page, corpus = tmp_path / "near.html", tmp_path / "corpus.txt"
    corpus.write_text(f"a dog ran\nthe cat sat on a mat\n{HOSTILE} cat\n")
    run("neighbours", "cat", f"the {HOSTILE} cat", corpus, *MODEL, "-n", 20, "--plot", page)
    page.write_text(page.read_text("utf-8").replace("</body>", PROBE), "utf-8")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000", "--dump-dom")
    command = [BROWSER, *flags, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    dom = subprocess.run(command, capture_output=True, timeout=240, check=True, text=True).stdout
    assert "<pre>found false,0,true,0</pre>" in dom, dom[-2000:]
