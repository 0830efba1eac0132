"""Training on Ray: its `TensorflowTrainer` places the workers and restarts them when one is lost.

The driver calls `run`. Each worker calls `train_in_worker`, which runs `bilm.train` or `bilm.restart` as one
of the workers of ``TF_CONFIG``. The first worker, the chief, reports to the driver through a `Relay`.
"""

import functools
import os
import socket
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import ray.train
from ray.train.collective import barrier, broadcast_from_rank_zero
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from bilm.backend import settings
from bilm.data.pipeline import TrainingBatch
from bilm.errors import ArgumentError, BilmError, CheckpointError, LostWorkerError, ProcessError
from bilm.io import STDIN, atomic, messages, outputs, run_files
from bilm.runs.reporter import Reporter, TrainingResult
from bilm.runs.settings import TEXTS
from bilm.training.meter import StepReport

MAX_RESTARTS = 10
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_START = 180.0
_SECONDS_TO_END = 30.0
_SECONDS_OF_THE_CHIEF = 5.0


class Relay:
    """Actor that carries reports from the chief to the driver, and the request to stop to the chief."""

    def __init__(self) -> None:
        self._reports: list[tuple[str, tuple[Any, ...]]] = []
        self._is_stopping = False
        self._n_attempts = 0
        self._began = time.monotonic()
        self._first_checkpoint: object = None

    def begin(self, arguments: Mapping[str, Any], checkpoint: object) -> tuple[int, dict[str, Any]]:
        """Begin an attempt, a start of all workers; called by the chief.

        Args:
            arguments: arguments of the call.
            checkpoint: identity of the newest checkpoint, see `newest`.

        Returns:
            The number of the attempt, from 0, and its arguments: it has the time that is left, and resumes
            from a checkpoint of an earlier attempt.
        """
        if not self._n_attempts:
            self._first_checkpoint = checkpoint
        self._n_attempts += 1
        arguments = dict(arguments)
        if "max_time" in arguments:
            arguments["max_time"] = max(arguments["max_time"] + self._began - time.monotonic(), 1e-3)
        if checkpoint not in (None, self._first_checkpoint):
            arguments["resume"] = True
            arguments.pop("overwrite", None)
        return self._n_attempts - 1, arguments

    def tell(self, name: str, values: tuple[Any, ...]) -> None:
        """Store a report for the driver; in a tuple, since Ray raises an argument that is a Ray error."""
        self._reports.append((name, values))

    def take(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return all reports since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def stop(self) -> None:
        """Request that the training save and end."""
        self._is_stopping = True

    def is_stopping(self) -> bool:
        """Tell whether the driver has requested the end of the training."""
        return self._is_stopping


def _tells(name: str) -> Any:  # noqa: ANN401
    """Return a method of `Reporter` that forwards the call to the driver's reporter."""

    def method(reporter: "ChiefReporter", *values: object) -> None:
        reporter.relay.tell.remote(name, values)

    return method


class ChiefReporter(Reporter):
    """Reports to the driver, and receives its request to stop.

    Args:
        relay: the `Relay` actor.
        command: see `Reporter`.
    """

    say, warn, begin, heldout, end = map(_tells, ("say", "warn", "begin", "heldout", "end"))

    def __init__(self, relay: Any, command: str | None) -> None:  # noqa: ANN401
        self.relay = relay
        self.command = command
        self._answer = relay.is_stopping.remote()
        self._is_stopping = False

    def should_stop(self) -> bool:
        """Tell whether to stop, by the latest answer of the relay; never waits for it."""
        if ray.wait([self._answer], timeout=0)[0]:
            self._is_stopping = ray.get(self._answer)
            self._answer = self.relay.is_stopping.remote()
        return self._is_stopping

    def step(self, report: StepReport) -> None:
        """Report a step to the driver, without the text of the batch."""
        position = replace(report.batch.position, rows=())
        self.relay.tell.remote("step", (replace(report, batch=TrainingBatch((), position)),))


class RemoteCall:
    """A call of `bilm.train` or `bilm.restart`, as sent to the workers.

    Args:
        kind: ``train`` or ``restart``.
        arguments: arguments of the call, with absolute paths, since the workers have another current
            directory; None for a default.
        command: command line for the record of the call; None for a call in Python.

    Attributes:
        arguments: arguments of the call that are not None.
        save_dir: directory of its checkpoints; None for a dry run.
        uses_xla: see `bilm.use_xla`.

    Raises:
        ArgumentError: a text is standard input.
    """

    def __init__(self, kind: str, arguments: Mapping[str, Any], command: str | None) -> None:
        self.kind, self.command, self.uses_xla = kind, command, settings.xla_is_on
        passed = self.arguments = {name: value for name, value in arguments.items() if value is not None}
        for name in TEXTS:
            if STDIN in passed.get(name, ()):
                raise ArgumentError(f"`{name}`: Ray's workers cannot read standard input; give a file")
        place = passed.get("save_to") or passed.get("save_dir") or passed.get("model")
        self.save_dir = None if place is None or passed.get("dry_run") else Path(place)


def train_in_worker(call: RemoteCall, relay: Any, resources: Mapping[str, float]) -> None:  # noqa: ANN401
    """Run the call as one of its workers; Ray has set ``TF_CONFIG``.

    An error that would occur again is reported to the driver, which ends the training.

    Raises:
        Exception: any other error; Ray then restarts the workers.
    """
    os.environ.pop("TF_USE_LEGACY_KERAS", None)  # set by Ray, for Keras 2
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    settings.use_threads(int(resources["CPU"]))
    if not resources["GPU"]:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    index, n_workers = ray.train.get_context().get_world_rank(), ray.train.get_context().get_world_size()
    chief = None if index else ChiefReporter(relay, call.command)
    number = 0
    try:
        settings.use_xla(call.uses_xla)
        number, arguments = _begin(call, relay, index)
        if number and chief:
            chief.warn(f"a worker was lost; Ray restarted all workers (restart {number} of {MAX_RESTARTS})")
        from bilm.runs import train

        result = getattr(train, call.kind)(
            **arguments, reporter=chief or Reporter(), should_stop=chief and chief.should_stop
        )
    except Exception as error:
        if may_pass(error, number, n_workers):
            raise
        if index:
            time.sleep(_SECONDS_OF_THE_CHIEF)  # the chief may have the same error, and still write files
        if isinstance(error, BilmError):
            error.args = (f"{error} (worker {index} on host {socket.gethostname()})",)
        failure = ray.exceptions.RayTaskError(call.kind, traceback.format_exc(), error)
        ray.get(relay.tell.remote("failed", (failure,)))
    else:
        if chief:
            ray.get(relay.tell.remote("result", (result,)))


def may_pass(error: Exception, number: int, n_workers: int) -> bool:
    """Tell whether to try again: a worker was lost, or one of the attempt before still holds the lock."""
    if isinstance(error, LostWorkerError):
        return True
    if isinstance(error.__cause__, atomic.HeldError):
        return number > 0
    import tensorflow as tf

    return n_workers > 1 and isinstance(error, tf.errors.OpError) and not messages.is_out_of_memory(error)


def _begin(call: RemoteCall, relay: Any, index: int) -> tuple[int, dict[str, Any]]:  # noqa: ANN401
    """Begin an attempt on all workers together, and check that they share the save directory.

    Returns:
        As `Relay.begin`.
    """
    attempt = mark = None
    with ExitStack() as stack:
        if index == 0:
            if call.save_dir is not None:
                place = next(place for place in (call.save_dir, *call.save_dir.parents) if place.is_dir())
                with messages.os_errors_as(CheckpointError, f"{call.save_dir}: cannot be written"):
                    file = tempfile.NamedTemporaryFile(prefix=".bilm-", dir=place)  # noqa: SIM115
                mark = stack.enter_context(file).name
            attempt = ray.get(relay.begin.remote(call.arguments, newest(call.save_dir)))
        attempt, mark = broadcast_from_rank_zero((attempt, mark))
        if mark is not None and not os.path.exists(mark):
            raise CheckpointError(
                f"{call.save_dir}: worker {index} on host {socket.gethostname()} does not see the files of "
                "the first worker there; it must be on a file system that all workers share"
            )
        barrier()
    return attempt


def newest(save_dir: Path | None) -> object:
    """Return a value that identifies the newest checkpoint of a directory, or None without a checkpoint."""
    with suppress(OSError, BilmError):
        if save_dir is not None:
            file = save_dir / run_files.STATE_FILE
            # Read before its time is asked for: a network file system then refreshes its data.
            return outputs.read_file(file, CheckpointError), file.stat().st_mtime_ns
    return None


def run(
    call: RemoteCall,
    n_workers: int,
    resources: Mapping[str, float],
    reporter: Reporter,
    should_stop: Callable[[], bool] | None,
) -> TrainingResult:
    """Run a call on the cluster that this process is connected to, and wait for its end.

    Args:
        call: the call.
        n_workers: worker processes; each has its own batch rows, as in a run on several machines.
        resources: resources of each by Ray's names: ``CPU``, ``GPU``.
        reporter: receives the progress of the first worker.
        should_stop: called several times a second; if it returns true, the run is saved and the call ends.

    Raises:
        BilmError: raised by the call.
        ProcessError: workers were lost too often.
    """
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    options = {"num_cpus": 0, "scheduling_strategy": here}
    relay = ray.remote(Relay).options(**options).remote()
    result: TrainingResult | None = None
    is_shown, is_heard, began = False, False, time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as storage:
        fit = ray.remote(_fit).options(max_retries=0, **options)
        job = fit.remote(call, relay, n_workers, dict(resources), storage)
        try:
            while True:
                ended, _ = ray.wait([job], timeout=_SECONDS_BETWEEN_LOOKS)
                for name, values in ray.get(relay.take.remote()):
                    is_heard = True
                    if name == "failed":
                        raise values[0]
                    if name == "result":
                        result = values[0]
                        continue
                    if name in ("begin", "end"):
                        if is_shown:
                            reporter.end()
                        is_shown = name == "begin"
                    if name != "end":
                        getattr(reporter, name)(*values)
                if ended:
                    ray.get(job)
                    if result is None:
                        raise ProcessError("Ray ended the training without a result")
                    return result
                if should_stop is not None and should_stop():
                    relay.stop.remote()
                if not is_heard and time.monotonic() - began > _SECONDS_TO_START:
                    is_heard = True
                    reporter.warn("Ray has not started the workers yet; is there room in the cluster now?")
        finally:
            if is_shown:
                reporter.end()
            ray.cancel(job)  # Ray Train takes it as Ctrl-C: ends the workers, releases their resources
            if not ray.wait([job], timeout=_SECONDS_TO_END)[0]:
                ray.cancel(job, force=True)
            ray.kill(relay)


def _fit(call: RemoteCall, relay: Any, n_workers: int, resources: dict[str, float], storage: str) -> None:  # noqa: ANN401
    """Run the trainer, as a Ray task, so that the driver is not blocked in Ray."""
    from ray.train.tensorflow import TensorflowTrainer

    trainer = TensorflowTrainer(
        functools.partial(train_in_worker, call, relay, resources),
        scaling_config=ray.train.ScalingConfig(
            num_workers=n_workers, use_gpu=resources["GPU"] > 0, resources_per_worker=resources
        ),
        run_config=ray.train.RunConfig(
            name="bilm",
            storage_path=storage,
            failure_config=ray.train.FailureConfig(max_failures=MAX_RESTARTS),
            # Set before Ray imports TensorFlow there; the backend also against the shell that started Ray.
            worker_runtime_env={"env_vars": settings.read_at_import() | {"KERAS_BACKEND": "tensorflow"}},
        ),
    )
    try:
        trainer.fit()
    except SystemExit:  # raised by Ray Train when the job is cancelled
        return
    except ray.train.TrainingFailedError as error:
        failed = next(iter(getattr(error, "worker_failures", {}).values()), error)
        last_line = str(failed).strip().rpartition("\n")[2].strip().rstrip(".")
        raise ProcessError(
            f"workers were lost more than {MAX_RESTARTS} times, last: {last_line}; "
            "resume=True continues from the last checkpoint"
        ) from None
