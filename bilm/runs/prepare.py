"""Preparation of a call of train or restart: text, options, model and run directory, up to the first step."""

import contextlib
import dataclasses
import os
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from bilm.backend.keras_backend import backend
from bilm.backend.xla import compiles
from bilm.data.corpus import Text, corpus_record, describe_corpus, read_text
from bilm.errors import CheckpointError, DataError, OptionsError
from bilm.io import PathLike, json
from bilm.models.language_model import LanguageModel
from bilm.options import Decay, Options, Precision, SoftmaxBiasInit, recipes
from bilm.run_directory import directory, files, records
from bilm.run_directory.state import Fixed, RunState, read_lstm_states, read_state, recorded
from bilm.runs.loop import TrainingRun
from bilm.runs.reporter import Reporter, Schedule
from bilm.runs.settings import TrainingCall
from bilm.training.trainer import Trainer
from bilm.training.workers import Worker
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights import checkpoint_file, distribution, transfer

_LEAST_SHARED = 0.05  # share of heldout words in sentences that every text may have, such as headings


@dataclasses.dataclass(frozen=True)
class Start:
    """The text, model and run directory that the arguments of a call name.

    Attributes:
        train_prefix: training text.
        save_dir: run directory to write.
        options: options of the model, complete except for ``n_train_tokens``.
        vocabulary: vocabulary of the model.
        inputs: files that the call reads, besides the text.
        source: model that provides the weights; None for a new model.
        old_vocabulary: vocabulary of the source, if the model is carried over to another one.
        in_place: true to continue the run of the source in its own directory.
        overwrite: true if a new run may replace an existing one.
        freeze: part of the model to freeze, see `bilm.training.trainer.Trainer`.
        recipe: recipe that fills in the options; None to leave them unchanged.
    """

    train_prefix: PathLike | Iterable[PathLike]
    save_dir: Path
    options: Options
    vocabulary: Vocabulary
    inputs: Sequence[Path]
    source: distribution.StoredModel | None = None
    old_vocabulary: Vocabulary | None = None
    in_place: bool = False
    overwrite: bool = False
    freeze: str | None = None
    recipe: str | None = None


class Interrupted(NamedTuple):
    """Interrupted call to resume: its run, the newest checkpoint, and the state saved in the checkpoint."""

    run: directory.RunDirectory
    checkpoint: checkpoint_file.CheckpointFile
    state: RunState


