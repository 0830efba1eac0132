"""Preparing a call of train or restart: all that its arguments and its text decide, before the first step."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.backend.xla import compiles
from bilm.data import corpus, pipeline, stream
from bilm.errors import CheckpointError, DataError, OptionsError
from bilm.io import PathLike, background
from bilm.io.json import changes, whole_lines
from bilm.models.language_model import LanguageModel
from bilm.options import Decay, Options, Precision, Recipe, SoftmaxBiasInit, recipes
from bilm.run_directory import state as run_state
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.files import CheckpointIndex, require_room, writing
from bilm.run_directory.records import METRICS_FILE
from bilm.runs.reporter import Reporter
from bilm.runs.settings import TrainingCall, TrainingSettings
from bilm.runs.text import Text, read_text
from bilm.training.trainer import Trainer
from bilm.training.workers import Worker
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.checkpoint_file import CheckpointFile
from bilm.weights.distribution import StoredModel
from bilm.weights.transfer import Remapping, named_weights, set_weights


@dataclasses.dataclass(frozen=True)
class Start:
    """What a call begins with, unless it resumes one that was interrupted.

    Attributes:
        save_dir: run directory to write.
        options: complete but for ``n_train_tokens``, which is counted.
        vocabulary: of the model.
        inputs: files that are read, beside the text.
        source: of the weights; None for a new model.
        old_vocabulary: of the source, where the model is carried over to another.
        in_place: whether the run of the source is continued in its own directory.
        overwrite: whether a new run may replace one.
        freeze: see `bilm.training.trainer.Trainer`.
        recipe: to be filled into the options, which stand as they are without one.
        keeps_recipe: whether a call that is resumed keeps the recipe it began with.
    """

    save_dir: Path
    options: Options
    vocabulary: Vocabulary
    inputs: Sequence[Path]
    source: StoredModel | None = None
    old_vocabulary: Vocabulary | None = None
    in_place: bool = False
    overwrite: bool = False
    freeze: str | None = None
    recipe: str | None = None
    keeps_recipe: bool = False


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A call that is ready for its first step.

    Attributes:
        run: the run; on disk, except for a new one's of a dry run.
        trainer: the model, with the state of `state`.
        state: a new one, or that of the checkpoint the trainer was restored from.
        text: to train on.
        heldout: to validate on, or None.
        settings: of the call.
        n_steps: steps of the call.
        steps_per_epoch: of these.
    """

    run: RunDirectory
    trainer: Trainer
    state: run_state.RunState
    text: Text
    heldout: Text | None
    settings: TrainingSettings
    n_steps: int
    steps_per_epoch: int

    def batches(self, position: stream.Position | None) -> Iterator[pipeline.TrainingBatch]:
        """The training text from a position, or from its beginning."""
        trainer, settings, shards = self.trainer, self.settings, self.text.counts.shards
        worker = trainer.workers.worker
        # A restart does not read the text in the order of its run.
        seed = trainer.seed + self.state.first_step
        order = stream.Order(settings.shuffle, seed, settings.shuffle_buffer, worker.index, worker.n_workers)
        vocabulary, n_parts = self.text.vocabulary, trainer.n_parts
        return background.prefetch(
            pipeline.training_batches(
                shards, vocabulary, trainer.options, order, n_replicas=n_parts, start=position
            )
        )


class Interrupted(NamedTuple):
    """A call that is to be resumed: its run, the newest checkpoint, and the state in that."""

    run: RunDirectory
    checkpoint: CheckpointFile
    state: run_state.RunState


