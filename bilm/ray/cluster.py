"""The Ray cluster of a job: connecting to it, the workers that it has room for, and its errors."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ray

from bilm.errors import ArgumentError, BilmError, DataError, OptionsError, ProcessError, require_positive
from bilm.io.messages import held_back, quoted, reason
from bilm.runs.reporter import Reporter, TrainingResult

_ADDRESS = re.compile(r"local|auto|(ray://)?[\w.-]+:\d+|(ray://)?\[[\da-fA-F:]+\]:\d+")
_ADVICE = re.compile(r"\n?Failed to .+ after \d+/\d+ attempts .+", re.DOTALL)
_CPUS_OF_A_WORKER = 2
_SECONDS_TO_ANSWER = 10.0
# Ray announces what will be its default, and logs what is of no concern here.
_QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


@dataclass(frozen=True)
class Cluster:
    """Where a job runs, and on how many workers.

    Attributes:
        address: ``local`` for this machine alone, ``HOST:PORT`` of a cluster, or ``auto`` for the one of
            ``RAY_ADDRESS`` or that runs on this machine. A process that is connected already stays so.
        n_workers: processes with a model each; by default as many as there is room for, in training one.
        cpus_per_worker: of a process, which are its threads; 2 by default, or 1 beside a GPU or where
            `n_workers` need the others.
        gpus_per_worker: of a process, may be a fraction; 1 by default where there is one, else 0; in training
            `n_gpus` if that is more.

    Raises:
        ArgumentError: `address` is no address.
        OptionsError: a number is out of range.
    """

    address: str = "auto"
    n_workers: int | None = None
    cpus_per_worker: int | None = None
    gpus_per_worker: float | None = None

    def __post_init__(self) -> None:
        """Check the values."""
        if not _ADDRESS.fullmatch(self.address):
            raise ArgumentError(
                f"`ray`: {quoted(self.address)} is no address; give local, auto, HOST:PORT or ray://HOST:PORT"
            )
        numbers = {"ray_workers": self.n_workers, "cpus_per_worker": self.cpus_per_worker}
        require_positive(**{name: number for name, number in numbers.items() if number is not None})
        if self.gpus_per_worker is not None and not 0 <= self.gpus_per_worker < float("inf"):
            raise OptionsError(f"gpus_per_worker is {self.gpus_per_worker}; it must be 0 or more")

    @contextmanager
    def connected(self, has_model: bool = True) -> Iterator[Workers]:
        """Connect, and say what workers there will be; what was started here ends with the block.

        Args:
            has_model: whether a worker has one; else it gets one CPU by default and no GPU.

        Errors of bilm in a worker are raised as they are, those of Ray as a `ProcessError` of one line.

        Raises:
            ProcessError: the cluster cannot be reached, or a worker failed.
            OptionsError: there is no room for the workers.
        """
        with errors_of_workers():
            is_new = not ray.is_initialized()
            if is_new:
                self._connect()
            try:
                yield self.room(ray.cluster_resources(), has_model)
            finally:
                if is_new:
                    ray.shutdown()

    def train(
        self,
        kind: str,
        arguments: Mapping[str, Any],
        reporter: Reporter,
        should_stop: Callable[[], bool] | None,
    ) -> TrainingResult:
        """Run a call of `bilm.train` or `bilm.restart` here, which they do if they are given a cluster.

        Args:
            kind: ``train`` or ``restart``.
            arguments: of the call, but for those below; None for what was not given.
            reporter: receives the progress of the first worker.
            should_stop: asked several times a second.

        Raises:
            BilmError: as the call, or as `connected`, or workers were lost too often.
        """
        try:
            from bilm.ray.training import remote_call, run
        except ImportError as error:
            raise DataError("--ray needs Ray: pip install 'ray[data,train]'") from error
        n_gpus = arguments.get("n_gpus") or 1
        gpus = float(n_gpus) if self.gpus_per_worker is None and n_gpus > 1 else self.gpus_per_worker
        wanted = dataclasses.replace(self, n_workers=self.n_workers or 1, gpus_per_worker=gpus)
        call = remote_call(kind, arguments, reporter.command)
        with wanted.connected() as workers:
            resources = {"CPU": workers.cpus, "GPU": workers.gpus}
            return run(call, workers.n, resources, reporter, should_stop)

    def _connect(self) -> None:
        os.environ.update(_QUIET | os.environ)
        address = self.address
        if address == "auto":
            address = os.environ.get("RAY_ADDRESS") or address
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        host, _, port = address.removeprefix("ray://").rpartition(":")
        try:
            if port.isdigit():  # Ray itself would ask for minutes
                socket.create_connection((host.strip("[]"), int(port)), _SECONDS_TO_ANSWER).close()
            with held_back():
                ray.init(
                    address,
                    include_dashboard=False if address == "local" else None,
                    logging_level=logging.ERROR,
                    log_to_driver=False,
                )
        except (OSError, ValueError, RuntimeError) as error:
            raise ProcessError(
                f"the Ray cluster {address} cannot be reached ({reason(error)}); is it running? --ray local "
                "needs none"
            ) from error
        finally:  # with Ray's own handler SIGTERM ends the process at once
            for number, handler in handlers.items():
                with suppress(ValueError, TypeError):  # not in the main thread; a handler of another language
                    signal.signal(number, handler)

    def room(self, resources: Mapping[str, float], has_model: bool = True) -> Workers:
        """The workers that a job gets of what a cluster has; see `connected`.

        Args:
            resources: of the cluster, as Ray names them: ``CPU``, ``GPU``.
            has_model: whether a worker has a model.

        Raises:
            OptionsError: there is no room for them.
        """
        n_cpus, n_gpus = resources.get("CPU", 0), resources.get("GPU", 0)
        default_gpus = float(has_model and n_gpus >= 1)
        gpus = default_gpus if self.gpus_per_worker is None else self.gpus_per_worker
        default_cpus = _CPUS_OF_A_WORKER if has_model and not gpus else 1
        cpus = self.cpus_per_worker or max(1, min(default_cpus, int(n_cpus // (self.n_workers or 1))))
        room = min(n_cpus // cpus, n_gpus // gpus if gpus else float("inf"))
        if room < (self.n_workers or 1):
            wanted = f"{cpus} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
            raise OptionsError(
                f"{self.n_workers or 1} workers of {wanted} each do not fit: Ray has {n_cpus:g} CPUs and "
                f"{n_gpus:g} GPUs; see `ray_workers`, `cpus_per_worker` and `gpus_per_worker`"
            )
        n = self.n_workers or max(1, int(min(room, (n_cpus - 1) // cpus)))
        # One is left for reading, or Ray, which counts a whole one for a task, would wait for it for ever.
        # And if workers had just as many as a task, Ray would let each of them read, whole files.
        reserved = int(min(cpus, max(n_cpus - 1, 0) / n) * 100) / 100
        return Workers(n, cpus, gpus, 0.99 if reserved == 1 else reserved)


@dataclass(frozen=True)
class Workers:
    """The processes that a job gets.

    Attributes:
        n: their number.
        cpus: of each, which are its threads.
        gpus: of each.
        reserved_cpus: of each, as Ray counts them.
    """

    n: int
    cpus: int
    gpus: float
    reserved_cpus: float


@contextmanager
def errors_of_workers() -> Iterator[None]:
    """Raise the error of a worker instead of what Ray makes of it.

    Raises:
        BilmError: as in the worker.
        OSError: as in the worker.
        ProcessError: the worker or Ray itself failed.
    """
    ray_error = ray.exceptions.RayError
    try:
        yield
    except ray_error as error:
        cause: BaseException = error  # or the first one below it that is not Ray's own
        while isinstance(cause, ray_error) and (inner := getattr(cause, "cause", None) or cause.__cause__):
            cause = inner
        if isinstance(cause, BilmError | OSError | MemoryError):
            # Ray Data adds to the message, or where there is none to the arguments.
            args = [_ADVICE.sub("", one) if isinstance(one, str) else one for one in cause.args]
            raise type(cause)(*(one for one in args if one != "")) from error
        if not isinstance(cause, ray_error):
            raise  # a defect
        raise ProcessError(f"Ray: {reason(cause).rstrip('.')}") from error