def prepare(start: Start, call: TrainingCall) -> TrainingRun:
    """Read the text, make the model ready for training, and set up the run directory.

    A new run that has no checkpoint when the call is closed is removed.

    Raises:
        CheckpointError: something in the run directory would be lost, another process writes there, it cannot
            be written, or the checkpoint cannot be resumed.
        DataError: the text cannot be read, is too small, or differs from the text of the resumed call.
        ProcessError: TensorFlow is in its version 1 mode.
        OptionsError: there are too few GPUs; or settings that affect the numbers differ from the resumed
            call (the message lists them).
        VocabularyError: the vocabulary differs from that of the resumed run.
        WeightsError: the weights of the source do not fit the model.
    """
    backend.require_ready()
    settings, reporter = call.settings, call.reporter
    vocabulary, worker = start.vocabulary, Worker.from_environment()
    path = start.save_dir.absolute()  # the current directory may change
    writes = worker.is_chief and not settings.dry_run
    if writes:
        call.enter_context(files.writing(path))
    interrupted = _interrupted(start, call.kind, path) if settings.resume else None
    begun = interrupted and interrupted.state.settings
    is_new = interrupted is None and not start.in_place
    if interrupted is not None:
        interrupted.run.check_vocabulary(vocabulary)
    elif is_new and writes:
        files.require_room(path, start.overwrite, vocabulary, start.inputs)
    if worker.n_workers > 1:
        reporter.say(f"worker {worker.index} of {worker.n_workers}: waiting for the others")
    strategy = worker.strategy(settings.n_gpus)

    text, heldout = _read_texts(start.train_prefix, vocabulary, begun, call)
    n_given, n_tokens = start.options.n_train_tokens, text.counts.n_tokens
    if n_given and not n_tokens <= 2 * n_given <= 4 * n_tokens:
        reporter.warn(
            f"n_train_tokens is {n_given:,}, and the corpus has {n_tokens:,} tokens: an epoch reads it "
            f"{n_given / n_tokens:,.2f} times; leave n_train_tokens out to count the text"
        )
    steps_per_epoch, plan = _plan(start.options, n_tokens, strategy, settings.max_steps)
    options, reason = recipes.complete(
        start.options,
        plan,
        settings.values,
        recipe=start.recipe,
        begun=begun.options if begun and "recipe" not in call.arguments else None,
        has_ended=None if start.source is None else start.source.has_ended_on(text.counts.shards),
    )
    if reason:
        reporter.say(reason)
    options = dataclasses.replace(options, n_train_tokens=options.n_train_tokens or plan.n_tokens)
    seed = settings.seed if settings.seed is not None or begun is None else begun.seed
    if seed is None:
        if worker.n_workers > 1:
            raise OptionsError("`seed`: required with several workers, the same for all")
        seed = random.SystemRandom().randrange(2**31)
        reporter.say(f"seed: {seed}")
    recorded = options.to_json()
    del recorded["n_epochs"]  # by itself it only sets the end
    if options.learning_rate_decay in (Decay.LINEAR, Decay.COSINE):
        recorded["n_steps"] = plan.n_steps
    fixed = Fixed(
        command=call.kind,
        options=recorded,
        train_prefix=corpus_record(text.counts),
        heldout_prefix=corpus_record(heldout.counts) if heldout else None,
        eval_every=settings.eval_every if heldout else None,
        seed=seed,
        shuffle=settings.shuffle,
        shuffle_buffer=settings.shuffle_buffer,
        n_gpus=settings.n_gpus,
        jit=settings.jit,
        log_every=settings.log_every,
        workers=worker.n_workers,
        xla=compiles(),
        freeze=start.freeze,
    )
    if begun and (changed := json.changes(_comparable(begun), _comparable(fixed))):
        raise OptionsError(
            f"{path}: cannot be resumed with {', '.join(changed)}; give the original values, or "
            "continue with `bilm restart`"
        )
    model = _make_model(options, seed, strategy, call)
    directions = "both directions" if options.bidirectional else "one direction, forward"
    reporter.say(f"model: {model.count_params():,} parameters, {vocabulary.size:,} words, {directions}")
    trainer = Trainer(model, seed, strategy, worker, start.freeze, settings.jit)
    if interrupted is not None:
        run, checkpoint, state = interrupted
        _restore(trainer, interrupted)
        state.settings = fixed  # the text may have moved
        best = state.best
        reporter.say(
            f"resuming: {checkpoint.prefix}, step {state.step:,}, {state.n_done:,} of "
            f"{plan.n_steps:,} done (epoch {state.n_done / steps_per_epoch:.2f})"
            + (f", best heldout perplexity {best.perplexity:.4f} at step {best.step:,}" if best else "")
        )
    else:
        run = directory.RunDirectory(path, options)
        state = RunState(fixed, _load(start, trainer, text, reporter))
        if start.source is not None and start.in_place:
            run = directory.RunDirectory(path, start.source.options)
            state.log_bytes = json.whole_lines(path / records.METRICS_FILE)
    if writes and is_new:
        read = [Path(shard) for part in (text, heldout) if part is not None for shard in part.counts.shards]
        directory.RunDirectory.create(path, options, vocabulary, start.overwrite, [*start.inputs, *read])
        call.callback(run.discard_unsaved)
    elif writes:
        run.take_over(vocabulary)
    schedule = Schedule(plan.n_steps, steps_per_epoch, options.use_sampling)
    return TrainingRun(run, trainer, state, text, heldout, settings, schedule, reporter)


def _interrupted(start: Start, kind: str, path: Path) -> Interrupted | None:
    """Find the call to resume; None if there is no checkpoint.

    A restart in the directory of its run resumes only a restart.

    Raises:
        BilmError: as `RunDirectory.open` and `RunDirectory.latest`, or another command wrote the checkpoint.
    """
    if not files.CheckpointIndex(path).exists():
        return None
    run = directory.RunDirectory.open(path)
    checkpoint = run.latest()
    record = recorded(checkpoint)
    command = record and record.section("settings").take("command", str, None)
    if command == kind or (record and command is None):
        return Interrupted(run, checkpoint, read_state(checkpoint))
    if start.in_place:
        return None
    by = "by bilm-tf" if record is None else f"by bilm {command}"
    raise CheckpointError(
        f"{checkpoint.prefix}: written {by}, not by the bilm {kind} that is to be resumed; "
        "`bilm restart` continues from it"
    )


def _read_texts(
    train_prefix: PathLike | Iterable[PathLike],
    vocabulary: Vocabulary,
    begun: Fixed | None,
    call: TrainingCall,
) -> tuple[Text, Text | None]:
    """Read and report the training text and the heldout text.

    Raises:
        DataError: a text cannot be read, or differs from the text of the resumed call.
    """

    def read(patterns: PathLike | Iterable[PathLike], argument: str, name: str, record: object) -> Text:
        text = read_text(patterns, argument, vocabulary, call, record, heldout)
        call.reporter.say(describe_corpus(text.counts, name))
        for doubt in text.doubts:
            call.reporter.warn(f"{name}: {doubt}")
        return text

    heldout = None
    if patterns := call.settings.heldout_prefix:  # the shorter text first: its mistakes show sooner
        heldout = read(patterns, "heldout_prefix", "heldout", begun and begun.heldout_prefix)
    text = read(train_prefix, "train_prefix", "corpus", begun and begun.train_prefix)
    if heldout and (share := text.counts.n_shared / heldout.counts.n_words) >= _LEAST_SHARED:
        call.reporter.warn(
            f"heldout: {share:.0%} of the words are in sentences of the training text; the perplexity will "
            "not show overfitting to these"
        )
    return text, heldout


