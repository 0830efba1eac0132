"""Untrusted text, from files and command lines, made safe for messages and terminals."""

from __future__ import annotations

import json
import re

_LONGEST = 80  # characters of an excerpt in a message
# Terminal control sequences begin with these; line ends and tabs are text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


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


def printable(text: str, escape: str = r"\x{:02x}") -> str:
    r"""Text with its control characters escaped, all but ``\n`` and ``\t``.

    Args:
        text: any.
        escape: what takes the place of a character, by its number.
    """
    return _CONTROL.sub(lambda match: escape.format(ord(match[0])), text)


def json_line(value: object) -> str:
    r"""A value as a line of JSON, in which the control characters that JSON allows are escaped too."""
    return printable(json.dumps(value, ensure_ascii=False, allow_nan=False), r"\u{:04x}")


def cut(text: str) -> str:
    """Text as far as it fits in a message."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
