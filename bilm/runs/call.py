"""A running call of train or restart: its settings, what it holds open, and the texts that it reads."""

from __future__ import annotations

import inspect
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from bilm.data import corpus
from bilm.data.pipeline import Batch, evaluation_batches
from bilm.errors import ArgumentError, DataError
from bilm.io import PathLike, background, shards
from bilm.options import Options
from bilm.runs.reporter import Reporter
from bilm.runs.settings import TrainingSettings, as_patterns
from bilm.training.workers import Worker
from bilm.vocabulary.vocabulary import Vocabulary

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


class TrainingCall(ExitStack):
    """A context, at whose end everything that the call holds open is closed.

    Args:
        function: `bilm.train` or `bilm.restart`.
        arguments: all of the function, by name.

    Attributes:
        kind: the name of the function.
        arguments: by name, settings too, but not those that are as in their defaults, nor callbacks.
        settings: see `TrainingSettings.of`.
        reporter: receives the progress of the call.
        stop: asked after each step.
        command: for the record of the call.
        worker: this process, of the job that it is part of.

    Raises:
        OptionsError: as `TrainingSettings.of`.
    """

    def __init__(self, function: Callable[..., object], arguments: Mapping[str, Any]) -> None:
        super().__init__()
        self.kind = function.__name__
        defaults = {name: one.default for name, one in inspect.signature(function).parameters.items()}
        local = {"settings", "ray", "reporter", "should_stop"}
        self.arguments = {
            name: value
            for name, value in {**arguments, **arguments["settings"]}.items()
            if name not in local and value != defaults.get(name)
        }
        self.settings = TrainingSettings.of(arguments["settings"])
        self.reporter: Reporter = arguments["reporter"] or Reporter()
        self.stop = StopQuestion(arguments["should_stop"], self.settings.max_time)
        self.command = self.reporter.command or self._in_python()
        self.worker = Worker.from_environment()

    def __enter__(self) -> TrainingCall:
        """Be the one call that trains in this process.

        Raises:
            ArgumentError: another one does.
        """
        if not _RUNNING.acquire(blocking=False):
            raise ArgumentError(f"`bilm.{self.kind}`: another call trains in this process; wait for its end")
        self.callback(_RUNNING.release)
        allows_tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
        self.callback(tf.config.experimental.enable_tensor_float_32_execution, allows_tf32)
        return self

    def _in_python(self) -> str:
        """The call as it is written in Python."""
        written = (f"{name}={_written(value)}" for name, value in self.arguments.items())
        return f"bilm.{self.kind}({', '.join(written)})"

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes."""
        return not self.settings.dry_run and self.worker.is_chief


def _written(value: object) -> str:
    if isinstance(value, Options):
        return "Options(...)"
    return repr(os.fspath(value) if isinstance(value, os.PathLike) else value)


@dataclass(frozen=True)
class Text:
    """A corpus that was read once, and its vocabulary."""

    files: tuple[Path, ...]
    vocabulary: Vocabulary
    counts: corpus.CorpusCounts

    def batches(
        self, options: Options, *, compat: bool = False, max_tokens: int | None = None
    ) -> Iterator[Batch]:
        """One pass to be scored, made in the background; see `bilm.data.pipeline.evaluation_batches`.

        The text must be as it was counted, as in every pass.
        """
        shards = self.counts.shards
        return background.prefetch(
            evaluation_batches(shards, self.vocabulary, options, compat=compat, max_tokens=max_tokens)
        )


def read_text(
    patterns: PathLike | Iterable[PathLike],
    argument: str,
    vocabulary: Vocabulary,
    reporter: Reporter,
    resources: ExitStack,
    record: object = None,
) -> Text:
    """Find and count a text, and say what is in it.

    Args:
        patterns: files, directories or globs; ``-`` for standard input.
        argument: that gave them.
        vocabulary: of the model.
        reporter: told of it.
        resources: keeps what can be read only once until its end.
        record: `bilm.data.corpus.corpus_record` of the call that is resumed, if there is one; what is the
            same is not counted again.

    Raises:
        OptionsError: the patterns are something else.
        DataError: the text cannot be read, is empty, or is not that of the record.
    """
    standard_input = getattr(sys.stdin, "buffer", None) or io.BytesIO()  # a process may have none
    files = corpus.find_files(
        resources.enter_context(shards.spooled(as_patterns(patterns, argument), standard_input))
    )
    try:
        if record is None:
            counts = corpus.count_corpus(files, vocabulary)
        else:
            counts = corpus.recorded_counts(record, files)
    except DataError as error:
        if record is None:
            raise
        raise DataError(
            f"`{argument}`: cannot be resumed with another text: {error}; give the original text, or "
            "continue with `bilm restart`"
        ) from error
    reporter.say(corpus.describe_corpus(counts, "heldout" if argument == "heldout_prefix" else "corpus"))
    return Text(files, vocabulary, counts)
