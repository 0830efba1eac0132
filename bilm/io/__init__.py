"""File input and output: text, JSON and archives with clear errors; atomic outputs; locks."""

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from bilm.errors import ArgumentError

PathLike = str | os.PathLike[str]
"""A path of a file."""

_Item = TypeVar("_Item")

STDIN = "-"
"""Name of standard input."""


def is_url(path: PathLike) -> bool:
    """Return whether a path is a URL, such as ``s3://bucket/text``."""
    return "://" in os.fspath(path)


def as_patterns(text: PathLike | Iterable[PathLike], argument: str) -> tuple[str, ...]:
    """Return the patterns of the files of a text as strings; called once by each function that takes a text.

    Args:
        text: a file, directory or glob, or several, such as a generator or an array of NumPy.
        argument: name of the argument, for errors.

    Raises:
        ArgumentError: `text` has another type, or a pattern is empty.
    """
    try:
        patterns: tuple[Any, ...] = (
            (text,) if isinstance(text, str | os.PathLike | Mapping | io.IOBase) else tuple(text)
        )
    except TypeError:
        patterns = (None,)
    for pattern in patterns:
        if not isinstance(pattern, str | os.PathLike) or pattern == "":
            raise ArgumentError(f"`{argument}` is {text!r:.80}; expected files, directories or globs")
    return tuple(str(os.fsdecode(pattern)) for pattern in patterns)


def in_groups(
    items: Iterable[_Item], size_of: Callable[[_Item], int], least: float, multiple: int = 1
) -> Iterator[list[_Item]]:
    """Yield consecutive items in lists whose sizes reach `least` in all, except for the last list.

    The number of items in each of the others is a multiple of `multiple`.
    """
    group: list[_Item] = []
    size = 0
    for item in items:
        group.append(item)
        size += size_of(item)
        if size >= least and len(group) % multiple == 0:
            yield group
            group, size = [], 0
    if group:
        yield group