def prepare(call: TrainingCall, start: Start, train_prefix: PathLike | Sequence[PathLike]) -> Prepared:
    """Read the text, make the model ready to be trained on it, and the run directory to be written to.

    Nothing is left of a new run that has no checkpoint when the call ends.

    Raises:
        CheckpointError: something would be lost in the run directory, another process writes there, it cannot
            be written, or a checkpoint cannot be resumed.
        DataError: the text cannot be read, is too small, or is not that of the call that is resumed.
        OptionsError: there are not so many GPUs; or, of a call that is resumed, something that decides about
            the numbers has changed: all of it is named.
        VocabularyError: the vocabulary is not that of the run that is resumed.
        WeightsError: those of the source do not fit.
    """
    settings, reporter, vocabulary = call.settings, call.reporter, start.vocabulary
    worker = Worker.from_environment()
    path = start.save_dir.absolute()  # whatever becomes the current directory meanwhile
    writes = worker.is_chief and not settings.dry_run
    if writes:
        call.enter_context(writing(path))
    interrupted = _interrupted(call, path, start.in_place)
    is_new = interrupted is None and not start.in_place
    if is_new and writes:
        require_room(path, start.overwrite, vocabulary, start.inputs)
    if interrupted is not None:
        interrupted.run.check_vocabulary(vocabulary)
    strategy = _make_strategy(call, worker)
    n_replicas = strategy.num_replicas_in_sync
    begun = {} if interrupted is None else interrupted.state.settings

    text, heldout = _read_texts(call, vocabulary, train_prefix, begun)
    files = [Path(shard) for one in (text, heldout) if one is not None for shard in one.counts.shards]
    steps_per_epoch = _steps_per_epoch(start.options, text, n_replicas)
    n_steps = start.options.n_epochs * steps_per_epoch
    n_steps = min(n_steps, settings.max_steps or n_steps)
    options = _complete_options(start, call, text, n_steps, n_replicas, begun)
    seed = _seed(call, worker, begun)
    fixed: dict[str, Any] = {
        "command": call.kind,
        "options": options.to_json(),
        "--seed": seed,
        "--shuffle": settings.shuffle,
        "--shuffle-buffer": settings.shuffle_buffer,
        "--n-gpus": settings.n_gpus,
        "workers": worker.n_workers,
        "--jit": settings.jit,
        "XLA": compiles(),  # whether it compiles the LSTM: the last bits of the results depend on that
        "--freeze": start.freeze,
        "--log-every": settings.log_every,
        run_state.TEXT: corpus.corpus_record(text.counts),
    }
    del fixed["options"]["n_epochs"]  # alone it only says when to end
    if options.learning_rate_decay in (Decay.LINEAR, Decay.COSINE):
        fixed["options"]["n_steps"] = n_steps
    if heldout is not None:
        fixed |= {
            run_state.HELDOUT: corpus.corpus_record(heldout.counts),
            "--eval-every": settings.eval_every,
        }
    if begun and (changed := changes(_comparable(begun), _comparable(fixed))):
        raise OptionsError(
            f"{path}: cannot be resumed with {', '.join(changed)}; give the original values, or "
            "continue with `bilm restart`"
        )
    model = _make_model(call, options, seed, strategy)
    trainer = Trainer(model, seed, strategy, worker, start.freeze, settings.jit)
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
        run = RunDirectory(path, start.source.options if start.in_place and start.source else options)
        state = run_state.RunState(fixed, _load(start, trainer, text, reporter))
        if start.in_place:
            state.log_bytes = whole_lines(path / METRICS_FILE)
    if writes and is_new:
        RunDirectory.create(path, options, vocabulary, start.overwrite, [*start.inputs, *files])
        call.callback(run.discard_unsaved)
    elif writes:
        run.take_over(vocabulary)
    return Prepared(run, trainer, state, text, heldout, settings, n_steps, steps_per_epoch)


def _read_texts(
    call: TrainingCall,
    vocabulary: Vocabulary,
    train_prefix: PathLike | Sequence[PathLike],
    begun: Mapping[str, Any],
) -> tuple[Text, Text | None]:
    """Read the text to train on and the heldout text, if there is one; warns of a text that is in both."""
    reporter, patterns, heldout = call.reporter, call.settings.heldout_prefix, None
    if patterns:  # first, because a mistake is found sooner in the shorter text
        record = begun.get(run_state.HELDOUT)
        heldout = read_text(patterns, "heldout_prefix", vocabulary, reporter, call, record)
    text = read_text(train_prefix, "train_prefix", vocabulary, reporter, call, begun.get(run_state.TEXT))
    contents = {(shard.size, shard.checksum) for shard in text.counts.shards}
    for shard in () if heldout is None else heldout.counts.shards:
        if (shard.size, shard.checksum) in contents:
            reporter.warn(
                f"{shard.path} is both heldout and training text; its perplexity will not show overfitting"
            )
    return text, heldout


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
    state = run_state.read_state(checkpoint)
    if state is None or state.settings.get("command") != call.kind:
        if in_place:
            return None
        by = "by bilm-tf" if state is None else f"by bilm {state.settings.get('command')}"
        raise CheckpointError(
            f"{checkpoint.prefix}: written {by}, not by the bilm {call.kind} that is to be resumed; "
            "`bilm restart` continues from it"
        )
    return Interrupted(run, checkpoint, state)


def _make_strategy(call: TrainingCall, worker: Worker) -> tf.distribute.Strategy:
    """Devices for the replicas; for a single one, wherever TensorFlow puts it.

    Raises:
        OptionsError: there are not so many GPUs.
    """
    n_gpus = call.settings.n_gpus
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
    if (fewest := min(n_tokens, text.counts.n_tokens)) < batch:
        raise DataError(
            f"an epoch of {fewest:,} tokens is less than one batch of {options.batch_size} rows x "
            f"{options.unroll_steps} steps x {n_replicas} replicas x {options.accumulate} accumulated "
            f"({batch:,}); give more text or a smaller `batch_size`"
        )
    return n_tokens // batch


