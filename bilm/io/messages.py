"""Text for messages: untrusted text made printable, errors of libraries without internal names, sizes.

A message quotes a value as ``{value!r:.80}``; the command line shortens its lines when it prints it.
"""

import errno
import json
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bilm.errors import BilmError

_LONG_LINE = re.compile(r"(.{700}).{100,}(.{200})")
# C0 and C1 control characters, which begin terminal control sequences, without tab and line feed; and the
# characters that change the direction of writing, with which a line can be made to read differently.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def shown(value: object) -> str:
    """Return a value as JSON, truncated for a message."""
    return printable(f"{json.dumps(value, default=str):.80}")


def message_lines(text: str) -> str:
    """Return a message as it is printed: as `printable`, and without the middle of very long lines."""
    return _LONG_LINE.sub(r"\1 ... \2", printable(text))


def printable(text: str) -> str:
    r"""Return text with control characters other than ``\n`` and ``\t`` escaped, as in `repr`."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def json_line(value: object) -> str:
    r"""Return a value as one line of JSON, with all control characters escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _CONTROL.sub(lambda match: rf"\u{ord(match[0]):04x}", text)


def reason(error: Exception) -> str:
    """Return the message of an error of TensorFlow, HDF5 or the system, one line without internal names."""
    text = getattr(error, "strerror", None) or str(getattr(error, "message", error)) or type(error).__name__
    quoted = re.search(r"error message = '([^']+)'", text)  # as HDF5 quotes the system
    return quoted[1] if quoted else re.sub(r"^\{\{.*?\}\} | \[Op:\w+\]$", "", text.splitlines()[0])


@contextmanager
def os_errors_as(failure: type[BilmError], subject: str, *others: type[Exception]) -> Iterator[None]:
    """Convert errors of the system to a `BilmError`; other errors of bilm are raised unchanged.

    Args:
        failure: class of the error to raise.
        subject: beginning of the message; a colon and the system's message follow.
        *others: classes of further errors to convert.

    Raises:
        BilmError: of the class `failure`.
    """
    errors: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except errors as error:
        is_ours = isinstance(error, BilmError)
        if is_ours and type(error) not in others:
            raise
        # TensorFlow begins with internal names.
        problem = str(error) if is_ours else reason(error).rpartition("; ")[2]
        raise failure(f"{subject}: {problem}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of Python, NumPy or TensorFlow (not imported here) means a lack of memory."""
    if type(error).__name__ == "ResourceExhaustedError":
        return os.strerror(errno.ENOSPC) not in str(error)  # also raised for a full disk
    return isinstance(error, MemoryError)


@contextmanager
def held_back(shows_on_error: bool = False) -> Iterator[None]:
    """Suppress output to standard error, also of native libraries, if this is the main thread.

    Args:
        shows_on_error: print the output after all if the block raises an `Exception`.
    """
    held = None
    if sys.stderr is not None and threading.current_thread() is threading.main_thread():
        with suppress(OSError):  # no directory for temporary files
            held = tempfile.TemporaryFile()  # noqa: SIM115
    if held is None:  # the standard error is closed, or may be that of other work
        yield
        return
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "wb") as terminal, held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        except Exception:
            if shows_on_error:
                held.seek(0)
                terminal.write(held.read())
            raise
        finally:
            sys.stderr.flush()
            os.dup2(terminal.fileno(), 2)


def number_of(count: int, noun: str) -> str:
    """Return a number of things, such as "1 line" or "2,000 lines"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size_of(n_bytes: int) -> str:
    """Return a number of bytes in kB, MB or GB."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes} bytes"
