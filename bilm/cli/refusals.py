"""Errors of the user or the system shown as one line, with status 1; a defect keeps its traceback."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import click

from bilm.errors import ArgumentError, BilmError
from bilm.io.messages import is_out_of_memory, printable, quoted, reason

TRACEBACK = "BILM_TRACEBACK"
"""The environment variable that shows the traceback instead of the line."""

_LONG_WORD = re.compile(r"(\S{100})\S{100,}(\S{100})")
_SWITCH = re.compile(r"\b(overwrite|resume|jit)=True\b")
_ARGUMENT = re.compile(r"`([a-z]+(?:_[a-z]+)*)`")


def with_flags(message: str) -> str:
    """A message of the library with its arguments, such as ``resume=True`` or `seed`, written as flags."""
    message = _SWITCH.sub(r"--\1", message)
    return _ARGUMENT.sub(lambda match: "--" + match[1].replace("_", "-"), message)


@contextmanager
def refusals() -> Iterator[None]:
    """Raise a short `click.ClickException` for errors that are not defects of the program.

    These are a `BilmError`, an `ArgumentError` as `click.UsageError`; a lack of memory; an OSError, with its
    path; a path that is not UTF-8; and a dependency that cannot be imported.
    """
    try:
        yield
    except click.ClickException as error:
        error.message = printable(_LONG_WORD.sub(r"\1...\2", error.message))  # type: ignore[misc]
        raise
    except Exception as error:
        message = _message(error)
        if message is None or os.environ.get(TRACEBACK):
            raise
        if isinstance(error, ArgumentError):
            raise click.UsageError(printable(message), _called()) from error
        raise click.ClickException(printable(message)) from error


def _called() -> click.Context:
    """The context of the command that was called; its own has ended."""
    group = click.get_current_context()
    name = group.invoked_subcommand
    if not isinstance(group.command, click.Group) or name is None:
        return group
    return click.Context(group.command.commands[name], group, name)


def _message(error: Exception) -> str | None:
    """The line for an error; None for a defect."""
    if isinstance(error, BilmError):
        return with_flags(str(error))
    if is_out_of_memory(error):
        return (
            "not enough memory; a smaller batch, preset or vocabulary needs less, and "
            f"`bilm train --dry-run` estimates how much training takes ({reason(error)})"
        )
    if isinstance(error, OSError):
        return _refused_by_the_system(error)
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return f"{quoted(error.object)}: is not UTF-8; TensorFlow needs file names in UTF-8"
    if isinstance(error, ImportError) and not (error.name or "").startswith("bilm"):
        return f"{_last_cause(error)}; is everything installed, and is memory limited (ulimit -v)?"
    return None


def _refused_by_the_system(error: OSError) -> str | None:
    if error.errno in (errno.EPIPE, errno.EBADF):  # a reader that left, which click handles; a defect
        return None
    if error.filename is None and _has_no_current_directory():
        return "the current directory no longer exists; change to another one"
    path = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return f"{path}{reason(error)}"


def _has_no_current_directory() -> bool:
    try:
        os.getcwd()
    except OSError:
        return True
    return False


def _last_cause(error: ImportError) -> str:
    """The cause of a failed import; TensorFlow wraps it in a traceback of its own."""
    causes = re.findall(r"^(?:ImportError|ModuleNotFoundError|OSError): (.+)", str(error), re.MULTILINE)
    return causes[-1] if causes else str(error).strip().splitlines()[0]
