"""What HDF5's errors mean."""

from __future__ import annotations

import re


def cause(error: Exception) -> str:
    """What has happened, in one line: what the system said where HDF5 quotes it."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    quoted = re.search(r"error message = '([^']+)'", text)
    return quoted[1] if quoted else text.splitlines()[0]
