"""The training loop: one step function, one loop, and callbacks that report and save."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bilm.batches import Batch, TrainingBatch
from bilm.encoder import States
from bilm.language_model import LanguageModel, WindowInputs
from bilm.optimizer import Adagrad, update
from bilm.sampling import LogUniformSampler, Negatives


class StepResult(NamedTuple):
    """What one step tells.

    Attributes:
        sums: negative log-likelihood by direction, summed over all replicas' tokens, (directions,).
        n_targets: targets in each direction, over all replicas.
        gradient_norm: global norm before clipping.
    """

    sums: tf.Tensor
    n_targets: tf.Tensor
    gradient_norm: tf.Tensor


@dataclass(frozen=True)
class StepReport:
    """One training step, as callbacks see it; losses are per token, in nats.

    Attributes:
        step: steps behind the model, this one included.
        n_done: steps of this call so far, of ``n_steps``.
        direction_losses: mean loss of each direction.
        gradient_norm: global norm before clipping.
        n_tokens: targets of this step in one direction.
        seconds: since the call began.
    """

    step: int
    n_done: int
    n_steps: int
    direction_losses: tuple[float, ...]
    gradient_norm: float
    n_tokens: int
    seconds: float

    @property
    def loss(self) -> float:
        """Mean over the directions."""
        return sum(self.direction_losses) / len(self.direction_losses)

    @property
    def perplexity(self) -> float:
        """exp(loss); of a sample where the softmax is sampled."""
        return math.exp(min(self.loss, 700.0))


Callback = Callable[[StepReport], None]


class Trainer:
    """A model in training: its optimizer, its LSTM states, and the compiled step.

    Args:
        model: built under ``strategy.scope()``.
        bucket_widths: columns of the batches' length buckets, see `bilm.batches.length_buckets`.
        seed: of dropout and softmax sampling; step n draws the same whatever came before.
        strategy: `tf.distribute.MirroredStrategy` for several devices; batches then come as one a
            replica, each with its own LSTM states.
    """

    def __init__(
        self,
        model: LanguageModel,
        bucket_widths: Sequence[int],
        seed: int = 0,
        strategy: tf.distribute.Strategy | None = None,
    ) -> None:
        self.model = model
        self.options = model.options
        self.strategy = strategy or tf.distribute.get_strategy()
        self.n_replicas = self.strategy.num_replicas_in_sync
        self.seed = seed
        self.sampler = None
        if self.options.use_sampling:
            n_samples = self.options.n_negative_samples_batch
            self.sampler = LogUniformSampler(n_samples, model.softmax.n_tokens, seed)
        with self.strategy.scope():
            self.optimizer = Adagrad(self.options.learning_rate)
            self.optimizer.build(model.trainable_variables)
            zero = model.zero_states(self.options.batch_size)
        self.states: tuple[States, ...] = (zero,) * self.n_replicas
        self._step = tf.function(self._distributed_step, input_signature=self._signature(bucket_widths))

    def step(self, batches: Sequence[Batch], step: int) -> StepResult:
        """Update the model by one window for each replica; `step` counts from 1 over the whole run."""
        seed = np.array([self.seed & 0x7FFFFFFF, step], np.int32)
        inputs = tuple(WindowInputs.of(batch) for batch in batches)
        result, self.states = self._step(inputs, self.states, self._negatives(step), seed)
        return result

    def _negatives(self, step: int) -> tuple[tuple[Negatives, ...], ...]:
        """Sampled classes by replica and direction; empty for the full softmax."""
        if self.sampler is None:
            return ((),) * self.n_replicas
        n = self.options.n_directions
        return tuple(
            tuple(self.sampler.sample(step, replica * n + direction) for direction in range(n))
            for replica in range(self.n_replicas)
        )

    def _distributed_step(
        self,
        inputs: tuple[WindowInputs, ...],
        states: tuple[States, ...],
        negatives: tuple[Any, ...],
        seed: tf.Tensor,
    ) -> tuple[StepResult, tuple[States, ...]]:
        """Run the step on every replica; everything in and out is a plain tuple by replica."""

        def replica_step() -> tuple[StepResult, States]:
            context = tf.distribute.get_replica_context()
            replica = int(tf.get_static_value(context.replica_id_in_sync_group))
            replica_seed = tf.random.experimental.stateless_fold_in(seed, replica)
            return self._replica_step(inputs[replica], states[replica], negatives[replica], replica_seed)

        result, after = self.strategy.run(replica_step)
        sums, n_targets = (
            self.strategy.reduce(tf.distribute.ReduceOp.SUM, value, axis=None) for value in result[:2]
        )
        norm = self.strategy.experimental_local_results(result.gradient_norm)[0]
        flat = [self.strategy.experimental_local_results(leaf) for leaf in tf.nest.flatten(after)]
        by_replica = tuple(
            tf.nest.pack_sequence_as(states[0], list(leaves)) for leaves in zip(*flat, strict=True)
        )
        return StepResult(sums, n_targets, norm), by_replica

    def _replica_step(
        self, inputs: WindowInputs, states: States, negatives: tuple[Any, ...], seed: tf.Tensor
    ) -> tuple[StepResult, States]:
        variables = self.model.trainable_variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([variable.value for variable in variables])
            window = self.model.losses(inputs, states, negatives, seed)
            objective = window.mean * float(self.options.unroll_steps)
        gradients = tape.gradient(objective, [variable.value for variable in variables])
        norm = update(self.optimizer, gradients, variables, self.options.all_clip_norm_val)
        return StepResult(window.sums, window.n_targets, norm), window.states

    def _signature(self, bucket_widths: Sequence[int]) -> list[Any]:
        options = self.options
        n_directions = options.n_directions
        window = WindowInputs.signature(n_directions, options.unroll_steps, options.batch_size, bucket_widths)
        states = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), self.states)
        sample = Negatives(
            tf.TensorSpec([options.n_negative_samples_batch], tf.int32), tf.TensorSpec([], tf.float32)
        )
        negatives = (sample,) * n_directions if self.sampler is not None else ()
        seed = tf.TensorSpec([2], tf.int32)
        return [(window,) * self.n_replicas, states, (negatives,) * self.n_replicas, seed]


def train(
    trainer: Trainer,
    batches: Iterator[TrainingBatch],
    n_steps: int,
    first_step: int = 0,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Take `n_steps` steps.

    Args:
        trainer: see `Trainer`.
        batches: one batch a replica for each step; must not end before `n_steps`.
        n_steps: steps of this call.
        first_step: steps already behind the model.
        callbacks: called with a `StepReport` after each step, in order.
    """
    started = time.monotonic()
    for n_done, batch in enumerate(itertools.islice(batches, n_steps), start=1):
        step = first_step + n_done
        result = trainer.step(batch.parts, step)
        n_tokens = float(result.n_targets)
        report = StepReport(
            step=step,
            n_done=n_done,
            n_steps=n_steps,
            direction_losses=tuple(float(total) / n_tokens for total in result.sums.numpy()),
            gradient_norm=float(result.gradient_norm),
            n_tokens=round(n_tokens),
            seconds=time.monotonic() - started,
        )
        for callback in callbacks:
            callback(report)
