"""Preparing a call of train or restart: all that its arguments and its text decide, before the first step."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tensorflow as tf

from bilm.backend.xla import compiles
from bilm.data.pipeline import TrainingBatch, training_batches
from bilm.data.position import Order, Position
from bilm.errors import CheckpointError, DataError, OptionsError
from bilm.io import PathLike
from bilm.io.background import prefetch
from bilm.io.json import Bounds, JsonObject, changes, whole_lines
from bilm.models.language_model import LanguageModel
from bilm.options import Decay, Options, Precision, Recipe
from bilm.options.recipes import (
    AUTO,
    TrainingPlan,
    choose,
    summary,
    with_recipe,
    with_recipe_of_run,
    with_schedule,
)
from bilm.run_directory.directory import RunDirectory, require_directory
from bilm.run_directory.files import CheckpointIndex, require_room, vocabulary_files
from bilm.run_directory.records import METRICS_FILE
from bilm.run_directory.state import HELDOUT, TEXT, RunState, read_lstm_states, read_state, restore_average
from bilm.runs.call import TrainingCall
from bilm.runs.reporter import Reporter, Schedule
from bilm.runs.settings import TrainingSettings, as_patterns
from bilm.runs.texts import Text, read_text
from bilm.training.evaluation import Evaluator
from bilm.training.trainer import Trainer
from bilm.training.workers import Worker
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.checkpoint_file import CheckpointFile

_XLA = "XLA"  # whether it compiles the LSTM; the last bits of the results depend on that


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


class Interrupted(NamedTuple):
    """A call that is to be resumed.

    Attributes:
        run: its run.
        checkpoint: the newest.
        settings: what it began with; empty where another kind of call wrote the checkpoint.
    """

    run: RunDirectory
    checkpoint: CheckpointFile
    settings: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A call that is ready for its first step.

    Attributes:
        run: the run; a new one is not on disk yet.
        is_new: whether it is a new one.
        overwrite: whether that may replace one.
        inputs: files that are read.
        trainer: the model, with the state of `state`.
        state: a new one, or that of the checkpoint the trainer was restored from.
        text: to train on.
        heldout: to validate on, or None.
        evaluator: of the model.
        settings: of the call.
        n_steps: steps of the call.
        steps_per_epoch: of these.
    """

    run: RunDirectory
    is_new: bool
    overwrite: bool
    inputs: Sequence[Path]
    trainer: Trainer
    state: RunState
    text: Text
    heldout: Text | None
    evaluator: Evaluator
    settings: TrainingSettings
    n_steps: int
    steps_per_epoch: int

    @property
    def schedule(self) -> Schedule:
        """The steps of the call, of which some may be done."""
        return Schedule(
            self.n_steps, self.steps_per_epoch, self.state.n_done, self.trainer.options.use_sampling
        )

    @property
    def eval_every(self) -> int | None:
        """Steps between validations; None without heldout text."""
        if self.heldout is None:
            return None
        every = self.settings.eval_every
        return self.steps_per_epoch if every == "epoch" else int(every)

    def batches(self, position: Position | None) -> Iterator[TrainingBatch]:
        """The training text from a position, or from its beginning."""
        trainer, settings, shards = self.trainer, self.settings, self.text.counts.shards
        order = Order(
            len(shards),
            settings.shuffle,
            trainer.seed + self.state.first_step,  # a restart does not read the text in the order of its run
            settings.shuffle_buffer,
            trainer.workers.worker.index,
            trainer.workers.worker.n_workers,
        )
        return prefetch(
            training_batches(
                shards,
                self.text.vocabulary,
                trainer.options,
                order,
                n_replicas=trainer.n_parts,
                start=position,
            )
        )


def interrupted_call(call: TrainingCall, save_dir: Path) -> Interrupted | None:
    """The call that is to be resumed in a directory; None where none is, or no checkpoint was ever saved.

    Raises:
        BilmError: as `RunDirectory.open` and `RunDirectory.latest`.
    """
    is_run = (save_dir / "options.json").exists() and CheckpointIndex(save_dir).exists()
    if not (call.settings.resume and is_run):
        return None
    run = RunDirectory.open(save_dir)
    checkpoint = run.latest()
    state = read_state(checkpoint)
    is_of_kind = state is not None and state.settings.get("command") == call.kind
    return Interrupted(run, checkpoint, state.settings if state is not None and is_of_kind else {})


