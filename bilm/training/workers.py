"""Workers of a training run on several machines, described by ``TF_CONFIG``, and their communication.

All workers run the same command. Each has its own rows, LSTM states and part of the text; gradients are
averaged over all workers. Only the first worker, the chief, writes files.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.errors import LostWorkerError, OptionsError
from bilm.io import messages
from bilm.io.json_objects import parse_json
from bilm.models.encoder import States

_EXPECTED = '{"cluster": {"worker": ["host0:port", "host1:port"]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True)
class Worker:
    """One process of a job.

    Attributes:
        index: number of the process; 0 is the chief.
        n_workers: number of processes.
    """

    index: int = 0
    n_workers: int = 1

    @classmethod
    def from_environment(cls) -> "Worker":
        """Read ``TF_CONFIG``; without it, the process is the only worker.

        Raises:
            OptionsError: ``TF_CONFIG`` is malformed, or has roles other than chief and worker.
        """
        text = os.environ.get("TF_CONFIG") or "{}"
        try:
            config = parse_json(text)
            cluster, task = dict(config.get("cluster") or {}), dict(config.get("task") or {})
            addresses = [(kind, i) for kind in ("chief", "worker") for i in range(len(cluster.get(kind, [])))]
            strange = sorted(cluster.keys() - {"chief", "worker"})
            if not cluster:
                return cls()
            if strange:
                raise ValueError(f"has {', '.join(strange)}")
            own = (str(task.get("type")), int(task.get("index", -1)))
            return cls(addresses.index(own), len(addresses))
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            raise OptionsError(f"TF_CONFIG: {error}; expected {_EXPECTED}") from error

    @property
    def is_chief(self) -> bool:
        """True for the worker that writes files."""
        return self.index == 0

    def strategy(self, n_gpus: int = 1) -> tf.distribute.Strategy:
        """Return the distribution strategy of the replicas; waits for the other workers.

        Args:
            n_gpus: GPUs of this machine, one replica each; with 1, TensorFlow chooses the device.

        Raises:
            OptionsError: there are too few GPUs.
        """
        devices = tf.config.list_physical_devices("GPU")
        if n_gpus > 1 and len(devices) < n_gpus:
            problem = f"TensorFlow finds {len(devices)} GPUs on this machine; give {max(len(devices), 1)}"
            raise OptionsError(f"`n_gpus` {n_gpus}: {problem}")
        if self.n_workers > 1:
            tf.config.set_visible_devices(devices[:n_gpus], "GPU")
            return tf.distribute.MultiWorkerMirroredStrategy()
        if n_gpus == 1:
            return tf.distribute.get_strategy()
        return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(n_gpus)])


@contextlib.contextmanager
def lost_workers_told(worker: Worker) -> Iterator[None]:
    """Raise a `LostWorkerError` for an error of TensorFlow in a job of several workers."""
    try:
        yield
    except tf.errors.OpError as error:
        if worker.n_workers == 1 or messages.is_out_of_memory(error):
            raise
        raise LostWorkerError(
            f"worker {worker.index} lost contact with the others, or did not find them "
            f"({messages.reason(error)}); stop the remaining workers and start the job again with resume=True"
        ) from error


class Workers:
    """Communication between all workers, which must call the same methods in the same order.

    Args:
        worker: this process.
        strategy: distribution strategy of the model.

    Attributes:
        n_replicas: replicas of this worker.
    """

    def __init__(self, worker: Worker, strategy: tf.distribute.Strategy) -> None:
        self.worker = worker
        self.strategy = strategy
        self.n_replicas = strategy.num_replicas_in_sync // worker.n_workers
        self._all_gather = tf.function(self._gather_over_replicas, autograph=False)

    @property
    def first_replica(self) -> int:
        """Index of this worker's first replica among all replicas."""
        return self.worker.index * self.n_replicas

    def any(self, flag: bool) -> bool:
        """Return true if the flag is true on any worker."""
        return self.mean(float(flag)) > 0.0

    def mean(self, value: float) -> float:
        """Return the mean of the workers' values, the same on all workers."""
        (values,) = self._gather([tf.constant([value], tf.float64)])
        return float(values.mean())

    def gather_json(self, value: object) -> list[Any]:
        """Gather a JSON value from every worker."""
        if self.worker.n_workers == 1:
            return [value]
        data = np.frombuffer(json.dumps(value).encode(), np.uint8)
        (lengths,) = self._gather([tf.constant([len(data)])])
        # Padded to few sizes, because the operation is compiled for each.
        padded = np.zeros(1 << int(lengths.max()).bit_length(), np.int32)
        padded[: len(data)] = data
        (rows,) = self._gather([tf.constant(padded[None])])
        pairs = zip(rows, lengths.tolist(), strict=True)
        return [json.loads(row[:length].astype(np.uint8).tobytes()) for row, length in pairs]

    def of_chief(self, array: np.ndarray) -> np.ndarray:
        """Return the chief's array, which has the same shape on all workers."""
        if self.worker.n_workers == 1:
            return array
        own = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(array * (context.replica_id_in_sync_group == 0))
        )
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, own, axis=None).numpy()

    def gather_states(self, states: tuple[States, ...]) -> tuple[States, ...]:
        """Gather the LSTM states of all workers' parts."""
        gathered = self._gather(tf.nest.flatten(states))
        leaves = [tf.split(tf.constant(leaf), self.worker.n_workers) for leaf in gathered]
        by_worker = [tf.nest.pack_sequence_as(states, [*own]) for own in zip(*leaves, strict=True)]
        return tuple(state for parts in by_worker for state in parts)

    def _gather(self, values: list[tf.Tensor]) -> list[np.ndarray]:
        """Concatenate the values of all workers along the first axis."""
        if self.worker.n_workers == 1:
            return [value.numpy() for value in values]
        everything = [value.numpy() for value in self._all_gather(values)]
        # All replicas of a worker give the same value; take one of each worker.
        parts = [np.split(value, self.strategy.num_replicas_in_sync) for value in everything]
        return [np.concatenate(part[:: self.n_replicas]) for part in parts]

    def _gather_over_replicas(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        def gather() -> list[tf.Tensor]:
            context = tf.distribute.get_replica_context()
            return [context.all_gather(tf.identity(value), axis=0) for value in values]

        return [self.strategy.experimental_local_results(value)[0] for value in self.strategy.run(gather)]