def _complete_options(
    start: Start, call: TrainingCall, text: Text, n_steps: int, n_replicas: int, begun: Mapping[str, Any]
) -> Options:
    """The options with recipe, schedule and the number of tokens; tells the recipe, and why it was chosen."""
    options, values, n_tokens = start.options, call.settings.values, text.counts.n_tokens
    if start.recipe is not None and start.keeps_recipe and begun:
        options = recipes.with_recipe_of_run(options, begun.get("options", {}), values)
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
        has_ended = start.source is not None and start.source.has_ended_on(text.counts.shards)
        before, options = options, recipes.with_schedule(options, n_steps, values, has_ended)
        if options.learning_rate != before.learning_rate:
            call.reporter.say(
                f"recipe: learning_rate {options.learning_rate:g} instead of {before.learning_rate:g}, which "
                "had fallen to its end on the same text; set learning_rate for another"
            )
    return dataclasses.replace(options, n_train_tokens=options.n_train_tokens or n_tokens)


def _seed(call: TrainingCall, worker: Worker, begun: Mapping[str, Any]) -> int:
    """The seed that was given, or that of the call that is resumed, or one drawn.

    Raises:
        OptionsError: several workers would each draw another.
    """
    if call.settings.seed is not None:
        return call.settings.seed
    if begun.get("--seed") is not None:
        return begun["--seed"]
    if worker.n_workers > 1:
        raise OptionsError("`seed`: required with several workers, the same for all")
    seed = random.SystemRandom().randrange(2**31)
    call.reporter.say(f"seed: {seed}")
    return seed


def _comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without sections, arguments as such; of texts, which were compared, whether they are given.

    Options that the settings lack have their defaults.
    """
    values = {**settings, **Options.defaults(), **settings.get("options", {})}
    values |= {text: "given" for text in (run_state.TEXT, run_state.HELDOUT) if text in settings}
    return {
        f"`{name[2:].replace('-', '_')}`" if name.startswith("--") else name: value
        for name, value in values.items()
        if name != "options"
    }


def _make_model(
    call: TrainingCall, options: Options, seed: int, strategy: tf.distribute.Strategy
) -> LanguageModel:
    """A new model, whose weights follow from the seed."""
    allow_tf32 = tf.config.experimental.enable_tensor_float_32_execution
    call.callback(allow_tf32, tf.config.experimental.tensor_float_32_execution_enabled())
    allow_tf32(options.precision is Precision.TF32)
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
    return model


def _restore(trainer: Trainer, interrupted: Interrupted) -> None:
    """Set a trainer to the state of a checkpoint."""
    run, checkpoint, state = interrupted
    run.restore(trainer.model, trainer.optimizer, checkpoint, weights="raw")
    if trainer.average is not None:
        run_state.restore_average(trainer.average, checkpoint)
    worker = trainer.workers.worker
    states = run_state.read_lstm_states(checkpoint, trainer.states * worker.n_workers)
    own = worker.index * trainer.n_parts
    trainer.states = states[own : own + trainer.n_parts]
    trainer.loss_scale = state.loss_scale


def _load(start: Start, trainer: Trainer, text: Text, reporter: Reporter) -> int:
    """Set model and optimizer from the source, as far as there is one; the number of steps behind it.

    A softmax that is new starts with the counts of the words as biases, where the options ask for that.
    """
    model, source, old = trainer.model, start.source, start.old_vocabulary or start.vocabulary
    has_softmax = source is not None and source.n_predicted == old.size
    if not has_softmax and trainer.options.softmax_bias_init is SoftmaxBiasInit.UNIGRAM:
        model.start_softmax_biases(text.counts.word_counts)
    if source is None:
        return 0
    remapping = None
    if start.old_vocabulary is not None:
        remapping = Remapping.of(old.words, start.vocabulary.words, text.counts.word_counts)
        reporter.say(
            f"vocabulary: {remapping.n_kept:,} words kept, {remapping.n_new:,} new, "
            f"{remapping.n_dropped:,} dropped"
        )
    variables, arrays = named_weights(model), source.arrays()
    if not has_softmax:
        variables, arrays = (
            {name: value for name, value in by_name.items() if name.startswith("encoder/")}
            for by_name in (variables, arrays)
        )
    set_weights(variables, arrays if remapping is None else remapping.weights(arrays), source.source)
    del arrays
    source.restore_optimizer(trainer.optimizer, named_weights(model), remapping)
    reporter.say(
        f"{'starting' if source.step is None else 'restarting'}: {source.source}"
        + ("" if source.step is None else f", step {source.step:,}{source.note}")
        + ("" if has_softmax else ", with a new softmax")
    )
    return source.step or 0
