"""Reading the pages that plotly draws."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def figure_of(page: Path) -> dict[str, Any]:
    """The figure of a page."""
    match = re.search(r'<script>Plotly\.newPlot\("plot", (.*)\);</script>', page.read_text("utf-8"))
    assert match, "the page draws nothing"
    data, layout, _ = json.loads(f"[{match[1]}]")
    return {"data": data, "layout": layout}


def markup_of(page: Path) -> str:
    """A page without its scripts."""
    return re.sub(r"<script>.*?</script>", "", page.read_text("utf-8"), flags=re.DOTALL)
