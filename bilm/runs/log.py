"""The records a run writes: ``metrics.jsonl``, TensorBoard scalars, and ``calls.jsonl``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm import __version__
from bilm.backend.keras_backend import keras
from bilm.errors import CheckpointError
from bilm.io.atomic import replacing, sync
from bilm.io.json import whole_lines
from bilm.io.messages import write_reason
from bilm.run_directory.files import EVENTS_SUFFIX, RunFiles
from bilm.run_directory.records import CALLS_FILE, METRICS_FILE, CallRecord, HeldoutRecord, TrainRecord

_LOG = logging.getLogger(__name__)
_SCALARS_LEFT_OUT = ("kind", "step", "epoch", "tokens", "time", "sampled", "best", "seconds")

_BUCKETS = 30
_ERRORS = (OSError, tf.errors.OpError)
_HIGHEST = float(np.finfo(np.float32).max)  # perplexities of a training gone wrong go beyond it


class RunLog:
    """Appends to the records of a run directory.

    Args:
        files: of the run.
        n_bytes: length of ``metrics.jsonl`` to continue from; what a killed process wrote later is removed.

    Raises:
        CheckpointError: the directory cannot be written.
    """

    def __init__(self, files: RunFiles, n_bytes: int) -> None:
        self._path = files.path
        self._file = files.path / METRICS_FILE
        try:
            files.claim(METRICS_FILE)
            self._lines = open(self._file, "a+b")
            try:
                self._begin(n_bytes)
                self._events = tf.summary.create_file_writer(str(self._path), filename_suffix=EVENTS_SUFFIX)
            except BaseException:
                self._lines.close()
                raise
        except _ERRORS as error:
            raise _not_written(self._path, error) from error

    def _begin(self, n_bytes: int) -> None:
        n_whole = whole_lines(self._file)
        if n_whole < n_bytes:
            _LOG.warning("%s: earlier records are missing; continuing without them", self._file)
        self._lines.truncate(min(n_bytes, n_whole))
        self._lines.seek(0, os.SEEK_END)

    @property
    def n_bytes(self) -> int:
        """Length of ``metrics.jsonl``."""
        return self._lines.tell()

    def write(self, record: TrainRecord | HeldoutRecord) -> None:
        """Add a line, and its numbers to TensorBoard.

        Raises:
            CheckpointError: it cannot be written.
        """
        values = record.to_json()
        try:
            self._lines.write(json.dumps(values).encode() + b"\n")
            self._lines.flush()
            self._write_scalars(record.step, values)
        except _ERRORS as error:
            raise _not_written(self._path, error) from error

    def _write_scalars(self, step: int, values: Mapping[str, Any]) -> None:
        with self._events.as_default(step=step):
            for name, value in values.items():
                if name not in _SCALARS_LEFT_OUT:
                    _summarise(
                        f"{values['kind']}/{name}", np.array(min(value, _HIGHEST), np.float32), "scalars", 1
                    )

    def write_histograms(self, step: int, weights: Mapping[str, tf.Tensor]) -> None:
        """Add the distribution of every weight to TensorBoard.

        Raises:
            CheckpointError: it cannot be written.
        """
        for name, weight in weights.items():
            counts, edges = np.histogram(weight.numpy(), _BUCKETS)
            rows = np.stack([edges[:-1], edges[1:], counts], axis=1)
            try:
                with self._events.as_default(step=step):
                    _summarise(name, rows.astype(np.float32), "histograms", 2)
            except _ERRORS as error:
                raise _not_written(self._path, error) from error

    def sync(self) -> None:
        """Bring everything to the disk, into a file of its name, whatever became of the one begun with.

        Raises:
            CheckpointError: it cannot be written.
        """
        try:
            self._lines.flush()
            if not self._is_in_place():
                self._put_in_place()
            os.fsync(self._lines.fileno())
            self._events.flush()
        except _ERRORS as error:
            raise _not_written(self._path, error) from error

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._file.stat(), os.fstat(self._lines.fileno()))
        except FileNotFoundError:
            return False

    def _put_in_place(self) -> None:
        """Write the records again if they were removed; continue in the file if it was replaced."""
        if self._file.exists():
            _LOG.warning("%s: replaced during training; continuing in the new file", self._file)
        else:
            _LOG.warning("%s: removed during training; written again", self._file)
            self._lines.seek(0)
            with replacing(self._file) as file:
                file.write_bytes(self._lines.read())
        self._lines.close()
        self._lines = open(self._file, "a+b")
        self._lines.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Close the files; what counts was brought to the disk by `sync`."""
        for file in (self._lines, self._events):
            with contextlib.suppress(*_ERRORS):
                file.close()


def _summarise(tag: str, value: np.ndarray, plugin: str, data_class: int) -> None:
    """Write what `tf.summary.scalar` and `.histogram` write; these need TensorBoard to be installed."""
    metadata = tf.compat.v1.SummaryMetadata(data_class=data_class)
    metadata.plugin_data.plugin_name = plugin
    tf.summary.write(tag, value, metadata=metadata)


def record_call(files: RunFiles, command: str, step: int, seed: int, options: Mapping[str, Any]) -> None:
    """Add a line to ``calls.jsonl``: what was called, with which versions, seed and options.

    Raises:
        CheckpointError: it cannot be written.
    """
    versions = {module.__name__: module.__version__ for module in (tf, keras, np)}
    call = CallRecord(
        command=command,
        step=step,
        seed=seed,
        time=time.time(),
        versions={"bilm": __version__, **versions, "python": platform.python_version()},
        options=options,
    )
    file = files.path / CALLS_FILE
    try:
        files.claim(CALLS_FILE)
        with open(file, "ab") as lines:
            lines.truncate(whole_lines(file))  # a line that a killed process left cut goes
            lines.write(json.dumps(dataclasses.asdict(call)).encode() + b"\n")
        sync(file)
    except OSError as error:
        raise _not_written(files.path, error) from error


def _not_written(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(f"{path}: its records cannot be written: {write_reason(error)}")
