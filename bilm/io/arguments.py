"""What functions that take files and numbers have in common."""

from __future__ import annotations

import os

from bilm.errors import OptionsError

PathLike = str | os.PathLike[str]


def require_positive(**numbers: int) -> None:
    """Raise an `OptionsError` that names the first number below 1."""
    for name, number in numbers.items():
        if number < 1:
            raise OptionsError(f"{name} is {number}; it must be at least 1")
