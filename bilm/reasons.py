"""Why a library failed, in its own words."""

from __future__ import annotations

import re


def reason(error: Exception) -> str:
    """What TensorFlow, HDF5 or the system says has happened, in one line without internal names."""
    text = getattr(error, "strerror", None) or str(getattr(error, "message", error)) or type(error).__name__
    quoted = re.search(r"error message = '([^']+)'", text)  # as HDF5 quotes the system
    return quoted[1] if quoted else re.sub(r"^\{\{.*?\}\} | \[Op:\w+\]$", "", text.splitlines()[0])


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or TensorFlow, which need not be imported here, found too little memory."""
    return isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"
