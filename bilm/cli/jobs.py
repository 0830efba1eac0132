"""What train and restart share: one road from text to checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bilm.cli.progress import TrainingProgress
from bilm.cli.shared import describe_corpus
from bilm.corpus import CorpusCounts, count_corpus, find_files
from bilm.errors import DataError, OptionsError
from bilm.options import Options
from bilm.vocab import Vocabulary, load_vocabulary

if TYPE_CHECKING:
    import tensorflow as tf

    from bilm.checkpoint import RunDirectory
    from bilm.training import StepReport, Trainer

_KEPT = 2


@dataclass(frozen=True)
class Schedule:
    """How a call goes through the text.

    Attributes:
        max_steps: bound on the steps of this call, or None.
        save_every: steps between checkpoints.
        seed: of everything random.
        shuffle: whether shards and sentences come in random order.
        n_replicas: replicas of the model.
    """

    max_steps: int | None
    save_every: int
    seed: int
    shuffle: bool
    n_replicas: int


@dataclass(frozen=True)
class Text:
    """A corpus that was read once, and its vocabulary."""

    files: tuple[Path, ...]
    vocabulary: Vocabulary
    counts: CorpusCounts


def load_run_vocabulary(path: Path, options: Options) -> Vocabulary:
    """The vocabulary as the model needs it, with characters or without."""
    cnn = options.char_cnn
    return load_vocabulary(path, None if cnn is None else cnn.max_characters_per_token)


def read_text(prefixes: Sequence[str], vocabulary: Vocabulary) -> Text:
    """Find and count the text, and say what was found."""
    files = find_files(prefixes)
    counts = count_corpus(files, vocabulary)
    click.echo(describe_corpus(counts))
    return Text(files, vocabulary, counts)


def steps_per_epoch(options: Options, text: Text, n_replicas: int) -> int:
    """Windows that make an epoch.

    Raises:
        DataError: the text is smaller than one batch.
    """
    n_tokens = options.n_train_tokens or text.counts.n_tokens
    batch = options.batch_size * options.unroll_steps * n_replicas
    fewest = min(n_tokens, text.counts.n_tokens)
    if fewest < batch:
        subject = "the text has" if fewest == text.counts.n_tokens else "--n-train-tokens makes an epoch of"
        raise DataError(
            f"{subject} {fewest:,} tokens, less than one batch of {options.batch_size} rows x "
            f"{options.unroll_steps} steps"
            + (f" x {n_replicas} replicas" if n_replicas > 1 else "")
            + f" ({batch:,}); give more text or a smaller --batch-size"
        )
    return n_tokens // batch


def make_strategy(n_replicas: int) -> tf.distribute.Strategy | None:
    """Devices for the replicas; None for a single one, wherever TensorFlow puts it."""
    import tensorflow as tf

    if n_replicas == 1:
        return None
    devices = tf.config.list_logical_devices("GPU")
    if len(devices) < n_replicas:
        raise OptionsError(f"--n-gpus {n_replicas}: TensorFlow finds {len(devices)} GPUs on this machine")
    return tf.distribute.MirroredStrategy([device.name for device in devices[:n_replicas]])


def make_trainer(
    options: Options, schedule: Schedule, strategy: tf.distribute.Strategy | None = None
) -> Trainer:
    """A new model, ready to be trained."""
    import keras
    import tensorflow as tf

    from bilm.batches import length_buckets
    from bilm.language_model import LanguageModel
    from bilm.training import Trainer

    keras.utils.set_random_seed(schedule.seed)
    strategy = strategy or tf.distribute.get_strategy()
    with strategy.scope():
        model = LanguageModel(options)
    cnn = options.char_cnn
    widths = () if cnn is None else length_buckets(cnn.max_characters_per_token, cnn.max_width)
    click.echo(f"model: {model.count_params():,} parameters, {options.n_tokens_vocab:,} words")
    return Trainer(model, widths, schedule.seed, strategy)


def run_training(
    run: RunDirectory, trainer: Trainer, text: Text, schedule: Schedule, first_step: int
) -> None:
    """Train for as long as options and schedule say, saving as it goes."""
    from bilm.batches import training_batches
    from bilm.prefetch import prefetch
    from bilm.training import train

    options = trainer.options
    per_epoch = steps_per_epoch(options, text, schedule.n_replicas)
    n_steps = min(options.n_epochs * per_epoch, schedule.max_steps or options.n_epochs * per_epoch)
    click.echo(f"training: {n_steps:,} steps, {per_epoch:,} an epoch")
    batches = prefetch(
        training_batches(
            text.files,
            text.vocabulary,
            batch_size=options.batch_size,
            unroll_steps=options.unroll_steps,
            bidirectional=options.bidirectional,
            max_filter_width=options.max_filter_width,
            n_replicas=schedule.n_replicas,
            shuffle=schedule.shuffle,
            seed=schedule.seed + first_step,  # a restart does not read the text in the order of its run
        )
    )
    saver = _Saver(run, trainer, schedule.save_every)
    with TrainingProgress(per_epoch, n_steps, options.use_sampling) as progress:
        train(trainer, batches, n_steps, first_step, [progress, saver])
    click.echo(f"saved: {saver.written[-1]}")


class _Saver:
    """A callback that writes checkpoints and keeps the newest of those it wrote; never a diverged one."""

    def __init__(self, run: RunDirectory, trainer: Trainer, every: int) -> None:
        self.run = run
        self.trainer = trainer
        self.every = every
        self.written: list[Path] = []

    def __call__(self, report: StepReport) -> None:
        if not math.isfinite(report.loss):
            last = f"; the last checkpoint is {self.written[-1]}" if self.written else ""
            raise OptionsError(
                f"training diverged: the loss of step {report.step:,} is {report.loss}; try a smaller "
                f"--learning-rate than {self.trainer.options.learning_rate:g}{last}"
            )
        if report.n_done % self.every and report.n_done != report.n_steps:
            return
        model, optimizer = self.trainer.model, self.trainer.optimizer
        self.written.append(self.run.save(model, optimizer, report.step, report.perplexity))
        if len(self.written) > _KEPT:
            self.run.remove(self.written.pop(0))
