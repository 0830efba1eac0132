"""Files: reading JSON and HDF5 with clear errors; outputs written whole or not at all; locks."""

import os
from collections.abc import Iterable

from bilm.errors import OptionsError

PathLike = str | os.PathLike[str]
"""What a file is given by."""

STDIN = "-"
"""The name that stands for standard input."""


def is_url(path: PathLike) -> bool:
    """Whether a path is that of another file system, such as ``s3://bucket/text``."""
    return "://" in os.fspath(path)


def as_patterns(text: PathLike | Iterable[PathLike], argument: str = "text") -> tuple[PathLike, ...]:
    """One pattern of files or several as several.

    Args:
        text: a file, directory or glob, or several.
        argument: by which it was given.

    Raises:
        OptionsError: it is something else.
    """
    patterns = (text,) if isinstance(text, str | os.PathLike) else text
    patterns = tuple(patterns) if isinstance(patterns, Iterable) else (None,)
    for pattern in patterns:
        if not isinstance(pattern, str | os.PathLike):
            raise OptionsError(f"`{argument}` is {text!r:.80}; expected files, directories or globs")
    return patterns
