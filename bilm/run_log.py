"""The records a run writes: ``metrics.jsonl``, TensorBoard scalars, and ``calls.jsonl``."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm import __version__
from bilm.atomic import sync
from bilm.errors import CheckpointError
from bilm.keras_backend import keras
from bilm.metrics import CALLS_FILE, METRICS_FILE, CallRecord, HeldoutRecord, TrainRecord
from bilm.reasons import reason

_SCALARS_LEFT_OUT = ("kind", "step", "epoch", "tokens", "time", "sampled", "best", "seconds")

_BUCKETS = 30
_ERRORS = (OSError, tf.errors.OpError)
_HIGHEST = float(np.finfo(np.float32).max)  # perplexities of a training gone wrong go beyond it


class RunLog:
    """Appends to the records of a run directory.

    Args:
        path: the run directory.
        n_bytes: length of ``metrics.jsonl`` to go on from; what a killed process wrote after it goes.

    Raises:
        CheckpointError: the directory cannot be written, or has fewer records than `n_bytes`.
    """

    def __init__(self, path: Path, n_bytes: int) -> None:
        self._path = path
        try:
            self._lines = open(path / METRICS_FILE, "ab")
            try:
                self._begin(n_bytes)
                self._events = tf.summary.create_file_writer(str(path))
            except BaseException:
                self._lines.close()
                raise
        except _ERRORS as error:
            raise _not_written(path, error) from error

    def _begin(self, n_bytes: int) -> None:
        if self.n_bytes < n_bytes:
            raise CheckpointError(
                f"{self._lines.name}: has {self.n_bytes} bytes, fewer than the {n_bytes} of the checkpoint; "
                "restore it"
            )
        self._lines.truncate(n_bytes)
        self._lines.seek(n_bytes)

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
        """Add the distribution of every weight to TensorBoard."""
        with self._events.as_default(step=step):
            for name, weight in weights.items():
                counts, edges = np.histogram(weight.numpy(), _BUCKETS)
                rows = np.stack([edges[:-1], edges[1:], counts], axis=1)
                _summarise(name, rows.astype(np.float32), "histograms", 2)

    def sync(self) -> None:
        """Bring everything to the disk.

        Raises:
            CheckpointError: it cannot be written.
        """
        try:
            self._lines.flush()
            os.fsync(self._lines.fileno())
            self._events.flush()
        except _ERRORS as error:
            raise _not_written(self._path, error) from error

    def close(self) -> None:
        """Close the files."""
        self._lines.close()
        self._events.close()


def _summarise(tag: str, value: np.ndarray, plugin: str, data_class: int) -> None:
    """Write what `tf.summary.scalar` and `.histogram` write; these need TensorBoard to be installed."""
    metadata = tf.compat.v1.SummaryMetadata(data_class=data_class)
    metadata.plugin_data.plugin_name = plugin
    tf.summary.write(tag, value, metadata=metadata)


def whole_lines(path: Path) -> int:
    """Length of the ``metrics.jsonl`` in a directory, without a last line that a killed process left cut."""
    try:
        return (path / METRICS_FILE).read_bytes().rfind(b"\n") + 1
    except FileNotFoundError:
        return 0


def record_call(path: Path, command: str, step: int, seed: int, options: Mapping[str, Any]) -> None:
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
    file = path / CALLS_FILE
    try:
        with open(file, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(dataclasses.asdict(call)) + "\n")
        sync(file)
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: Exception) -> CheckpointError:
    cause = reason(error).rpartition("; ")[2]  # TensorFlow puts names of its own before it
    return CheckpointError(f"{path}: its records cannot be written: {cause}")