def prepare(
    call: TrainingCall,
    start: Start,
    train_prefix: PathLike | Sequence[PathLike],
    interrupted: Interrupted | None = None,
) -> Prepared:
    """Read the text, and make the model ready to be trained on it.

    Raises:
        CheckpointError: something would be lost in the run directory, or a checkpoint cannot be resumed.
        DataError: the text cannot be read, is too small, or is not that of the call that is resumed.
        OptionsError: there are not so many GPUs; or, of a call that is resumed, something that decides about
            the numbers has changed: all of it is named.
        VocabularyError: the vocabulary is not that of the run that is resumed.
    """
    settings, reporter, worker = call.settings, call.reporter, call.worker
    is_new = interrupted is None and start.run is None
    if is_new and call.writes:
        require_directory(start.save_dir)
        require_room(start.save_dir, start.overwrite, vocabulary_files(start.vocabulary), start.inputs)
    if interrupted is not None:
        interrupted.run.check_vocabulary(start.vocabulary)
    strategy = _make_strategy(settings.n_gpus, worker, reporter)
    n_replicas = strategy.num_replicas_in_sync
    begun = {} if interrupted is None else interrupted.settings

    def read(patterns: Sequence[PathLike], name: str, key: str, argument: str) -> Text:
        files = call.input_files(patterns)
        return read_text(files, start.vocabulary, reporter, name, begun.get(key), argument)

    text = read(as_patterns(train_prefix), "corpus", TEXT, "train_prefix")
    patterns = settings.heldout_prefix
    heldout = read(patterns, "heldout", HELDOUT, "heldout_prefix") if patterns else None
    _warn_of_overlap(text, heldout, reporter)

    steps_per_epoch = _steps_per_epoch(start.options, text, n_replicas)
    n_steps = start.options.n_epochs * steps_per_epoch
    n_steps = min(n_steps, settings.max_steps or n_steps)
    options = _complete_options(start, call, text, n_steps, n_replicas, begun)

    def fixed(seed: int) -> dict[str, Any]:
        return _fixed_settings(call, options, text, heldout, n_steps, seed, start.freeze)

    state = None if interrupted is None else _resumable(call, interrupted, fixed)
    seed = _new_seed(settings.seed, worker, reporter) if state is None else state.settings["--seed"]
    trainer = _make_trainer(call, options, seed, strategy, start.freeze)
    if state is None or interrupted is None:
        state = RunState(fixed(seed), start.load(trainer, text))
        run = start.run or RunDirectory(start.save_dir, options)
        if start.run is not None:
            state.log_bytes = whole_lines(run.path / METRICS_FILE)
    else:
        run = interrupted.run
        _restore(trainer, state, interrupted)
        best = (
            ""
            if state.best is None
            else (f", best heldout perplexity {state.best.perplexity:.4f} at step {state.best.step:,}")
        )
        reporter.say(
            f"resuming: {interrupted.checkpoint.prefix}, step {state.step:,}, {state.n_done:,} of "
            f"{n_steps:,} done (epoch {state.n_done / steps_per_epoch:.2f}){best}"
        )
    inputs = [*start.inputs, *text.files, *(heldout.files if heldout else ())]
    return Prepared(
        run=run,
        is_new=is_new,
        overwrite=start.overwrite,
        inputs=inputs,
        trainer=trainer,
        state=state,
        text=text,
        heldout=heldout,
        evaluator=Evaluator(trainer.model),
        settings=settings,
        n_steps=n_steps,
        steps_per_epoch=steps_per_epoch,
    )


def _make_strategy(n_gpus: int, worker: Worker, reporter: Reporter) -> tf.distribute.Strategy:
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


