"""The differences between two JSON objects, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bilm.io.shown import excerpt, shown


def changes(before: Mapping[str, Any], after: Mapping[str, Any], section: str = "") -> list[str]:
    """Every difference, as ``lstm.dim (512 to 1024)``.

    Args:
        before: one object.
        after: the other.
        section: put before the keys.
    """
    found = []
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += changes(old, new, f"{section}{key}.")
        elif old != new:
            found.append(f"{section}{excerpt(key)} ({shown(old)} to {shown(new)})")
    return found
