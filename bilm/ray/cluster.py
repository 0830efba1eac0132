"""Connect to a Ray cluster, divide its resources among workers, and translate its errors."""

import dataclasses
import logging
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import ray

from bilm.errors import ArgumentError, BilmError, OptionsError, ProcessError, require_kind, require_positive
from bilm.io.messages import held_back, reason
from bilm.runs.reporter import Reporter, TrainingResult

_ADDRESS = re.compile(r"local|auto|(ray://)?[\w.-]+:\d+|(ray://)?\[[\da-fA-F:]+\]:\d+")
_ADVICE = re.compile(r"\n?Failed to .+ after \d+/\d+ attempts .+", re.DOTALL)
_CPUS_OF_A_WORKER = 2
_SECONDS_TO_ANSWER = 10.0
# Suppresses a warning about a future default, and logs that do not concern users.
_QUIET = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "RAY_BACKEND_LOG_LEVEL": "fatal"}


@dataclass(frozen=True)
class Cluster:
    """The cluster that a job runs on, and the size of its workers: ``--ray`` and its options.

    An existing connection of this process is used as it is.

    Attributes:
        address: ``local`` for this machine, ``HOST:PORT`` of a cluster, or ``auto`` for the cluster of
            ``RAY_ADDRESS`` or of this machine.
        n_workers: number of worker processes; by default as many as fit, in training one.
        cpus_per_worker: CPUs, and threads, of each worker; by default 2, or 1 with a GPU or if 2 do not fit.
        gpus_per_worker: GPUs of each worker, may be a fraction; by default 1 if the cluster has GPUs, else 0;
            in training `n_gpus` if that is more.

    Raises:
        ArgumentError: `address` has another form.
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
                f"`ray`: {self.address!r:.80} is not an address; give local, auto, HOST:PORT or ray://HOST:PORT"
            )
        numbers = {"n_workers": self.n_workers, "cpus_per_worker": self.cpus_per_worker}
        require_positive(**{name: number for name, number in numbers.items() if number is not None})
        require_kind("gpus_per_worker", self.gpus_per_worker, float | None)
        if self.gpus_per_worker is not None and not 0 <= self.gpus_per_worker < float("inf"):
            raise OptionsError(f"`gpus_per_worker` is {self.gpus_per_worker}; it must be 0 or more")

    @contextmanager
    def connected(self, has_model: bool = True) -> "Iterator[Workers]":
        """Connect for the duration of a block, and yield the size of the workers.

        Errors of bilm in a worker are raised unchanged, errors of Ray as a `ProcessError` of one line.

        Args:
            has_model: whether a worker holds a model; without, it gets one CPU by default and no GPU.

        Raises:
            ProcessError: the cluster cannot be reached, or a worker failed.
            OptionsError: the workers do not fit.
        """
        with errors_of_workers(), ExitStack() as stack:
            if not ray.is_initialized():
                self._connect()
                stack.callback(ray.shutdown)
            yield self.workers(ray.cluster_resources(), has_model)

    def train(
        self,
        kind: str,
        arguments: Mapping[str, Any],
        reporter: Reporter,
        should_stop: Callable[[], bool] | None,
    ) -> TrainingResult:
        """Run `bilm.train` or `bilm.restart` on this cluster; they call this if they get a cluster.

        Args:
            kind: ``train`` or ``restart``.
            arguments: other arguments of the call; None for a default.
            reporter: receives the progress of the first worker.
            should_stop: called several times a second; a true result ends the training.

        Raises:
            BilmError: as the call or `connected`, or if workers were lost too often.
        """
        from bilm.ray.training import RemoteCall, run

        n_gpus = arguments.get("n_gpus") or 1
        gpus = float(n_gpus) if self.gpus_per_worker is None and n_gpus > 1 else self.gpus_per_worker
        wanted = dataclasses.replace(self, n_workers=self.n_workers or 1, gpus_per_worker=gpus)
        call = RemoteCall(kind, arguments, reporter.command)
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
            if port.isdigit():  # Ray itself would try for minutes
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
                f"the Ray cluster {address} cannot be reached ({reason(error)}); is it running? The address "
                "local needs no cluster"
            ) from error
        finally:  # Ray's own handler of SIGTERM ends the process at once
            for number, handler in handlers.items():
                with suppress(ValueError, TypeError):  # not in the main thread; a handler of another language
                    signal.signal(number, handler)

    def workers(self, resources: Mapping[str, float], has_model: bool = True) -> "Workers":
        """Return the workers that a job gets from a cluster; see `connected`.

        Args:
            resources: resources of the cluster by Ray's names: ``CPU``, ``GPU``.
            has_model: whether a worker holds a model.

        Raises:
            OptionsError: the workers do not fit.
        """
        n_cpus, n_gpus = resources.get("CPU", 0), resources.get("GPU", 0)
        default_gpus = float(has_model and n_gpus >= 1)
        gpus = default_gpus if self.gpus_per_worker is None else self.gpus_per_worker
        default_cpus = _CPUS_OF_A_WORKER if has_model and not gpus else 1
        cpus = self.cpus_per_worker or max(1, min(default_cpus, int(n_cpus // (self.n_workers or 1))))
        room = min(n_cpus // cpus, int(n_gpus / gpus + 1e-6) if gpus else float("inf"))
        if room < (self.n_workers or 1):
            wanted = f"{cpus} CPUs" + (f" and {gpus:g} GPUs" if gpus else "")
            raise OptionsError(
                f"{self.n_workers or 1} workers of {wanted} each do not fit: Ray has {n_cpus:g} CPUs and "
                f"{n_gpus:g} GPUs; see `ray_workers`, `cpus_per_worker` and `gpus_per_worker`"
            )
        n = self.n_workers or max(1, int(min(room, (n_cpus - 1) // cpus)))
        # One CPU stays free for reading: Ray reserves a whole CPU for a reading task, and would wait forever.
        # Workers that reserve exactly as much as a task would be merged with it, and read whole files each.
        reserved = int(min(cpus, max(n_cpus - 1, 0) / n) * 100) / 100
        return Workers(n, cpus, gpus, 0.99 if reserved == 1 else reserved)


@dataclass(frozen=True)
class Workers:
    """The worker processes of a job.

    Attributes:
        n: number of workers.
        cpus: CPUs, and threads, of each.
        gpus: GPUs of each.
        reserved_cpus: CPUs that Ray reserves for each.
    """

    n: int
    cpus: int
    gpus: float
    reserved_cpus: float


@contextmanager
def errors_of_workers() -> Iterator[None]:
    """Unwrap errors of workers: raise the original exception instead of Ray's wrapper.

    Raises:
        BilmError: raised in the worker.
        OSError: raised in the worker.
        ProcessError: the worker or Ray itself failed.
    """
    ray_error = ray.exceptions.RayError
    try:
        yield
    except ray_error as error:
        cause: BaseException = error  # or the first cause that is not an exception of Ray
        while isinstance(cause, ray_error) and (inner := getattr(cause, "cause", None) or cause.__cause__):
            cause = inner
        if isinstance(cause, BilmError | OSError | MemoryError):
            # Ray Data appends its advice to the message or, without one, to the arguments.
            args = [_ADVICE.sub("", arg) if isinstance(arg, str) else arg for arg in cause.args]
            cause.args = tuple(arg for arg in args if arg != "")
            raise cause from error
        if not isinstance(cause, ray_error):
            raise  # a bug
        raise ProcessError(f"Ray: {reason(cause).rstrip('.')}") from error
