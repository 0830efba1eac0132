"""Error messages of libraries and of the system, without internal names."""

from __future__ import annotations

import errno
import os
import re


def reason(error: Exception) -> str:
    """The message of an error of TensorFlow, HDF5 or the system, in one line without internal names."""
    text = getattr(error, "strerror", None) or str(getattr(error, "message", error)) or type(error).__name__
    quoted = re.search(r"error message = '([^']+)'", text)  # as HDF5 quotes the system
    return quoted[1] if quoted else re.sub(r"^\{\{.*?\}\} | \[Op:\w+\]$", "", text.splitlines()[0])


def write_reason(error: Exception) -> str:
    """`reason`, for failed writes, whose messages TensorFlow prefixes with internal names."""
    return reason(error).rpartition("; ")[2]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, NumPy or TensorFlow (not imported here) means a lack of memory."""
    if type(error).__name__ == "ResourceExhaustedError":
        return os.strerror(errno.ENOSPC) not in str(error)  # a full disk is one of its resources
    return isinstance(error, MemoryError)
