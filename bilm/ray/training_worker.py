"""What Ray's workers run in training: `bilm.train` or `bilm.restart`, each as a worker of ``TF_CONFIG``."""

from __future__ import annotations

import glob
import os
import socket
import time
import traceback
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilm.backend.settings import use_xla
from bilm.errors import CheckpointError, DataError, LostWorkerError, ProcessError
from bilm.io.locks import HeldError
from bilm.io.messages import is_out_of_memory, os_errors_as
from bilm.ray.relay import Attempt, ChiefReporter
from bilm.ray.workers import use_threads
from bilm.runs.reporter import Reporter

MAX_RESTARTS = 10
_SECONDS_OF_THE_CHIEF = 5.0
_SECONDS_OF_THE_DRIVER = 60.0


@dataclass(frozen=True)
class RemoteCall:
    """A call of train or restart, as workers get it.

    Attributes:
        kind: ``train`` or ``restart``.
        arguments: of the call, with absolute paths.
        inputs: files and patterns that it reads.
        save_dir: where its checkpoints go; None of a dry run.
        command: for the record of the call; None for the call in Python.
        n_threads: of TensorFlow in each worker.
        has_gpus: whether the workers have GPUs.
        uses_xla: see `bilm.use_xla`.
    """

    kind: str
    arguments: dict[str, Any]
    inputs: tuple[str, ...] = ()
    save_dir: Path | None = None
    command: str | None = None
    n_threads: int | None = None
    has_gpus: bool = False
    uses_xla: bool = True

    def arguments_after(self, attempt: Attempt) -> dict[str, Any]:
        """The arguments of an attempt: it resumes what one before it has saved."""
        arguments = dict(self.arguments)
        if arguments.get("max_time") is not None:
            arguments["max_time"] = max(arguments["max_time"] - attempt.seconds, 1e-3)
        if attempt.resumes:
            arguments["resume"] = True
            arguments.pop("overwrite", None)
            if arguments.get("save_to") is None:
                arguments.pop("checkpoint", None)  # that which the restart began with
        return arguments


def train_in_worker(call: RemoteCall, relay: Any) -> None:  # noqa: ANN401
    """Run the call as one of its workers; Ray has set ``TF_CONFIG``.

    Raises:
        Exception: as the call. Ray starts the workers again, unless the driver ends it: the relay has told it
            about what another attempt would not change.
    """
    import ray
    import ray.train

    os.environ.pop("TF_USE_LEGACY_KERAS", None)  # which Ray sets; our Keras is another
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if not call.has_gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    index, n_workers = ray.train.get_context().get_world_rank(), ray.train.get_context().get_world_size()
    attempt = None
    try:
        use_threads(call.n_threads)
        use_xla(call.uses_xla)
        reporter = Reporter() if index else ChiefReporter(relay, call.command)
        require_visible(call.inputs, index)
        attempt = _begin(call, relay, index)
        if attempt.number and not index:
            reporter.warn(
                f"a worker was lost; Ray has started all again (restart {attempt.number} of {MAX_RESTARTS})"
            )
        result = _run(call, attempt, reporter)
    except Exception as error:
        if not may_pass(error, attempt, n_workers):
            if index:
                time.sleep(_SECONDS_OF_THE_CHIEF)  # it may have the same error, and something to write
            _tell_failure(relay, error)
            time.sleep(
                _SECONDS_OF_THE_DRIVER
            )  # it ends all now; an error here would make Ray start them again
        raise
    if not index:
        ray.get(relay.tell.remote("result", result))


def _tell_failure(relay: Any, error: Exception) -> None:  # noqa: ANN401
    import ray

    text = traceback.format_exc()
    try:
        ray.get(relay.tell.remote("failed", error, text))
    except Exception:  # it cannot be pickled
        ray.get(relay.tell.remote("failed", ProcessError(f"{type(error).__name__}: {error}"), text))


def _run(call: RemoteCall, attempt: Attempt, reporter: Reporter) -> object:
    from bilm.runs.restart import restart
    from bilm.runs.train import train

    run: Any = train if call.kind == "train" else restart
    should_stop = reporter.should_stop if isinstance(reporter, ChiefReporter) else None
    return run(**call.arguments_after(attempt), reporter=reporter, should_stop=should_stop)


def may_pass(error: Exception, attempt: Attempt | None, n_workers: int) -> bool:
    """Whether another attempt may end otherwise: a worker is gone, or one of before still has the lock."""
    if isinstance(error, LostWorkerError):
        return True
    if isinstance(error.__cause__, HeldError):
        return attempt is not None and attempt.number > 0
    import tensorflow as tf

    return n_workers > 1 and isinstance(error, tf.errors.OpError) and not is_out_of_memory(error)


def require_visible(inputs: tuple[str, ...], index: int) -> None:
    """Check that a worker sees what is to be read.

    Raises:
        DataError: it does not; names the file and the host.
    """
    for path in inputs:
        if not os.path.exists(path) and not glob.glob(path, recursive=True):
            raise DataError(
                f"{path}: worker {index} on host {socket.gethostname()} does not find it; every worker must "
                "have it under this path"
            )


def _begin(call: RemoteCall, relay: Any, index: int) -> Attempt:  # noqa: ANN401
    """Begin an attempt on all workers at a time, and check that they have the same save directory."""
    import ray
    from ray.train.collective import barrier, broadcast_from_rank_zero

    with _marked(call.save_dir if index == 0 else None) as mark:
        attempt = ray.get(relay.begin.remote(newest(call.save_dir))) if index == 0 else None
        attempt, mark = broadcast_from_rank_zero((attempt, mark))
        if mark is not None and not os.path.exists(mark):
            raise CheckpointError(
                f"{call.save_dir}: worker {index} on host {socket.gethostname()} does not see what the first "
                "worker writes there; it must be on a file system that all share"
            )
        barrier()
    return attempt


def newest(save_dir: Path | None) -> object:
    """What tells the newest checkpoint of a directory from those before it; None if there is none."""
    with suppress(OSError):
        if save_dir is not None:
            with open(save_dir / "checkpoint", "rb") as file:  # opened: a network's file system asks then
                return file.read(), os.fstat(file.fileno()).st_mtime_ns
    return None


@contextmanager
def _marked(save_dir: Path | None) -> Iterator[str | None]:
    """Have a file in a directory, both of which are gone afterwards unless something else is there."""
    if save_dir is None:
        yield None
        return
    mark = save_dir / f".bilm-{uuid.uuid4().hex}"
    made = [place for place in (save_dir, *save_dir.parents) if not place.exists()]
    with os_errors_as(CheckpointError, f"{save_dir}: cannot be written"):
        save_dir.mkdir(parents=True, exist_ok=True)
        mark.touch()
    try:
        yield str(mark)
    finally:
        with suppress(OSError):
            mark.unlink()
            for place in made:
                place.rmdir()
