"""File input and output: text, JSON and archives with clear errors; atomic outputs; locks."""

import os
from collections.abc import Iterable

from bilm.errors import ArgumentError

PathLike = str | os.PathLike[str]
"""A path of a file."""

STDIN = "-"
"""Name of standard input."""


def is_url(path: PathLike) -> bool:
    """Return whether a path is a URL, such as ``s3://bucket/text``."""
    return "://" in os.fspath(path)


def as_patterns(text: PathLike | Iterable[PathLike], argument: str = "text") -> tuple[PathLike, ...]:
    """Return one or several patterns of files as a tuple.

    Args:
        text: a file, directory or glob, or several.
        argument: name of the argument, for errors.

    Raises:
        ArgumentError: `text` has another type, or a pattern is empty.
    """
    patterns = (text,) if isinstance(text, str | os.PathLike) else text
    patterns = tuple(patterns) if isinstance(patterns, Iterable) else (None,)
    for pattern in patterns:
        if not isinstance(pattern, str | os.PathLike) or pattern == "":
            raise ArgumentError(f"`{argument}` is {text!r:.80}; expected files, directories or globs")
    return patterns
