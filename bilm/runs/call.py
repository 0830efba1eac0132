"""A running call of train or restart: its settings, its reporter, the resources that it holds."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import tensorflow as tf

from bilm.data.corpus import find_files
from bilm.errors import ArgumentError
from bilm.io import PathLike
from bilm.io.shards import spooled
from bilm.options import Options
from bilm.run_directory.directory import writing
from bilm.runs.reporter import Reporter
from bilm.runs.settings import SettingsArguments, TrainingSettings
from bilm.training.workers import Worker

_RUNNING = threading.Lock()  # of the process: TensorFlow's settings are


class StopQuestion:
    """Whether a call is to stop: because it is asked to, or because its time is nearly over.

    It stops before the time by the longest that has passed between two questions: a step, a save or both.

    Args:
        should_stop: whether somebody asks.
        seconds: that the call may take, or None.

    Attributes:
        reason: why to stop; None where nobody asked this process.
    """

    def __init__(self, should_stop: Callable[[], bool] | None = None, seconds: float | None = None) -> None:
        self._should_stop = should_stop or (lambda: False)
        self.until = None if seconds is None else time.monotonic() + seconds
        self.reason: str | None = None
        self._longest = 0.0
        self.begin()

    def begin(self) -> None:
        """The first step begins; the time before it was not a step."""
        self._asked = time.monotonic()

    def __call__(self) -> bool:
        """Whether to stop now."""
        now = time.monotonic()
        self._longest, self._asked = max(self._longest, now - self._asked), now
        if self._should_stop():
            self.reason = self.reason or "was asked to"
        if self.until is not None and now + self._longest >= self.until:
            self.reason = self.reason or "the time allowed by `max_time` is nearly over"
        return self.reason is not None


class TrainingCall:
    """A context, at whose end everything that the call holds open is closed.

    Args:
        kind: ``train`` or ``restart``.
        settings: see `TrainingSettings.of`.
        reporter: receives the progress of the call; None for the logger.
        should_stop: asked after each step.
        others: the further arguments, for the record of the call.

    Raises:
        OptionsError: as `TrainingSettings.of`.
    """

    def __init__(
        self,
        kind: str,
        settings: SettingsArguments,
        reporter: Reporter | None,
        should_stop: Callable[[], bool] | None,
        others: Mapping[str, Any],
    ) -> None:
        self.kind = kind
        self.settings = TrainingSettings.of(settings)
        self.reporter = reporter or Reporter()
        self.stop = StopQuestion(should_stop, self.settings.max_time)
        self.command = self.reporter.command or _in_python(kind, {**others, **settings})
        self.worker = Worker.from_environment()
        self._resources = ExitStack()

    def __enter__(self) -> TrainingCall:
        """Be the one call that trains in this process.

        Raises:
            ArgumentError: another one does.
        """
        if not _RUNNING.acquire(blocking=False):
            raise ArgumentError(f"`bilm.{self.kind}`: another call trains in this process; wait for its end")
        self._resources.callback(_RUNNING.release)
        allows_tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
        self._resources.callback(tf.config.experimental.enable_tensor_float_32_execution, allows_tf32)
        return self

    def __exit__(self, *error: object) -> None:
        """Close what is held open, and leave the process as it was."""
        self._resources.close()

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes."""
        return not self.settings.dry_run and self.worker.is_chief

    def write_in(self, save_dir: Path) -> None:
        """Be the one process that writes in a run directory, until the call ends.

        Raises:
            CheckpointError: another process does, or it cannot be written.
        """
        if self.writes:
            self._resources.enter_context(writing(save_dir))

    def input_files(self, patterns: Sequence[PathLike]) -> tuple[Path, ...]:
        """The files of text patterns; those that can be read only once are kept until the call ends."""
        return find_files(self._resources.enter_context(spooled_input(patterns)))


def spooled_input(patterns: Sequence[PathLike]) -> AbstractContextManager[tuple[PathLike, ...]]:
    """`bilm.io.shards.spooled` with the standard input of this process, which may have none."""
    return spooled(patterns, getattr(sys.stdin, "buffer", None) or io.BytesIO())


def _in_python(kind: str, arguments: Mapping[str, Any]) -> str:
    """The call as it is written in Python."""
    shown = {name: _written(value) for name, value in arguments.items() if value is not None}
    return f"bilm.{kind}({', '.join(f'{name}={value}' for name, value in shown.items())})"


def _written(value: object) -> str:
    if isinstance(value, Options):
        return "Options(...)"
    return repr(os.fspath(value) if isinstance(value, os.PathLike) else value)
