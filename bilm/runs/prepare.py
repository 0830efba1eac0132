"""Preparing a call of train or restart: all that its arguments and its text decide, before the first step."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tensorflow as tf

from bilm.backend.xla import compiles
from bilm.data.corpus import corpus_record
from bilm.data.pipeline import TrainingBatch, training_batches
from bilm.data.position import Order, Position
from bilm.errors import CheckpointError, DataError, OptionsError
from bilm.io import PathLike
from bilm.io.background import prefetch
from bilm.io.json import Bounds, JsonObject, changes, whole_lines
from bilm.models.language_model import LanguageModel
from bilm.options import Decay, Options, Precision, Recipe, recipes
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.files import CheckpointIndex, require_room, writing
from bilm.run_directory.records import METRICS_FILE
from bilm.run_directory.state import HELDOUT, TEXT, RunState, read_lstm_states, read_state, restore_average
from bilm.runs.call import Text, TrainingCall, read_text
from bilm.runs.settings import TrainingSettings
from bilm.training.trainer import Trainer
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.checkpoint_file import CheckpointFile


@dataclasses.dataclass(frozen=True)
class Start:
    """What a call begins with, unless it resumes one that was interrupted.

    Attributes:
        save_dir: run directory to write.
        options: complete but for ``n_train_tokens``, which is counted.
        vocabulary: of the model.
        inputs: files that are read, beside the text.
        load: sets a new model from weights or, where there are none, prepares it for the text; returns the
            steps behind it.
        run: the run that is continued in its own directory; None for a new one.
        overwrite: whether a new run may replace one.
        freeze: see `bilm.training.trainer.Trainer`.
        recipe: to be filled into the options, which stand as they are without one.
        keeps_recipe: whether a call that is resumed keeps the recipe it began with.
    """

    save_dir: Path
    options: Options
    vocabulary: Vocabulary
    inputs: Sequence[Path]
    load: Callable[[Trainer, Text], int]
    run: RunDirectory | None = None
    overwrite: bool = False
    freeze: str | None = None
    recipe: str | None = None
    keeps_recipe: bool = False


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A call that is ready for its first step.

    Attributes:
        run: the run; a new one is not on disk yet.
        is_new: whether it is a new one.
        trainer: the model, with the state of `state`.
        state: a new one, or that of the checkpoint the trainer was restored from.
        text: to train on.
        heldout: to validate on, or None.
        settings: of the call.
        n_steps: steps of the call.
        steps_per_epoch: of these.
    """

    run: RunDirectory
    is_new: bool
    trainer: Trainer
    state: RunState
    text: Text
    heldout: Text | None
    settings: TrainingSettings
    n_steps: int
    steps_per_epoch: int

    def batches(self, position: Position | None) -> Iterator[TrainingBatch]:
        """The training text from a position, or from its beginning."""
        trainer, settings, shards = self.trainer, self.settings, self.text.counts.shards
        worker = trainer.workers.worker
        # A restart does not read the text in the order of its run.
        seed = trainer.seed + self.state.first_step
        order = Order(
            len(shards), settings.shuffle, seed, settings.shuffle_buffer, worker.index, worker.n_workers
        )
        vocabulary, n_parts = self.text.vocabulary, trainer.n_parts
        return prefetch(
            training_batches(shards, vocabulary, trainer.options, order, n_replicas=n_parts, start=position)
        )


class Interrupted(NamedTuple):
    """A call that is to be resumed: its run, the newest checkpoint, and the state in that."""

    run: RunDirectory
    checkpoint: CheckpointFile
    state: RunState


