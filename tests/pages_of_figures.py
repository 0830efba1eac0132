"""Reading the pages that plotly draws."""

import json
import re
from pathlib import Path
from typing import Any


def figure_of(page: Path) -> dict[str, Any]:
    """The figure of a page."""
    _, start, rest = page.read_text("utf-8").rpartition("Plotly.newPlot(")
    assert start, "the page draws nothing"
    data, end = json.JSONDecoder().raw_decode(rest, rest.index("["))
    layout, _ = json.JSONDecoder().raw_decode(rest, rest.index("{", end))
    return {"data": data, "layout": layout}


def markup_of(page: Path) -> str:
    """A page without its scripts."""
    return re.sub(r"<script[^>]*>.*?</script>", "", page.read_text("utf-8"), flags=re.DOTALL)