def _plan(
    options: Options, n_tokens: int, strategy: tf.distribute.Strategy, max_steps: int | None
) -> tuple[int, recipes.TrainingPlan]:
    """Compute the number of steps per epoch, and the plan of the call.

    Raises:
        DataError: the text is smaller than one batch.
    """
    n_replicas = strategy.num_replicas_in_sync
    batch = options.batch_size * options.unroll_steps * n_replicas * options.accumulate
    n_of_epoch = options.n_train_tokens or n_tokens
    if (fewest := min(n_of_epoch, n_tokens)) < batch:
        raise DataError(
            f"an epoch of {fewest:,} tokens is less than one batch of {options.batch_size} rows x "
            f"{options.unroll_steps} steps x {n_replicas} replicas x {options.accumulate} accumulated "
            f"({batch:,}); give more text or a smaller `batch_size`"
        )
    steps_per_epoch = n_of_epoch // batch
    n_steps = options.n_epochs * steps_per_epoch
    n_steps = min(n_steps, max_steps or n_steps)
    return steps_per_epoch, recipes.TrainingPlan(n_tokens, n_steps * batch / n_tokens, n_steps)


def _comparable(fixed: Fixed) -> dict[str, Any]:
    """Return the settings by their names in messages, with defaults for missing options.

    The contents of the texts are compared before, so here only their presence counts.
    """
    names = {"workers": "workers", "xla": "XLA"}  # not arguments
    texts = {"train_prefix": "given", "heldout_prefix": fixed.heldout_prefix and "given"}
    values = {names.get(name, f"`{name}`"): value for name, value in (vars(fixed) | texts).items()}
    del values["`options`"]
    known = {"n_steps", *(field.name for field in dataclasses.fields(Options))}  # others: of another version
    return values | Options.defaults() | {key: fixed.options[key] for key in fixed.options if key in known}


def _make_model(
    options: Options, seed: int, strategy: tf.distribute.Strategy, resources: contextlib.ExitStack
) -> LanguageModel:
    """Make a new model; the seed determines its weights."""
    allow_tf32 = tf.config.experimental.enable_tensor_float_32_execution
    resources.callback(allow_tf32, tf.config.experimental.tensor_float_32_execution_enabled())
    allow_tf32(options.precision is Precision.TF32)
    if backend.n_gpus() and os.environ.get("TF_DETERMINISTIC_OPS", "1") != "0":
        tf.config.experimental.enable_op_determinism()  # sums of rows in one order, so that resuming is exact
    before = random.getstate()  # Keras draws the seeds of initializers from it
    random.seed(seed)
    try:
        with strategy.scope():
            return LanguageModel(options, options.precision)
    finally:
        random.setstate(before)


def _restore(trainer: Trainer, interrupted: Interrupted) -> None:
    """Restore the trainer from the checkpoint of an interrupted call."""
    run, checkpoint, state = interrupted
    run.restore(trainer.model, trainer.optimizer, checkpoint)
    worker = trainer.workers.worker
    states = read_lstm_states(checkpoint, trainer.states * worker.n_workers)
    own = worker.index * trainer.n_parts
    trainer.states = states[own : own + trainer.n_parts]
    trainer.loss_scale = state.loss_scale


def _load(start: Start, trainer: Trainer, text: Text, reporter: Reporter) -> int:
    """Load model and optimizer from the source, if there is one, and return its number of steps.

    The biases of a new softmax start from the word counts if `softmax_bias_init` says so.
    """
    model, source, old = trainer.model, start.source, start.old_vocabulary or start.vocabulary
    has_softmax = source is not None and source.n_predicted == old.size
    if not has_softmax and trainer.options.softmax_bias_init is SoftmaxBiasInit.UNIGRAM:
        model.start_softmax_biases(text.counts.word_counts)
    if source is None:
        return 0
    remapping = None
    if start.old_vocabulary is not None:
        remapping = transfer.Remapping.of(old.words, start.vocabulary.words, text.counts.word_counts)
        reporter.say(
            f"vocabulary: {remapping.n_kept:,} words kept, {remapping.n_new:,} new, "
            f"{remapping.n_dropped:,} dropped"
        )
    variables, arrays = model.named_weights(), source.arrays()
    if not has_softmax:
        variables, arrays = (
            {name: value for name, value in by_name.items() if name.startswith("encoder/")}
            for by_name in (variables, arrays)
        )
    transfer.set_weights(variables, arrays if remapping is None else remapping.weights(arrays), source.source)
    del arrays
    source.restore_optimizer(trainer.optimizer, model.named_weights(), remapping)
    reporter.say(
        f"{'starting' if source.step is None else 'restarting'}: {source.source}"
        + ("" if source.step is None else f", step {source.step:,}")
        + ("" if has_softmax else ", with a new softmax")
    )
    return source.step or 0