def prepare(call: TrainingCall, start: Start, train_prefix: PathLike | Sequence[PathLike]) -> Prepared:
    """Read the text, and make the model ready to be trained on it.

    Raises:
        CheckpointError: something would be lost in the run directory, another process writes there, or a
            checkpoint cannot be resumed.
        DataError: the text cannot be read, is too small, or is not that of the call that is resumed.
        OptionsError: there are not so many GPUs; or, of a call that is resumed, something that decides about
            the numbers has changed: all of it is named.
        VocabularyError: the vocabulary is not that of the run that is resumed.
    """
    settings, reporter, vocabulary = call.settings, call.reporter, start.vocabulary
    path = start.save_dir.absolute()  # whatever becomes the current directory meanwhile
    if call.writes:
        call.enter_context(writing(path))
    interrupted = _interrupted(call, path, start.run is not None)
    is_new = interrupted is None and start.run is None
    if is_new and call.writes:
        require_room(path, start.overwrite, vocabulary, start.inputs)
    if interrupted is not None:
        interrupted.run.check_vocabulary(vocabulary)
    strategy = _make_strategy(call)
    n_replicas = strategy.num_replicas_in_sync
    begun = {} if interrupted is None else interrupted.state.settings

    text = read_text(train_prefix, "train_prefix", vocabulary, reporter, call, begun.get(TEXT))
    heldout = None
    if settings.heldout_prefix:
        patterns, record = settings.heldout_prefix, begun.get(HELDOUT)
        heldout = read_text(patterns, "heldout_prefix", vocabulary, reporter, call, record)
        train_files = {file.resolve() for file in text.files}
        for file in heldout.files:
            if file.resolve() in train_files:
                reporter.warn(
                    f"{file} is both heldout and training text; its perplexity will not show overfitting"
                )

    steps_per_epoch = _steps_per_epoch(start.options, text, n_replicas)
    n_steps = start.options.n_epochs * steps_per_epoch
    n_steps = min(n_steps, settings.max_steps or n_steps)
    options = _complete_options(start, call, text, n_steps, n_replicas, begun)
    seed = _seed(call, begun)
    fixed = _fixed_settings(call, start, options, text, heldout, n_steps, seed)
    if interrupted is not None and (changed := changes(_comparable(begun), _comparable(fixed))):
        raise OptionsError(
            f"{path}: cannot be resumed with {', '.join(changed)}; give the original values, or "
            "continue with `bilm restart`"
        )
    trainer = _make_trainer(call, options, seed, strategy, start.freeze)
    if interrupted is not None:
        run, state = interrupted.run, interrupted.state
        state.settings = fixed  # the text may have another place
        _restore(trainer, interrupted)
        best = state.best
        reporter.say(
            f"resuming: {interrupted.checkpoint.prefix}, step {state.step:,}, {state.n_done:,} of "
            f"{n_steps:,} done (epoch {state.n_done / steps_per_epoch:.2f})"
            + (f", best heldout perplexity {best.perplexity:.4f} at step {best.step:,}" if best else "")
        )
    else:
        run, state = start.run or RunDirectory(path, options), RunState(fixed, start.load(trainer, text))
        if start.run is not None:
            state.log_bytes = whole_lines(run.path / METRICS_FILE)
    return Prepared(run, is_new, trainer, state, text, heldout, settings, n_steps, steps_per_epoch)


def _interrupted(call: TrainingCall, path: Path, in_place: bool) -> Interrupted | None:
    """Find the call that is to be resumed in a directory; None without `resume`, or without a checkpoint.

    Args:
        call: that resumes it.
        path: of the directory.
        in_place: whether it is a restart that goes on in the directory of a run, which has checkpoints
            before it begins.

    Raises:
        BilmError: as `RunDirectory.open` and `RunDirectory.latest`; or the checkpoint is not that of such a
            call.
    """
    if not (call.settings.resume and (path / "options.json").exists() and CheckpointIndex(path).exists()):
        return None
    run = RunDirectory.open(path)
    checkpoint = run.latest()
    state = read_state(checkpoint)
    if state is None or state.settings.get("command") != call.kind:
        if in_place:
            return None
        by = "by bilm-tf" if state is None else f"by bilm {state.settings.get('command')}"
        raise CheckpointError(
            f"{checkpoint.prefix}: written {by}, not by the bilm {call.kind} that is to be resumed; "
            "`bilm restart` continues from it"
        )
    problems: list[str] = []
    settings = JsonObject("settings", state.settings, problems)
    settings.take("--seed", Annotated[int, Bounds(least=0, below=1 << 31)])
    settings.take("options", dict)
    if problems:
        raise CheckpointError(f"{checkpoint.prefix}: its state is damaged: {'; '.join(problems)}")
    return Interrupted(run, checkpoint, state)


def _make_strategy(call: TrainingCall) -> tf.distribute.Strategy:
    """Devices for the replicas; for a single one, wherever TensorFlow puts it.

    Raises:
        OptionsError: there are not so many GPUs.
    """
    n_gpus, worker = call.settings.n_gpus, call.worker
    devices = tf.config.list_physical_devices("GPU")
    if n_gpus > 1 and len(devices) < n_gpus:
        raise OptionsError(f"`n_gpus` {n_gpus}: TensorFlow finds {len(devices)} GPUs on this machine")
    if worker.n_workers > 1:
        call.reporter.say(f"worker {worker.index} of {worker.n_workers}: waiting for the others")
        tf.config.set_visible_devices(devices[:n_gpus], "GPU")
        return tf.distribute.MultiWorkerMirroredStrategy()
    if n_gpus == 1:
        return tf.distribute.get_strategy()
    return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(n_gpus)])


def _tokens_per_step(options: Options, n_replicas: int) -> int:
    return options.batch_size * options.unroll_steps * n_replicas * options.accumulate


def _steps_per_epoch(options: Options, text: Text, n_replicas: int) -> int:
    """Updates that make an epoch.

    Raises:
        DataError: the text is smaller than one batch.
    """
    n_tokens = options.n_train_tokens or text.counts.n_tokens
    batch = _tokens_per_step(options, n_replicas)
    fewest = min(n_tokens, text.counts.n_tokens)
    if fewest < batch:
        subject = "the text has" if fewest == text.counts.n_tokens else "`n_train_tokens` makes an epoch of"
        raise DataError(
            f"{subject} {fewest:,} tokens, less than one batch of {options.batch_size} rows x "
            f"{options.unroll_steps} steps"
            + (f" x {n_replicas} replicas" if n_replicas > 1 else "")
            + (f" x {options.accumulate} accumulated" if options.accumulate > 1 else "")
            + f" ({batch:,}); give more text or a smaller `batch_size`"
        )
    return n_tokens // batch