def _warn_of_overlap(text: Text, heldout: Text | None, reporter: Reporter) -> None:
    train = {path.resolve() for path in text.files}
    for path in () if heldout is None else heldout.files:
        if path.resolve() in train:
            reporter.warn(
                f"{path} is both heldout and training text; its perplexity will not show overfitting"
            )


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
        options = with_recipe_of_run(options, begun.get("options", {}), values)
    elif start.recipe is not None:
        n_seen = n_steps * _tokens_per_step(options, n_replicas)
        plan = TrainingPlan(n_tokens, n_seen / n_tokens, n_steps)
        recipe = choose(plan) if start.recipe == AUTO else Recipe(start.recipe)
        options = with_recipe(options, recipe, plan, values)
        call.reporter.say(
            f"recipe: {recipe.value} ({plan.n_passes:.1f} passes over {plan.n_tokens:,} tokens): "
            f"{summary(options)}"
        )
    elif call.kind == "restart":
        options = with_schedule(options, n_steps, values)
    return dataclasses.replace(options, n_train_tokens=options.n_train_tokens or n_tokens)


def _fixed_settings(
    call: TrainingCall,
    options: Options,
    text: Text,
    heldout: Text | None,
    n_steps: int,
    seed: int,
    freeze: str | None,
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
        _XLA: compiles(),
        "--freeze": freeze,
        "--log-every": settings.log_every,
        TEXT: text.record,
    }
    if heldout is not None:
        values |= {HELDOUT: heldout.record, "--eval-every": settings.eval_every}
    return values


def _new_seed(seed: int | None, worker: Worker, reporter: Reporter) -> int:
    """The seed that was given, or one drawn.

    Raises:
        OptionsError: several workers would each draw another.
    """
    if seed is not None:
        return seed
    if worker.n_workers > 1:
        raise OptionsError("`seed`: required with several workers, the same for all")
    seed = random.SystemRandom().randrange(2**31)
    reporter.say(f"seed: {seed}")
    return seed


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


def _resumable(
    call: TrainingCall, interrupted: Interrupted, fixed: Callable[[int], dict[str, Any]]
) -> RunState:
    """The state in a checkpoint of this very call; for errors see `prepare`."""
    run, checkpoint, _ = interrupted
    state, kind = read_state(checkpoint), call.kind
    if state is None or state.settings.get("command") != kind:
        by = "by bilm-tf" if state is None else f"by bilm {state.settings.get('command')}"
        raise CheckpointError(
            f"{checkpoint.prefix}: written {by}, not by the bilm {kind} that is to be resumed; "
            "`bilm restart` continues from it"
        )
    problems: list[str] = []
    settings = JsonObject("settings", state.settings, problems)
    seed = settings.take("--seed", Annotated[int, Bounds(least=0, below=1 << 31)])
    settings.take("options", dict)
    if problems:
        raise CheckpointError(f"{checkpoint.prefix}: its state is damaged: {'; '.join(problems)}")
    now = fixed(seed if call.settings.seed is None else call.settings.seed)
    if changed := changes(_comparable(state.settings), _comparable(now)):
        raise OptionsError(
            f"{run.path}: cannot be resumed with {', '.join(changed)}; give the original values, or "
            "continue with `bilm restart`"
        )
    state.settings = now  # the text may have another place
    return state


def _comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without sections, arguments as such; of texts, which were compared, whether they are given.

    Options that the settings lack have their defaults.
    """
    values = {**settings, **Options.defaults(), **settings["options"]} | {
        text: "given" for text in (TEXT, HELDOUT) if text in settings
    }
    del values["options"]
    return {_argument(name) if name.startswith("--") else name: value for name, value in values.items()}


def _argument(flag: str) -> str:
    """``--shuffle-buffer``, as checkpoints have it, as an argument is named in messages."""
    return f"`{flag.removeprefix('--').replace('-', '_')}`"


def _restore(trainer: Trainer, state: RunState, interrupted: Interrupted) -> None:
    """Set a trainer to the state of a checkpoint."""
    run, checkpoint, _ = interrupted
    run.restore(trainer.model, trainer.optimizer, checkpoint, weights="raw")
    if trainer.average is not None:
        restore_average(trainer.average, checkpoint)
    worker = trainer.workers.worker
    states = read_lstm_states(checkpoint, trainer.states * worker.n_workers)
    own = worker.index * trainer.n_parts
    trainer.states = states[own : own + trainer.n_parts]
    trainer.loss_scale = state.loss_scale
