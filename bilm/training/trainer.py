"""Training steps: the compiled step function and the loop that feeds it."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.backend.on_tensorflow import traced_once
from bilm.backend.settings import power_of_two
from bilm.backend.xla import compiles
from bilm.data.pipeline import Batch, TrainingBatch
from bilm.errors import OptionsError
from bilm.models.encoder import States
from bilm.models.language_model import LanguageModel, WindowLosses
from bilm.options import Precision
from bilm.training import meter, optimizers, update, workers
from bilm.training.negative_sampling import LogUniformSampler, Negatives


class TypePadding:
    """Pads the length buckets of batches with unused rows.

    The size of a bucket is a power of two and never decreases, so that new shapes soon stop appearing.
    """

    def __init__(self) -> None:
        self._n_rows: list[int] = []

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with padded buckets and the same tokens."""
        buckets = batch.type_characters
        if not buckets:
            return batch
        sizes = [len(rows) for rows in buckets]
        self._n_rows = [*map(max, self._n_rows or [1] * len(sizes), map(power_of_two, sizes))]
        missing = np.array(self._n_rows) - sizes
        padded = tuple(np.pad(rows, ((0, n), (0, 0))) for rows, n in zip(buckets, missing, strict=True))
        # A word moves by the number of rows added before its bucket.
        moved = np.arange(sum(sizes)) + np.repeat(np.cumsum(missing) - missing, sizes)
        type_words = np.full(sum(self._n_rows), -1, np.int32)
        type_words[moved] = batch.type_words
        return Batch(padded, type_words, moved.astype(np.int32)[batch.token_types], batch.targets)


