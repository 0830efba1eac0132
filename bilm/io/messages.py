"""Messages: untrusted text made safe for them, and errors of libraries without internal names."""

import errno
import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from bilm.errors import BilmError

_LONGEST = 80  # characters of an excerpt in a message
# Terminal control sequences begin with the first of these, in which line ends and tabs are text; the others
# change the direction of writing, so that a line does not say what it seems to say.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def quoted(text: str) -> str:
    r"""A word, a key or a line as Python writes it, cut to what fits in a message.

    Example:
        >>> quoted("\x1b[2Jword"), len(quoted("x" * 1000))
        ("'\\x1b[2Jword'", 80)
    """
    return cut(repr(text[: _LONGEST + 1]))


def shown(value: object) -> str:
    """A value as JSON, cut to what fits in a message."""
    return cut(printable(json.dumps(value, default=str)))


def excerpt(text: str) -> str:
    """A name as it is, where that is short and can be printed; else as `quoted`."""
    return text if text.isprintable() and len(text) <= _LONGEST else quoted(text)


def printable(text: str) -> str:
    r"""Text with its control characters escaped, all but ``\n`` and ``\t``, as Python writes them."""
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def json_line(value: object) -> str:
    r"""A value as a line of JSON, in which the control characters that JSON allows are escaped too."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _CONTROL.sub(lambda match: rf"\u{ord(match[0]):04x}", text)


def cut(text: str) -> str:
    """Text as far as it fits in a message."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def reason(error: Exception) -> str:
    """The message of an error of TensorFlow, HDF5 or the system, in one line without internal names."""
    text = getattr(error, "strerror", None) or str(getattr(error, "message", error)) or type(error).__name__
    quoted = re.search(r"error message = '([^']+)'", text)  # as HDF5 quotes the system
    return quoted[1] if quoted else re.sub(r"^\{\{.*?\}\} | \[Op:\w+\]$", "", text.splitlines()[0])


@contextmanager
def os_errors_as(failure: type[BilmError], subject: str, *others: type[Exception]) -> Iterator[None]:
    """Raise what the system refuses as an error of the user.

    Args:
        failure: the class of the error.
        subject: what the message begins with, before a colon and what the system says.
        *others: classes of errors by which a library says the same.

    Raises:
        BilmError: of that class.
    """
    errors: tuple[type[Exception], ...] = (OSError, *others)
    try:
        yield
    except errors as error:
        # TensorFlow prefixes the messages of failed writes with internal names.
        raise failure(f"{subject}: {reason(error).rpartition('; ')[2]}") from error


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, NumPy or TensorFlow (not imported here) means a lack of memory."""
    if type(error).__name__ == "ResourceExhaustedError":
        return os.strerror(errno.ENOSPC) not in str(error)  # a full disk is one of its resources
    return isinstance(error, MemoryError)


@contextmanager
def held_back(shows_on_error: bool = False) -> Iterator[None]:
    """Keep out of sight what is printed to standard error, by libraries outside Python too.

    Args:
        shows_on_error: whether to print it after all when the block raises an `Exception`.
    """
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with tempfile.TemporaryFile() as held:
            os.dup2(held.fileno(), 2)
            try:
                yield
            except Exception:
                if shows_on_error:
                    held.seek(0)
                    os.write(terminal, held.read())
                raise
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        os.close(terminal)


def size_of(n_bytes: int) -> str:
    """Bytes in readable units."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.1f} {unit}"
    return f"{n_bytes} bytes"
