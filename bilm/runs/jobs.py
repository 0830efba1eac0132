"""The job of a call of train or restart: its text, its settings, and what follows from them."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.backend.xla import compiles
from bilm.data.pipeline import TrainingBatch, training_batches
from bilm.data.position import Order, Position
from bilm.errors import OptionsError
from bilm.io import PathLike
from bilm.io.background import prefetch
from bilm.models.language_model import LanguageModel
from bilm.options import Decay, Options, Precision
from bilm.options.recipes import TrainingPlan, with_schedule
from bilm.runs.call import TrainingCall
from bilm.runs.loop import Plan, Validation
from bilm.runs.recipe_request import RecipeRequest
from bilm.runs.reporter import Reporter, Schedule
from bilm.runs.settings import as_patterns
from bilm.runs.texts import Text, read_text, steps_per_epoch, tokens_per_step
from bilm.training.evaluation import Evaluator
from bilm.training.trainer import Trainer
from bilm.training.workers import Worker
from bilm.vocabulary.vocabulary import Vocabulary

TEXT, HELDOUT = "--train-prefix", "--heldout-prefix"  # as checkpoints name them
XLA = "XLA"  # whether it compiles the LSTM; the last bits of the results depend on that
_SLICE_TOKENS = 20_000  # of the training text, scored beside the heldout text


def make_strategy(n_gpus: int, worker: Worker, reporter: Reporter) -> tf.distribute.Strategy:
    """Devices for the replicas; for a single one, wherever TensorFlow puts it.

    Raises:
        OptionsError: there are not so many GPUs.
    """
    devices = tf.config.list_physical_devices("GPU")
    if n_gpus > 1 and len(devices) < n_gpus:
        raise OptionsError(f"`n_gpus` {n_gpus}: TensorFlow finds {len(devices)} GPUs on this machine")
    if worker.n_workers > 1:
        reporter.say(f"worker {worker.index} of {worker.n_workers}: waiting for the others")
        tf.config.set_visible_devices(devices[:n_gpus], "GPU")
        return tf.distribute.MultiWorkerMirroredStrategy()
    if n_gpus == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(n_gpus)])


class Job:
    """A call of train or restart, its text read and its numbers known.

    Args:
        call: with its settings.
        train_prefix: patterns of the text.
        options: complete but for ``n_train_tokens``, which is filled in from the text.
        vocabulary: of the model.
        freeze: see `bilm.training.trainer.Trainer`.
        begun: `settings` of the call that is resumed, if there is one.
        recipe: to be filled into the options; None where they stand as they are.

    Raises:
        DataError: the text cannot be read, is too small, or is not that of the call that is resumed.
        OptionsError: there are not so many GPUs.
    """

    def __init__(
        self,
        call: TrainingCall,
        train_prefix: PathLike | Sequence[PathLike],
        options: Options,
        vocabulary: Vocabulary,
        freeze: str | None = None,
        begun: Mapping[str, Any] = MappingProxyType({}),
        recipe: RecipeRequest | None = None,
    ) -> None:
        self.call = call
        self.freeze = freeze
        self.worker = call.worker
        self.strategy = make_strategy(call.settings.n_gpus, self.worker, call.reporter)

        def read(patterns: Sequence[PathLike], name: str, key: str, argument: str) -> Text:
            files = call.input_files(patterns)
            return read_text(files, vocabulary, call.reporter, name, begun.get(key), argument)

        heldout = call.settings.heldout_prefix
        self.text = read(as_patterns(train_prefix), "corpus", TEXT, "train_prefix")
        self.heldout = read(heldout, "heldout", HELDOUT, "heldout_prefix") if heldout else None
        self._warn_of_overlap()
        self.steps_per_epoch = steps_per_epoch(options, self.text, self.strategy.num_replicas_in_sync)
        n_steps = options.n_epochs * self.steps_per_epoch
        self.n_steps = min(n_steps, call.settings.max_steps or n_steps)
        n_tokens = self.text.counts.n_tokens
        if recipe is not None:
            n_seen = self.n_steps * tokens_per_step(options, self.strategy.num_replicas_in_sync)
            plan = TrainingPlan(n_tokens, n_seen / n_tokens, self.n_steps)
            options = recipe.complete(options, plan, begun.get("options", {}), call.reporter)
        elif call.kind == "restart":
            options = with_schedule(options, self.n_steps, call.settings.values)
        n_train_tokens = options.n_train_tokens or n_tokens
        self.options = dataclasses.replace(options, n_train_tokens=n_train_tokens)

    def _warn_of_overlap(self) -> None:
        train = {path.resolve() for path in self.text.files}
        for path in () if self.heldout is None else self.heldout.files:
            if path.resolve() in train:
                self.call.reporter.warn(
                    f"{path} is both heldout and training text; its perplexity will not show overfitting"
                )

    def settings(self, seed: int) -> dict[str, Any]:
        """What may not change when the call is resumed."""
        options = self.options.to_json()
        if self.options.learning_rate_decay in (Decay.LINEAR, Decay.COSINE):
            options["n_steps"] = self.n_steps
        del options["n_epochs"]  # alone it only says when to end
        settings = self.call.settings
        values = {
            "command": self.call.kind,
            "options": options,
            "--seed": seed,
            "--shuffle": settings.shuffle,
            "--shuffle-buffer": settings.shuffle_buffer,
            "--n-gpus": settings.n_gpus,
            "workers": self.worker.n_workers,
            "--jit": settings.jit,
            XLA: compiles(),
            "--freeze": self.freeze,
            "--log-every": settings.log_every,
            TEXT: self.text.record,
        }
        if self.heldout is not None:
            values |= {HELDOUT: self.heldout.record, "--eval-every": settings.eval_every}
        return values

    def new_seed(self) -> int:
        """The seed given, or one drawn.

        Raises:
            OptionsError: several workers would each draw another.
        """
        if self.call.settings.seed is not None:
            return self.call.settings.seed
        if self.worker.n_workers > 1:
            raise OptionsError("`seed`: required with several workers, the same for all")
        seed = random.SystemRandom().randrange(2**31)
        self.call.reporter.say(f"seed: {seed}")
        return seed

    def make_trainer(self, seed: int) -> Trainer:
        """A new model, ready to be trained."""
        keras.utils.set_random_seed(seed)
        tf.config.experimental.enable_tensor_float_32_execution(self.options.precision is Precision.TF32)
        with self.strategy.scope():
            model = LanguageModel(self.options, self.options.precision)
        n_words = self.options.n_tokens_vocab
        self.call.reporter.say(f"model: {model.count_params():,} parameters, {n_words:,} words")
        return Trainer(model, seed, self.strategy, self.worker, self.freeze, self.call.settings.jit)

    def schedule(self, n_done: int) -> Schedule:
        """The steps of the call, of which some may be done."""
        return Schedule(self.n_steps, self.steps_per_epoch, n_done, self.options.use_sampling)

    def plan(self) -> Plan:
        """What the call is to do."""
        settings = self.call.settings
        every = self.steps_per_epoch if settings.eval_every == "epoch" else int(settings.eval_every)
        return Plan(
            n_steps=self.n_steps,
            steps_per_epoch=self.steps_per_epoch,
            save_every=settings.save_every,
            keep=settings.keep,
            eval_every=None if self.heldout is None else every,
            patience=settings.patience,
            log_every=settings.log_every,
            histograms_every=settings.histograms_every,
        )

    def batches(
        self, trainer: Trainer, first_step: int, position: Position | None
    ) -> Iterator[TrainingBatch]:
        """The training text from a position, or from its beginning."""
        settings, shards = self.call.settings, self.text.counts.shards
        order = Order(
            len(shards),
            settings.shuffle,
            trainer.seed + first_step,  # a restart does not read the text in the order of its run
            settings.shuffle_buffer,
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
        if self.heldout is None:
            return None
        heldout = self.heldout
        return Validation(
            Evaluator(trainer.model),
            lambda: heldout.batches(self.options),
            lambda: self.text.batches(self.options, max_tokens=_SLICE_TOKENS),
        )