class Trainer:
    """A model in training: its optimizer, its LSTM states, and the compiled step.

    A step takes one window for each *part*. Each replica has ``options.accumulate`` parts, and parts are
    ordered by replica. Every part has its own LSTM states; one update uses the gradients of all parts.

    Args:
        model: language model, built under ``strategy.scope()``.
        seed: seed of dropout and softmax sampling; draws depend only on seed and step number.
        strategy: `tf.distribute.MirroredStrategy` for several devices, or the multi-worker strategy.
        worker: this process of a job on several machines; it trains the parts of its own replicas.
        freeze: prefix of the names of variables that are not trained, such as ``"softmax/"``.
        jit: compile the whole forward and backward pass with XLA; pads batches to few shapes.

    Raises:
        OptionsError: `jit` without a sampled softmax, or without XLA.
    """

    def __init__(
        self,
        model: LanguageModel,
        seed: int = 0,
        strategy: tf.distribute.Strategy | None = None,
        worker: workers.Worker | None = None,
        freeze: str | None = None,
        jit: bool = False,
    ) -> None:
        self.model = model
        self.options = model.options
        self.strategy = strategy or tf.distribute.get_strategy()
        self.workers = workers.Workers(worker or workers.Worker(), self.strategy)
        self.n_replicas = self.workers.n_replicas
        self.n_parts = self.n_replicas * self.options.accumulate
        self.seed = seed
        self.jit = jit
        if jit and not self.options.use_sampling:
            raise OptionsError(
                "jit=True: XLA cannot compile the full softmax; sample it (sample_softmax, and "
                "n_negative_samples_batch below the size of the vocabulary), or leave jit=True out"
            )
        if jit and not compiles():
            raise OptionsError("jit=True needs XLA, which is switched off or does not work here")
        self._padding = [TypePadding() for _ in range(self.n_parts)] if jit else []
        self.sampler = None
        if self.options.use_sampling:
            n_samples = self.options.n_negative_samples_batch
            self.sampler = LogUniformSampler(n_samples, model.softmax.n_tokens, seed)
        self.loss_scale = meter.LossScale() if self.options.precision is Precision.FLOAT16 else None
        weights = model.named_weights()
        with self.strategy.scope():
            self.optimizer = optimizers.make_optimizer(self.options, weights)
        trained = [name for name in weights if freeze is None or not name.startswith(freeze)]
        self.variables = {name: weights[name] for name in trained}
        self.states: tuple[States, ...] = (model.zero_states(self.options.batch_size),) * self.n_parts
        self._step = traced_once(self._distributed_step, self._signature())

    @property
    def n_bytes(self) -> int:
        """Bytes of weights and optimizer state, as in a checkpoint."""
        variables = [variable.value for variable in (*self.model.weights, *self.optimizer.variables)]
        return sum(variable.dtype.size * int(variable.shape.num_elements()) for variable in variables)

    def step(
        self, batches: Sequence[Batch], step: int, rate: float | None = None
    ) -> tuple[list[float], float]:
        """Update the model with one window for each part.

        Args:
            batches: one batch for each part of this worker.
            step: number of the step over the whole life of the model, from 1; determines the random draws.
            rate: learning rate; None for ``options.step_size``.

        Returns:
            Negative log-likelihood of each direction, summed over the tokens of all parts; and the global
            norm of the gradients before clipping.
        """
        seed = np.array([self.seed & 0x7FFFFFFF, step], np.int32)
        if self.jit:
            batches = [padding(batch) for padding, batch in zip(self._padding, batches, strict=True)]
        rate = self.options.step_size if rate is None else rate
        scale = 1.0 if self.loss_scale is None else self.loss_scale.value
        factors = (np.float32(rate), np.float32(scale))
        numbers, self.states = self._step(tuple(batches), self.states, self._negatives(step), seed, *factors)
        *sums, norm = numbers.numpy().tolist()
        return sums, norm

    def _negatives(self, step: int) -> tuple[tuple[Negatives, ...], ...]:
        """Draw the negative classes by replica and direction; empty for the full softmax."""
        if self.sampler is None:
            return ((),) * self.n_replicas
        n, first = self.options.n_directions, self.workers.first_replica
        return tuple(
            tuple(self.sampler.sample(step, replica * n + direction) for direction in range(n))
            for replica in range(first, first + self.n_replicas)
        )

    def _distributed_step(
        self,
        inputs: tuple[Batch, ...],
        states: tuple[States, ...],
        negatives: tuple[Any, ...],
        seed: tf.Tensor,
        rate: tf.Tensor,
        scale: tf.Tensor,
    ) -> tuple[tf.Tensor, tuple[States, ...]]:
        """Run the step on every replica; inputs and outputs are tuples by part or by replica."""
        options, n = self.options, self.options.accumulate

        def replica_step() -> tuple[tf.Tensor, tf.Tensor, tuple[States, ...]]:
            """Average the gradients of the replica's parts, and update the variables.

            Returns:
                Summed losses, (directions,); the norm of the gradients; and the states after the windows.
            """
            context = tf.distribute.get_replica_context()
            replica = int(tf.get_static_value(context.replica_id_in_sync_group))
            local, part = replica - self.workers.first_replica, self._part
            if n > 1 or self.jit:  # one graph for all parts, not a copy for each
                how = {"jit_compile": True} if self.jit else {"experimental_attributes": {"_noinline": True}}
                part = tf.function(part, autograph=False, **how)
            losses: list[WindowLosses] = []
            gradients: list[optimizers.Gradient] = []
            before = states[local * n : (local + 1) * n]
            for k in range(n):
                of_part = tf.random.experimental.stateless_fold_in(seed, replica * n + k)
                # One part after the other, so that the memory is that of one, and of the gradients' sum.
                with tf.control_dependencies(tf.nest.flatten(gradients, expand_composites=True)):
                    window, state = tf.nest.map_structure(tf.identity, (inputs[local * n + k], before[k]))
                of_window, own = part(
                    window, state, negatives[local], of_part, scale, rate / options.step_size
                )
                losses.append(of_window)
                gradients = [*map(update.total, zip(gradients, own, strict=True))] if gradients else own
            if n > 1:
                gradients = [tf.math.scalar_mul(1.0 / n, gradient) for gradient in gradients]
            variables, clip_norm = [*self.variables.values()], options.all_clip_norm_val
            loss_scale = None if self.loss_scale is None else scale
            norm, rows = update.update(self.optimizer, gradients, variables, rate, clip_norm, loss_scale)
            is_finite = tf.math.is_finite(norm)
            if options.weight_decay:
                decay = tf.where(is_finite, rate * options.weight_decay, 0.0)
                update.decay_weights(self.variables, rows, decay)
            after = tuple(window.states for window in losses)
            if self.loss_scale is not None:
                after = tf.nest.map_structure(lambda new, old: tf.where(is_finite, new, old), after, before)
            return tf.add_n([window.sums for window in losses]), norm, after

        sums, norm, after = self.strategy.run(replica_step)
        sums = self.strategy.reduce(tf.distribute.ReduceOp.SUM, sums, axis=None)
        norm = self.strategy.experimental_local_results(norm)[0]
        flat = [self.strategy.experimental_local_results(leaf) for leaf in tf.nest.flatten(after)]
        by_replica = [tf.nest.pack_sequence_as(states[:n], [*leaves]) for leaves in zip(*flat, strict=True)]
        return tf.concat([sums, [norm]], 0), tuple(state for parts in by_replica for state in parts)

    def _part(
        self,
        inputs: Batch,
        states: States,
        negatives: tuple[Any, ...],
        seed: tf.Tensor,
        scale: tf.Tensor,
        tying_share: tf.Tensor,
    ) -> tuple[WindowLosses, list[optimizers.Gradient]]:
        """Compute the losses of one part's window, and their gradients."""
        variables = [variable.value for variable in self.variables.values()]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            window = self.model.losses(inputs, states, negatives, seed, tying_share)
            n_steps, n_rows = self.options.unroll_steps, self.options.batch_size
            mean = tf.reduce_mean(window.sums) / float(n_steps * n_rows)
            objective = (mean + window.penalty) * float(n_steps)
            if self.loss_scale is not None:
                objective *= scale
        return window, tape.gradient(objective, variables)

    def _signature(self) -> list[Any]:
        options, n_directions = self.options, self.options.n_directions
        tokens = tf.TensorSpec([n_directions, options.unroll_steps, options.batch_size], tf.int32)
        widths = () if options.char_cnn is None else options.char_cnn.bucket_widths
        characters = tuple(tf.TensorSpec([None, width], tf.int32) for width in widths)
        window = Batch(characters, tf.TensorSpec([None], tf.int32), tokens, tokens)
        states = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), self.states)
        number = tf.TensorSpec([], tf.float32)
        sample = Negatives(tf.TensorSpec([options.n_negative_samples_batch], tf.int32), number)
        negatives = (sample,) * n_directions if self.sampler is not None else ()
        seed = tf.TensorSpec([2], tf.int32)
        return [(window,) * self.n_parts, states, (negatives,) * self.n_replicas, seed, number, number]


