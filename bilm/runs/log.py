"""Writing of a run's records: ``metrics.jsonl``, TensorBoard files, ``calls.jsonl`` and ``run.toml``."""

import contextlib
import dataclasses
import json
import logging
import os
import platform
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm import __version__
from bilm.backend.keras_backend import keras
from bilm.errors import CheckpointError
from bilm.io import atomic, messages, run_files
from bilm.io.json_objects import whole_lines
from bilm.options.options_file import toml_lines
from bilm.options.plan import Plan
from bilm.run_directory import records

_LOG = logging.getLogger(__name__)
_SCALARS_LEFT_OUT = ("kind", "step", "epoch", "tokens", "time", "sampled", "best", "seconds")


class RunLog:
    """Appends to the records of a run directory, and fails if the directory was replaced.

    Args:
        path: run directory.
        n_bytes: length of ``metrics.jsonl`` in bytes to continue from; lines beyond it, written by a killed
            process, are removed.
        step: step to continue from; TensorBoard removes what a killed process recorded of later steps.

    Raises:
        CheckpointError: the directory cannot be written.
    """

    def __init__(self, path: Path, n_bytes: int, step: int = 0) -> None:
        self._path, self._step = path, step
        self._file = path / run_files.METRICS_FILE
        n_whole = whole_lines(self._file)
        with _written(path), open(self._file, "ab") as lines:
            if n_whole < n_bytes:
                _LOG.warning("%s: earlier records are missing; continuing without them", self._file)
            lines.truncate(min(n_bytes, n_whole))
            # Held open, so that its inode number is not reused.
            self._directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def require_in_place(self) -> None:
        """Check that the directory is still the one in which the run began.

        Raises:
            CheckpointError: the directory was moved, removed or replaced.
        """
        if not atomic.is_still(self._path, self._directory):
            raise CheckpointError(
                f"{self._path}: is not the directory in which this run began, which was moved or removed; "
                "nothing was saved since. Put it back, and continue with resume=True"
            )

    def _writing(self) -> contextlib.AbstractContextManager[None]:
        self.require_in_place()
        return _written(self._path)

    @cached_property
    def _events(self) -> tf.io.TFRecordWriter:  # made with the first record, to avoid an empty file
        # Only such a file tells TensorBoard of a restart: `tf.summary` has no way to.
        process = f"{platform.node()}.{os.getpid()}"
        name = f"events.out.tfevents.{time.time():.6f}.{process}{run_files.EVENTS_SUFFIX}"
        events = tf.io.TFRecordWriter(str(self._path / name))
        restart = tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.START)
        for fields in ({"file_version": "brain.Event:2"}, {"step": self._step + 1, "session_log": restart}):
            events.write(tf.compat.v1.Event(wall_time=time.time(), **fields).SerializeToString())
        return events

    def _add(self, step: int, values: Mapping[str, np.ndarray], plugin: str, data_class: int) -> None:
        """Write as `tf.summary.scalar` and `.histogram` do, which require TensorBoard to be installed."""
        metadata = tf.compat.v1.SummaryMetadata(data_class=data_class)
        metadata.plugin_data.plugin_name = plugin
        summary = tf.compat.v1.Summary()
        for tag, value in values.items():
            tensor = tf.make_tensor_proto(value.astype(np.float32))
            summary.value.add(tag=tag, metadata=metadata, tensor=tensor)
        event = tf.compat.v1.Event(wall_time=time.time(), step=step, summary=summary)
        self._events.write(event.SerializeToString())
        self._events.flush()

    def write(self, record: records.TrainRecord | records.HeldoutRecord) -> None:
        """Append a record to ``metrics.jsonl``, and its numbers to TensorBoard.

        Raises:
            CheckpointError: the record cannot be written, or the directory was replaced.
        """
        values = record.to_json()
        with self._writing():
            with open(self._file, "ab") as lines:  # unbuffered, a full disk would cut it
                lines.write(json.dumps(values).encode() + b"\n")
            names = [name for name in values if name not in _SCALARS_LEFT_OUT]
            scalars = {f"{values['kind']}/{name}": np.array(values[name]) for name in names}
            self._add(record.step, scalars, "scalars", 1)

    def write_histograms(self, step: int, weights: Mapping[str, tf.Tensor]) -> None:
        """Add a histogram of every weight to TensorBoard.

        Raises:
            CheckpointError: the histograms cannot be written, or the directory was replaced.
        """
        histograms = {}
        for name, weight in weights.items():
            counts, edges = np.histogram(weight.numpy(), bins=30)
            histograms[name] = np.stack([edges[:-1], edges[1:], counts], axis=1)
        with self._writing():
            self._add(step, histograms, "histograms", 2)

    def sync(self) -> int:
        """Write all records to the disk, and return the length of ``metrics.jsonl`` in bytes.

        Raises:
            CheckpointError: the records cannot be written, or the directory was replaced.
        """
        with self._writing():
            with open(self._file, "ab") as lines:
                os.fsync(lines.fileno())
                return lines.tell()

    def close(self) -> None:
        """Close the TensorBoard file and the directory; `sync` has flushed the records before."""
        os.close(self._directory)
        if "_events" in self.__dict__:
            with contextlib.suppress(OSError, tf.errors.OpError):
                self._events.close()


def record_call(path: Path, **fields: Any) -> None:  # noqa: ANN401
    """Append a call to ``calls.jsonl``; time and versions are added to these fields of `records.CallRecord`.

    Raises:
        CheckpointError: the file cannot be written.
    """
    libraries = {module.__name__: module.__version__ for module in (tf, keras, np)}
    versions = {"bilm": __version__, **libraries, "python": platform.python_version()}
    call = records.CallRecord(time=time.time(), versions=versions, **fields)
    file = path / run_files.CALLS_FILE
    n_whole = whole_lines(file)
    with _written(path):
        with open(file, "ab") as lines:
            lines.truncate(n_whole)  # removes a partial line of a killed process
            lines.write(json.dumps(dataclasses.asdict(call)).encode() + b"\n")
        atomic.sync(file)


def record_arguments(path: Path, arguments: Mapping[str, Any], plan: Plan) -> None:
    """Write ``run.toml``, from which ``bilm train --config`` repeats a run.

    TOML cannot hold file names that are not UTF-8; with such names the file is not readable.

    Raises:
        CheckpointError: the file cannot be written.
    """
    lines = [
        "# To repeat this run, from this text and vocabulary:",
        f"# bilm train --config run.toml --save-dir NEW{'' if plan.xla else ' --no-xla'}",
        *([f"# It ran on {plan.workers} workers."] if plan.workers > 1 else []),
        *toml_lines({"written_by": records.WRITER, **arguments}),
    ]
    with _written(path):
        content = "\n".join([*lines, ""]).encode(errors="backslashreplace")
        atomic.write(path / run_files.ARGUMENTS_FILE, content)


def _written(path: Path) -> contextlib.AbstractContextManager[None]:
    subject = f"{path}: its records cannot be written"
    return messages.os_errors_as(CheckpointError, subject, tf.errors.OpError)
