"""The standard streams of the process: closed ones replaced, failing ones no end to a long job."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class StandardStream(io.FileIO):
    """The raw stream behind a standard stream.

    Once a write has failed, nothing more is written: later output, and what a buffer still holds
    when the interpreter ends, is dropped.

    Args:
        descriptor: 1 or 2; stays open.
        title: name of the stream in messages.
        is_dispensable: whether work continues without it; otherwise the first failure is raised.
    """

    def __init__(self, descriptor: int, title: str, is_dispensable: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.title = title
        self.is_dispensable = is_dispensable
        self.has_failed = False

    def write(self, data: ReadableBuffer, /) -> int:
        """Write bytes, or drop them.

        Raises:
            OSError: the first time that it fails, with the title as file name.
        """
        if self.has_failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self.has_failed = True
            if not self.is_dispensable:
                raise OSError(error.errno, error.strerror, self.title) from error
            if self.title == "standard output":
                click.echo(f"{self.title}: {error.strerror}; continuing without it", err=True)
            return memoryview(data).nbytes


def guard_standard_streams() -> None:
    """Put `StandardStream` behind standard output and error; open closed streams on the null device.

    No file that is opened later gets the number of a standard stream. Diagnostics are dispensable in
    every command; standard output is what most commands are for, see `go_on_without_output`.
    """
    descriptors = [
        number if getattr(sys, name) is not None else os.open(os.devnull, os.O_RDWR)  # the lowest free number
        for number, name in enumerate(("stdin", "stdout", "stderr"))
    ]
    if sys.stdin is None:
        sys.stdin = open(descriptors[0], encoding="utf-8", closefd=False)
    sys.stdout = _text(StandardStream(descriptors[1], "standard output", False), sys.stdout)
    sys.stderr = _text(StandardStream(descriptors[2], "standard error", True), sys.stderr)


def go_on_without_output() -> None:
    """Let a job whose results are files survive the loss of standard output, which is reported once."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    if isinstance(raw, StandardStream):
        raw.is_dispensable = True


def _text(raw: StandardStream, before: TextIO | None) -> io.TextIOWrapper:
    """A text stream with its former encoding; characters that this lacks are escaped."""
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding="utf-8" if before is None else before.encoding,
        errors="backslashreplace",
        line_buffering=raw.isatty() or raw.is_dispensable,
    )