def _complete_options(
    start: Start, call: TrainingCall, text: Text, n_steps: int, n_replicas: int, begun: Mapping[str, Any]
) -> Options:
    """The options with recipe, schedule and the number of tokens; tells the recipe, and why it was chosen."""
    options, values, n_tokens = start.options, call.settings.values, text.counts.n_tokens
    if start.recipe is not None and start.keeps_recipe and begun:
        options = recipes.with_recipe_of_run(options, begun["options"], values)
    elif start.recipe is not None:
        n_seen = n_steps * _tokens_per_step(options, n_replicas)
        plan = recipes.TrainingPlan(n_tokens, n_seen / n_tokens, n_steps)
        recipe = recipes.choose(plan) if start.recipe == recipes.AUTO else Recipe(start.recipe)
        options = recipes.with_recipe(options, recipe, plan, values)
        call.reporter.say(
            f"recipe: {recipe.value} ({plan.n_passes:.1f} passes over {plan.n_tokens:,} tokens): "
            f"{recipes.summary(options)}"
        )
    elif call.kind == "restart":
        options = recipes.with_schedule(options, n_steps, values)
    return dataclasses.replace(options, n_train_tokens=options.n_train_tokens or n_tokens)


def _seed(call: TrainingCall, begun: Mapping[str, Any]) -> int:
    """The seed that was given, or that of the call that is resumed, or one drawn.

    Raises:
        OptionsError: several workers would each draw another.
    """
    if call.settings.seed is not None:
        return call.settings.seed
    if begun:
        return begun["--seed"]
    if call.worker.n_workers > 1:
        raise OptionsError("`seed`: required with several workers, the same for all")
    seed = random.SystemRandom().randrange(2**31)
    call.reporter.say(f"seed: {seed}")
    return seed


def _fixed_settings(
    call: TrainingCall,
    start: Start,
    options: Options,
    text: Text,
    heldout: Text | None,
    n_steps: int,
    seed: int,
) -> dict[str, Any]:
    """The settings that may not change when the call is resumed."""
    fixed = options.to_json()
    if options.learning_rate_decay in (Decay.LINEAR, Decay.COSINE):
        fixed["n_steps"] = n_steps
    del fixed["n_epochs"]  # alone it only says when to end
    settings = call.settings
    values = {
        "command": call.kind,
        "options": fixed,
        "--seed": seed,
        "--shuffle": settings.shuffle,
        "--shuffle-buffer": settings.shuffle_buffer,
        "--n-gpus": settings.n_gpus,
        "workers": call.worker.n_workers,
        "--jit": settings.jit,
        "XLA": compiles(),  # whether it compiles the LSTM: the last bits of the results depend on that
        "--freeze": start.freeze,
        "--log-every": settings.log_every,
        TEXT: corpus_record(text.counts),
    }
    if heldout is not None:
        values |= {HELDOUT: corpus_record(heldout.counts), "--eval-every": settings.eval_every}
    return values


def _comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without sections, arguments as such; of texts, which were compared, whether they are given.

    Options that the settings lack have their defaults.
    """
    values = {**settings, **Options.defaults(), **settings["options"]} | {
        text: "given" for text in (TEXT, HELDOUT) if text in settings
    }
    del values["options"]
    return {
        f"`{name[2:].replace('-', '_')}`" if name.startswith("--") else name: value
        for name, value in values.items()
    }


def _make_trainer(
    call: TrainingCall, options: Options, seed: int, strategy: tf.distribute.Strategy, freeze: str | None
) -> Trainer:
    """A new model, ready to be trained."""
    tf.config.experimental.enable_tensor_float_32_execution(options.precision is Precision.TF32)
    before = random.getstate()  # of which Keras draws the seeds of initializers
    random.seed(seed)
    try:
        with strategy.scope():
            model = LanguageModel(options, options.precision)
    finally:
        random.setstate(before)
    directions = "both directions" if options.bidirectional else "one direction, forward"
    call.reporter.say(
        f"model: {model.count_params():,} parameters, {options.n_tokens_vocab:,} words, {directions}"
    )
    return Trainer(model, seed, strategy, call.worker, freeze, call.settings.jit)


def _restore(trainer: Trainer, interrupted: Interrupted) -> None:
    """Set a trainer to the state of a checkpoint."""
    run, checkpoint, state = interrupted
    run.restore(trainer.model, trainer.optimizer, checkpoint, weights="raw")
    if trainer.average is not None:
        restore_average(trainer.average, checkpoint)
    worker = trainer.workers.worker
    states = read_lstm_states(checkpoint, trainer.states * worker.n_workers)
    own = worker.index * trainer.n_parts
    trainer.states = states[own : own + trainer.n_parts]
    trainer.loss_scale = state.loss_scale
