"""Figures saved to files with matplotlib, which is an optional extra."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.errors import DataError
from bilm.io import PathLike
from bilm.io.atomic import replacing
from bilm.io.shown import printable

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
