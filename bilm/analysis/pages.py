"""Pictures drawn with matplotlib, and pages to explore drawn by plotly, saved to files."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.atomic import replacing
from bilm.io.messages import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What XML, and so SVG, does not allow, besides the control characters.
_NOT_IN_XML = re.compile("[\ud800-\udfff\ufffe\uffff]")


def require_matplotlib() -> None:
    """Check that figures can be drawn, before the work begins.

    Raises:
        DataError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise DataError("a plot needs matplotlib: pip install matplotlib") from error


def picture_format(path: PathLike) -> str:
    """The format given by the ending of an image's name; PNG without one.

    Raises:
        DataError: matplotlib is not installed, or does not know the format.
    """
    require_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    form = Path(path).suffix[1:].lower() or "png"
    known = FigureCanvasBase.get_supported_filetypes()
    if form not in known:
        raise DataError(
            f"{path}: cannot be drawn: the file name must end in one of {', '.join(sorted([*known, 'html']))}"
        )
    return form


def drawn_text(text: str) -> str:
    """Text that can be drawn: without mathematics, and without characters that SVG does not allow."""
    escaped = _NOT_IN_XML.sub(lambda match: rf"\u{ord(match[0]):04x}", printable(text))
    return escaped.replace("$", r"\$")


def save_figure(figure: Figure, path: PathLike, form: str) -> None:
    """Write a figure to a file, whole or not at all.

    Raises:
        DataError: matplotlib does not know the format, or the file cannot be written.
    """
    try:
        with replacing(Path(path)) as temporary:
            figure.savefig(temporary, format=form, dpi=120)
    except DataError:
        raise
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be drawn: {getattr(error, 'strerror', None) or error}") from error


PlotlyFigure = Mapping[str, Any]
"""What plotly calls a figure: ``data``, a list of traces, and ``layout``."""

# The policy lets nothing be fetched and no other script run, whatever the page's text is.
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {hashes}; \
style-src 'unsafe-inline'; img-src data: blob:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ margin: 1rem 1.5rem; font-family: "Open Sans", verdana, arial, sans-serif; color: #222; }}
h1 {{ margin: 0; font-size: 1.15rem; font-weight: normal; overflow-wrap: anywhere; }}
p {{ margin: 0.3rem 0; font-size: 0.85rem; color: #555; }}
mark {{ background: #ffe9a8; font-weight: bold; }}
#plot {{ height: calc(100vh - 6.5rem); min-height: 26rem; }}
</style>
</head>
<body>
<h1>{heading}</h1>
<p>{note}</p>
<div id="plot"><noscript>The figure is drawn by JavaScript, which is turned off.</noscript></div>
<script>{library}</script>
<script>{drawing}</script>
</body>
</html>
"""
# The buttons by name, since plotly's own choice has one that sends the figure to a server.
_CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "plotlyServerURL": "",
    "modeBarButtons": [["toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
}


def require_plotly() -> None:
    """Check that pages can be drawn, before the work begins.

    Raises:
        DataError: plotly is not installed.
    """
    try:
        import plotly.offline  # noqa: F401
    except ImportError as error:
        raise DataError("a page (.html) needs plotly: pip install plotly") from error


def is_page(path: PathLike) -> bool:
    """Whether a file of this name is a page, by its ending."""
    return Path(path).suffix.lower() == ".html"


def page_text(text: str) -> str:
    """Text between tags that is shown as it stands: no markup, HTML's or plotly's, and no template."""
    return html.escape(printable(text), quote=False).replace("%{", "&#37;{")


def lines_of_words(words: Sequence[str], marked: int, width: int = 72) -> str:
    """A sentence as lines of about so many characters, one of its words bold, in plotly's markup."""
    lines, length = [""], 0
    for i, word in enumerate(words):
        if length and length + len(word) > width:
            lines.append("")
            length = 0
        text = f"<b>{page_text(word)}</b>" if i == marked else page_text(word)
        lines[-1] += f" {text}" if length else text
        length += len(word) + 1
    return "<br>".join(lines)


def save_page(figure: PlotlyFigure, path: PathLike, *, title: str, heading: str, note: str) -> None:
    """Write a figure and what draws it to an HTML file, whole or not at all.

    Args:
        figure: as plotly's JSON.
        path: the file.
        title: of the page, as text.
        heading: above the figure, as HTML.
        note: below the heading, as HTML.

    Raises:
        DataError: plotly is not installed, or the file cannot be written.
    """
    require_plotly()
    from plotly.offline import get_plotlyjs

    scripts = get_plotlyjs(), _drawing(figure)
    page = _PAGE.format(
        title=page_text(title),
        heading=heading,
        note=note,
        library=scripts[0],
        drawing=scripts[1],
        hashes=" ".join(map(_hash, scripts)),
    )
    try:
        with replacing(Path(path)) as temporary:
            temporary.write_bytes(page.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error


def _drawing(figure: PlotlyFigure) -> str:
    """The script that draws the figure; in it nothing of its text is markup."""
    parts = [json.dumps(part, allow_nan=False) for part in (figure["data"], figure["layout"], _CONFIG)]
    call = f'Plotly.newPlot("plot", {", ".join(parts)});'
    return call.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def _hash(script: str) -> str:
    """A script as a content security policy names it."""
    digest = hashlib.sha256(script.encode("utf-8", "backslashreplace")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
