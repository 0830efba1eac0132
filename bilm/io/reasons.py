"""The reason a library gives for a failure, as part of a message."""

from __future__ import annotations

import errno
import os
import re


def reason(error: Exception) -> str:
    """What TensorFlow, HDF5 or the system says has happened, in one line without internal names."""
    text = getattr(error, "strerror", None) or str(getattr(error, "message", error)) or type(error).__name__
    quoted = re.search(r"error message = '([^']+)'", text)  # as HDF5 quotes the system
    return quoted[1] if quoted else re.sub(r"^\{\{.*?\}\} | \[Op:\w+\]$", "", text.splitlines()[0])


def write_reason(error: Exception) -> str:
    """`reason`, of what could not be written: TensorFlow puts names of its own before it."""
    return reason(error).rpartition("; ")[2]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, NumPy or TensorFlow, which need not be imported here, found too little memory."""
    if type(error).__name__ == "ResourceExhaustedError":
        return os.strerror(errno.ENOSPC) not in str(error)  # a full disk is one of its resources
    return isinstance(error, MemoryError)
