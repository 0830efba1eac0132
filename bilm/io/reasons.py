"""Error messages of libraries and of the system, without internal names."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from bilm.errors import BilmError


def reason(error: Exception) -> str:
    """The message of an error of TensorFlow, HDF5 or the system, in one line without internal names."""
    text = getattr(error, "strerror", None) or str(getattr(error, "message", error)) or type(error).__name__
    quoted = re.search(r"error message = '([^']+)'", text)  # as HDF5 quotes the system
    return quoted[1] if quoted else re.sub(r"^\{\{.*?\}\} | \[Op:\w+\]$", "", text.splitlines()[0])


@contextmanager
def os_errors_as(failure: type[BilmError], subject: str) -> Iterator[None]:
    """Raise what the system refuses as an error of the user.

    Args:
        failure: the class of the error.
        subject: what the message begins with, before a colon and what the system says.

    Raises:
        BilmError: of that class.
    """
    try:
        yield
    except OSError as error:
        raise failure(f"{subject}: {error.strerror or error}") from error


def write_reason(error: Exception) -> str:
    """`reason`, for failed writes, whose messages TensorFlow prefixes with internal names."""
    return reason(error).rpartition("; ")[2]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, NumPy or TensorFlow (not imported here) means a lack of memory."""
    if type(error).__name__ == "ResourceExhaustedError":
        return os.strerror(errno.ENOSPC) not in str(error)  # a full disk is one of its resources
    return isinstance(error, MemoryError)
