"""What a call of train or restart has to do: its text, its numbers, and what is made of them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from bilm.cli.texts import read_text, steps_per_epoch
from bilm.cli.training_flags import TrainingFlags
from bilm.errors import OptionsError
from bilm.options import Decay, Options
from bilm.vocabulary.vocabulary import Vocabulary

if TYPE_CHECKING:
    import tensorflow as tf

    from bilm.data.pipeline import TrainingBatch
    from bilm.data.position import Position
    from bilm.runs.loop import Plan, Validation
    from bilm.training.trainer import Trainer
    from bilm.training.workers import Worker

TEXT, HELDOUT = "--train-prefix", "--heldout-prefix"
_SLICE_TOKENS = 20_000  # of the training text, scored beside the heldout text


def make_strategy(n_gpus: int, worker: Worker) -> tf.distribute.Strategy:
    """Devices for the replicas; for a single one, wherever TensorFlow puts it.

    Raises:
        OptionsError: there are not so many GPUs.
    """
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    if n_gpus > 1 and len(devices) < n_gpus:
        raise OptionsError(f"--n-gpus {n_gpus}: TensorFlow finds {len(devices)} GPUs on this machine")
    if worker.n_workers > 1:
        click.echo(f"worker {worker.index} of {worker.n_workers}: waiting for the others")
        tf.config.set_visible_devices(devices[:n_gpus], "GPU")
        return tf.distribute.MultiWorkerMirroredStrategy()
    if n_gpus == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(n_gpus)])


class Job:
    """A call of train or restart, its text read and its numbers known.

    Args:
        kind: the command's name.
        options: complete but for ``n_train_tokens``, which is filled in from the text.
        flags: of the command.
        vocabulary: of the model.
        freeze: see `bilm.training.trainer.Trainer`.
        begun: `settings` of the call that is resumed, if there is one.

    Raises:
        DataError: the text cannot be read, is too small, or is not that of the call that is resumed.
        OptionsError: there are not so many GPUs.
    """

    def __init__(
        self,
        kind: str,
        options: Options,
        flags: TrainingFlags,
        vocabulary: Vocabulary,
        freeze: str | None = None,
        begun: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        from bilm.training.workers import Worker

        self.kind = kind
        self.flags = flags
        self.freeze = freeze
        self.worker = Worker.from_environment()
        self.strategy = make_strategy(flags.n_gpus, self.worker)
        self.text = read_text(flags.prefixes, vocabulary, "corpus", begun.get(TEXT), TEXT)
        self.heldout = (
            read_text(flags.heldout, vocabulary, "heldout", begun.get(HELDOUT), HELDOUT)
            if flags.heldout
            else None
        )
        self._warn_of_overlap()
        self.steps_per_epoch = steps_per_epoch(options, self.text, self.strategy.num_replicas_in_sync)
        n_steps = options.n_epochs * self.steps_per_epoch
        self.n_steps = min(n_steps, flags.max_steps or n_steps)
        n_train_tokens = options.n_train_tokens or self.text.counts.n_tokens
        self.options = dataclasses.replace(options, n_train_tokens=n_train_tokens)

    def _warn_of_overlap(self) -> None:
        train = {path.resolve() for path in self.text.files}
        for path in () if self.heldout is None else self.heldout.files:
            if path.resolve() in train:
                click.echo(
                    f"warning: {path} is heldout text and training text; its perplexity will not show "
                    "over-fitting",
                    err=True,
                )

    def settings(self, seed: int) -> dict[str, Any]:
        """What may not change when the call is resumed."""
        options = self.options.to_json()
        if self.options.learning_rate_decay in (Decay.LINEAR, Decay.COSINE):
            options["n_steps"] = self.n_steps
        del options["n_epochs"]  # alone it only says when to end
        flags = self.flags
        values = {
            "command": self.kind,
            "options": options,
            "--seed": seed,
            "--shuffle": flags.shuffle,
            "--shuffle-buffer": flags.shuffle_buffer,
            "--n-gpus": flags.n_gpus,
            "workers": self.worker.n_workers,
            "--jit": flags.jit,
            "--freeze": self.freeze,
            "--log-every": flags.log_every,
            TEXT: self.text.record,
        }
        if self.heldout is not None:
            values |= {HELDOUT: self.heldout.record, "--eval-every": flags.eval_every}
        return values

    def new_seed(self) -> int:
        """The seed given, or one drawn.

        Raises:
            OptionsError: several workers would each draw another.
        """
        if self.flags.seed is not None:
            return self.flags.seed
        if self.worker.n_workers > 1:
            raise OptionsError("--seed: needed for a job of several workers, the same for all")
        seed = random.SystemRandom().randrange(2**31)
        click.echo(f"seed: {seed}")
        return seed

    def make_trainer(self, seed: int) -> Trainer:
        """A new model, ready to be trained."""
        from bilm.layers.keras_backend import keras
        from bilm.models.language_model import LanguageModel
        from bilm.training.trainer import Trainer

        keras.utils.set_random_seed(seed)
        with self.strategy.scope():
            model = LanguageModel(self.options, self.options.precision)
        click.echo(f"model: {model.count_params():,} parameters, {self.options.n_tokens_vocab:,} words")
        return Trainer(model, seed, self.strategy, self.worker, self.freeze, self.flags.jit)

    def plan(self) -> Plan:
        """What the call is to do."""
        from bilm.runs.loop import Plan

        flags = self.flags
        every = self.steps_per_epoch if flags.eval_every == "epoch" else int(flags.eval_every)
        return Plan(
            n_steps=self.n_steps,
            steps_per_epoch=self.steps_per_epoch,
            save_every=flags.save_every,
            keep=flags.keep,
            eval_every=None if self.heldout is None else every,
            patience=flags.patience,
            log_every=flags.log_every,
            histograms_every=flags.histograms_every,
        )

    def batches(
        self, trainer: Trainer, first_step: int, position: Position | None
    ) -> Iterator[TrainingBatch]:
        """The training text from a position, or from its beginning."""
        from bilm.data.pipeline import training_batches
        from bilm.data.position import Order
        from bilm.io.prefetch import prefetch

        shards = self.text.counts.shards
        order = Order(
            len(shards),
            self.flags.shuffle,
            trainer.seed + first_step,  # a restart does not read the text in the order of its run
            self.flags.shuffle_buffer,
            self.worker.index,
            self.worker.n_workers,
        )
        return prefetch(
            training_batches(
                shards,
                self.text.vocabulary,
                self.options,
                order,
                n_replicas=trainer.n_parts,
                start=position,
            )
        )

    def validation(self, trainer: Trainer) -> Validation | None:
        """How the model is to be scored on the way; None without heldout text."""
        from bilm.runs.loop import Validation
        from bilm.training.evaluation import Evaluator

        if self.heldout is None:
            return None
        heldout = self.heldout
        return Validation(
            Evaluator(trainer.model),
            lambda: heldout.batches(self.options),
            lambda: self.text.batches(self.options, max_tokens=_SLICE_TOKENS),
        )
