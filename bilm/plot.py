"""Pictures as files, drawn with matplotlib, which is an optional extra."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bilm.arguments import PathLike
from bilm.atomic import replacing
from bilm.errors import DataError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def require_matplotlib() -> None:
    """Find out before the work is done whether it can be drawn.

    Raises:
        DataError: matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise DataError("a plot needs matplotlib: pip install 'bilm[plot]'") from error


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
