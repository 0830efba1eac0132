"""Training on Ray: its `TensorflowTrainer` places the workers, and starts them again when one is lost."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.backend import settings
from bilm.errors import ArgumentError, OptionsError, ProcessError
from bilm.ray.relay import Relay
from bilm.ray.training_worker import MAX_RESTARTS, RemoteCall, train_in_worker
from bilm.runs.reporter import Reporter

if TYPE_CHECKING:
    from bilm.runs.results import TrainingResult

_TEXTS = ("train_prefix", "heldout_prefix")
_FILES = ("vocab_file", "old_vocab_file", "options", "options_file", "weight_file", "model")
_DIRECTORIES = ("save_dir", "save_to")
_SECONDS_BETWEEN_LOOKS = 0.2
_SECONDS_TO_START = 180.0
_SECONDS_TO_END = 30.0


def remote_call(kind: str, arguments: Mapping[str, Any], command: str | None) -> RemoteCall:
    """A call as workers get it, whatever their current directory is.

    Args:
        kind: ``train`` or ``restart``.
        arguments: of the call; None for what was not given.
        command: for the record of the call.

    Raises:
        ArgumentError: a text is standard input.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    for name in _TEXTS:
        patterns = given.get(name, ())
        patterns = [patterns] if isinstance(patterns, str | os.PathLike) else list(patterns)
        if "-" in map(str, patterns):
            raise ArgumentError(f"`{name}`: Ray's workers cannot read standard input; give a file")
        if patterns:
            given[name] = [os.path.abspath(pattern) for pattern in patterns]
    for name in (*_FILES, *_DIRECTORIES):
        if isinstance(given.get(name), str | os.PathLike):
            given[name] = os.path.abspath(given[name])
    source = ("save_dir",) if kind == "restart" else ()
    inputs = [given[name] for name in (*_FILES, *source) if isinstance(given.get(name), str)]
    inputs += [pattern for name in _TEXTS for pattern in given.get(name, ())]
    place = given.get("save_to") or given.get("save_dir") or given.get("model")
    save_dir = None if place is None or given.get("dry_run") else Path(place)
    return RemoteCall(kind, given, tuple(inputs), save_dir, command, uses_xla=settings.xla_is_on)


def run(
    call: RemoteCall,
    n_workers: int,
    resources: Mapping[str, float],
    reporter: Reporter,
    should_stop: Callable[[], bool] | None,
) -> TrainingResult:
    """Run a call on the cluster that this process is connected to, and wait for its end.

    Args:
        call: see `remote_call`.
        n_workers: processes, each with rows of its own as in a run on several machines.
        resources: of each, as Ray names them: ``CPU``, ``GPU``.
        reporter: receives the progress of the first worker.
        should_stop: asked several times a second; if it returns true, the run is saved and the call ends.

    Raises:
        BilmError: as the call.
        OptionsError: several workers have no seed.
        ProcessError: workers were lost too often.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if n_workers > 1 and call.arguments.get("seed") is None and not call.arguments.get("resume"):
        raise OptionsError("`seed`: required with several workers")
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    options = {"num_cpus": 0, "scheduling_strategy": here}
    relay = ray.remote(Relay).options(**options).remote()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as storage:
        fit = ray.remote(_fit).options(max_retries=0, **options)
        job = fit.remote(call, relay, n_workers, dict(resources), storage)
        try:
            return _follow(call, job, relay, reporter, should_stop)
        finally:
            _end(job)
            ray.kill(relay)


def _fit(call: RemoteCall, relay: Any, n_workers: int, resources: dict[str, float], storage: str) -> None:  # noqa: ANN401
    """Let Ray train: a task, so that the driver need not wait in a call of Ray's."""
    from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
    from ray.train.tensorflow import TensorflowTrainer

    trainer = TensorflowTrainer(
        functools.partial(train_in_worker, call, relay),
        scaling_config=ScalingConfig(
            num_workers=n_workers, use_gpu=call.has_gpus, resources_per_worker=resources
        ),
        run_config=RunConfig(
            name="bilm", storage_path=storage, failure_config=FailureConfig(max_failures=MAX_RESTARTS)
        ),
    )
    try:
        trainer.fit()
    except SystemExit:  # so Ray Train ends when the job is cancelled
        return
    except TrainingFailedError as error:
        reasons = getattr(error, "worker_failures", {}).values() or [error]
        raise ProcessError(
            f"workers were lost more than {MAX_RESTARTS} times, at last: {_last_line(*reasons)}; "
            "resume=True continues from what was saved"
        ) from None


def _end(job: Any) -> None:  # noqa: ANN401
    """End a job that may be running yet, with its workers and what they have reserved."""
    import ray

    ray.cancel(job)  # a Ctrl-C to Ray Train, which ends them
    if not ray.wait([job], timeout=_SECONDS_TO_END)[0]:
        ray.cancel(job, force=True)


def _last_line(error: BaseException, *_: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else type(error).__name__


def _follow(
    call: RemoteCall,
    job: Any,  # noqa: ANN401
    relay: Any,  # noqa: ANN401
    reporter: Reporter,
    should_stop: Callable[[], bool] | None,
) -> TrainingResult:
    """Report what the chief does until the job has ended; its result."""
    import ray
    import ray.exceptions

    result: TrainingResult | None = None
    is_shown, is_heard, began = False, False, time.monotonic()
    try:
        while True:
            ended, _ = ray.wait([job], timeout=_SECONDS_BETWEEN_LOOKS)
            for name, values in ray.get(relay.take.remote()):
                is_heard = True
                if name == "failed":
                    error, text = values
                    raise ray.exceptions.RayTaskError(call.kind, text, error)
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
                    raise ProcessError("Ray has ended the training without a result")
                return result
            if should_stop is not None and should_stop():
                relay.stop.remote()
            if not is_heard and time.monotonic() - began > _SECONDS_TO_START:
                is_heard = True
                reporter.warn("Ray has not started the workers yet; is there room in the cluster now?")
    finally:
        if is_shown:
            reporter.end()