def training_steps(
    trainer: Trainer, batches: Iterator[TrainingBatch], n_steps: int, first_step: int = 0, n_done: int = 0
) -> Iterator[meter.StepReport]:
    """Take training steps, one for each report requested from the iterator.

    Args:
        trainer: model in training.
        batches: batches with one part for each part of the trainer; must not end before the last step.
        n_steps: steps of the whole schedule.
        first_step: training steps of the model when the schedule began.
        n_done: steps of the schedule taken before.
    """
    n_tokens = trainer.options.step_tokens * trainer.strategy.num_replicas_in_sync
    for done in range(n_done + 1, n_steps + 1):
        started = time.monotonic()
        batch = next(batches)
        ready = time.monotonic()
        rate = update.learning_rate(trainer.options, done, n_steps)
        sums, norm = trainer.step(batch.parts, first_step + done, rate)
        yield meter.StepReport(
            step=first_step + done,
            n_done=done,
            n_steps=n_steps,
            direction_losses=tuple(loss / n_tokens for loss in sums),
            gradient_norm=norm,
            learning_rate=rate,
            n_tokens=n_tokens,
            batch=batch,
            seconds=time.monotonic() - started,
            wait_seconds=ready - started,
            is_skipped=trainer.loss_scale is not None and trainer.loss_scale.follow(norm),
        )
