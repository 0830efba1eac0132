"""The road of a call of train or restart: its stages, from the request to the end of the loop."""

import contextlib
import dataclasses
import os
import random
import shutil
import threading
from pathlib import Path

import tensorflow as tf
from tensorflow.python.framework import config as tf_config

from bilm.backend.keras_backend import backend, require_ready
from bilm.backend.settings import memory_bytes
from bilm.backend.xla import compiles, device_type
from bilm.data.corpus import Text, corpus_record, describe_corpus, read_text
from bilm.errors import ArgumentError, DataError, LostWorkerError, OptionsError, ProcessError
from bilm.io import json_objects, messages, outputs, run_files
from bilm.io.shards import refuse_within
from bilm.models.language_model import LanguageModel
from bilm.options import Options, Precision, Recipe, SoftmaxBiasInit, SoftmaxRowInit, plan, recipes
from bilm.run_directory import directory, files
from bilm.run_directory.state import RunState, read_lstm_states, restore_optimizer
from bilm.runs.log import RunLog
from bilm.runs.loop import Training
from bilm.runs.reporter import Reporter, TrainingResult
from bilm.runs.settings import Request, TrainingSettings
from bilm.text.pipeline import ModelSteps, TextPipeline
from bilm.training.cooccurrence import word_vectors
from bilm.training.trainer import Trainer
from bilm.training.workers import Worker, lost_workers_told
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.vocabulary.vocabulary_file import MOST_UNKNOWN, form_of_words
from bilm.weights import distribution, transfer

_RUNNING = threading.Lock()  # one per process, like TensorFlow's settings
_LEAST_SHARED = 0.05  # share of heldout words in sentences that every text may have, such as headings


def run(
    request: Request,
    options: Options,
    vocabulary: Vocabulary,
    source: distribution.StoredModel | None = None,
    old_vocabulary: Vocabulary | None = None,
) -> TrainingResult:
    """Train as requested, from the locks and the text to the last checkpoint.

    A new run that has no checkpoint at the end is removed.

    Args:
        request: request of the call.
        options: options of the model, complete except for ``n_train_tokens``.
        vocabulary: vocabulary of the model.
        source: model that provides the weights; None for a new model.
        old_vocabulary: vocabulary of the source, if the model is carried over to another one.

    Raises:
        ArgumentError: another call trains in this process.
        CheckpointError: something in the run directory would be lost, another process writes there, it cannot
            be written, or the checkpoint cannot be resumed.
        DataError: the text cannot be read, is too small, or differs from the text of the resumed call.
        ProcessError: TensorFlow is in its version 1 mode.
        OptionsError: the checkpoint is not the newest; there are too few GPUs; or settings that affect the
            numbers differ from the resumed call (the message lists them).
        VocabularyError: the vocabulary differs from that of the resumed run.
        WeightsError: the weights of the source do not fit the model.
        LostWorkerError: another worker is gone.
        BilmError: as `Training.train`.
    """
    require_ready()
    worker = Worker.from_environment()
    reporter = request.reporter
    writes = worker.is_chief and not request.settings.dry_run
    inputs = request.files("vocab_file", "old_vocab_file", "options", "corpus")
    steps = _steps(request, source)
    inputs += [] if source is None else source.files
    if not _RUNNING.acquire(blocking=False):
        raise ArgumentError(f"`bilm.{request.kind}`: another call trains in this process; wait for its end")
    with lost_workers_told(worker), contextlib.ExitStack() as held:
        held.callback(_RUNNING.release)
        if writes:
            lock = held.enter_context(files.writing(request.path))
        if request.in_place and isinstance(source, directory.RunModel):
            source.require_in_place()
        interrupted = begun = None
        if request.settings.resume:
            interrupted = directory.RunModel.interrupted(request.path, request.kind, request.in_place)
        if interrupted is not None:
            interrupted.check_vocabulary(vocabulary)
            begun = interrupted.run_state.plan
            if isinstance(source, directory.RunModel):
                source.weight_file.keep(())  # the interrupted call has weights of its own
        elif writes and not request.in_place:
            files.require_replaceable(request.path, request.overwrite, inputs)
        _use_threads(request.settings.threads, begun, reporter)
        if "unicode_form" not in request.settings.values:
            form = options.unicode_form
            is_new = source is None and request.recipe not in (None, Recipe.BILM_TF)
            if begun is not None:
                form = begun.options.unicode_form
            elif is_new or (old_vocabulary is not None and request.steps is not None):
                made_by = ModelSteps(steps).pipeline
                form = form_of_words(vocabulary.words) if made_by is None else made_by.form
            options = dataclasses.replace(options, unicode_form=form)
        vocabulary.unicode_form = options.unicode_form
        if worker.n_workers > 1:
            reporter.say(f"worker {worker.index} of {worker.n_workers}: waiting for the others")
        strategy = worker.strategy(request.settings.n_gpus)
        text, heldout = _read_texts(request, vocabulary, begun, held)
        n_replicas = strategy.num_replicas_in_sync
        planned = _plan(request, options, text, heldout, source, begun, worker, n_replicas)
        if begun is not None:
            planned.require_same(begun, request.path)
        model = _make_model(planned.options, planned.seed, strategy, held)
        directions = "both directions" if options.bidirectional else "one direction, forward"
        reporter.say(
            f"model: {model.count_params():,} parameters, {vocabulary.size:,} words, {directions}, "
            f"on a {device_type()}"
        )
        trainer = Trainer(model, planned.seed, strategy, worker, planned.freeze, planned.jit)
        tell_size(trainer, request.path, request.settings, reporter)
        _require_same_start(trainer, interrupted or source, interrupted is not None, text)
        if interrupted is not None:
            state = _restored(trainer, interrupted, planned, reporter)
        else:
            state = RunState(planned, _load(trainer, source, old_vocabulary, text, reporter))
            if request.in_place and isinstance(source, directory.RunModel):
                state.log_bytes = source.log_bytes
                state.best = source.best_on(heldout.counts.shards if heldout else None)
        kept = interrupted or (source if request.in_place else None)
        run = directory.RunDirectory(request.path, planned.options if kept is None else kept.options)
        log = None
        if writes:
            if kept is None:
                inputs += [Path(shard) for part in (text, heldout) if part for shard in part.counts.shards]
                run.create(run.path, run.options, vocabulary, request.overwrite, inputs, steps)
                held.callback(run.discard_unsaved, lock)
            else:
                run.take_over(vocabulary, steps)
            log = held.enter_context(contextlib.closing(RunLog(run.path, state.log_bytes, state.step)))
        return Training(request, run, trainer, state, text, heldout, log).train()


def _use_threads(given: int | None, begun: plan.Plan | None, reporter: Reporter) -> None:
    """Use the threads that are given or else those that the resumed call began with, if there are any.

    Raises:
        ProcessError: TensorFlow has begun with another number than the given one.
    """
    try:
        if threads := given or (begun and begun.threads):
            backend.use_threads_of_an_operation(threads)
    except ProcessError as error:
        if given:
            raise
        reporter.warn(f"{error}; with other threads the results differ in their last bits")


def _steps(request: Request, source: distribution.StoredModel | None) -> bytes | None:
    """Return the ``text.json`` of the corpus or, without one, of the source; warn if both have other steps.

    Raises:
        DataError: it cannot be read, or is damaged.
    """
    before = ModelSteps(None, "") if source is None else source.steps
    if request.steps is None:
        return before.content
    content = outputs.read_file(request.steps, DataError)
    steps = TextPipeline.parse(content, str(request.steps))
    if before.pipeline is not None and before.pipeline != steps:
        changed = json_objects.changes(dataclasses.asdict(before.pipeline), dataclasses.asdict(steps))
        request.reporter.warn(f"corpus: its settings are not those of the model's text: {', '.join(changed)}")
    return content


def _read_texts(
    request: Request, vocabulary: Vocabulary, begun: plan.Plan | None, held: contextlib.ExitStack
) -> tuple[Text, Text | None]:
    """Read and report the training text and the heldout text.

    Raises:
        DataError: a text cannot be read, or differs from the text of the resumed call.
    """
    reporter = request.reporter

    def read(argument: str, name: str, heldout: Text | None = None) -> Text:
        record = begun and getattr(begun, argument)
        for file in request.files("vocab_file") if record is None else ():
            refuse_within(file, request.arguments[argument])
        text = read_text(request.arguments[argument], argument, vocabulary, held, record, heldout)
        reporter.say(describe_corpus(text.counts, name))
        for doubt in text.doubts:
            reporter.warn(f"{name}: {doubt}")
        return text

    heldout = None
    if request.settings.heldout_prefix:  # the shorter text first: its mistakes show sooner
        heldout = read("heldout_prefix", "heldout")
    text = read("train_prefix", "corpus", heldout)
    keeps_vocabulary = request.kind == "restart" and "vocab_file" not in request.arguments
    if keeps_vocabulary and ("corpus" in request.arguments or text.counts.oov_rate > MOST_UNKNOWN):
        reporter.say("vocabulary: the model's; `remap_vocab` adapts the model to that of the text")
    if heldout and (share := text.counts.n_shared / heldout.counts.n_words) >= _LEAST_SHARED:
        reporter.warn(
            f"heldout: {share:.0%} of the words are in sentences of the training text; the perplexity will "
            "not show overfitting to these; `unique` of `bilm prepare` drops repeated sentences"
        )
    return text, heldout


def _plan(
    request: Request,
    options: Options,
    text: Text,
    heldout: Text | None,
    source: distribution.StoredModel | None,
    begun: plan.Plan | None,
    worker: Worker,
    n_replicas: int,
) -> plan.Plan:
    """Make the plan of a call, and report what was chosen: recipe and seed.

    Raises:
        DataError: the text is smaller than one batch.
        OptionsError: a seed is required.
    """
    settings = request.settings
    reporter = request.reporter
    n_given, n_tokens = options.n_train_tokens, text.counts.n_tokens
    if n_given and not n_tokens <= 2 * n_given <= 4 * n_tokens:
        reporter.warn(
            f"`n_train_tokens` is {n_given:,}, and the corpus has {n_tokens:,} tokens: an epoch reads it "
            f"{n_given / n_tokens:,.2f} times; leave out `n_train_tokens` for one pass per epoch"
        )
    n_steps, steps_per_epoch, n_passes = plan.count_steps(options, n_tokens, n_replicas, settings.max_steps)
    is_kept = begun is not None and request.recipe in (None, recipes.AUTO, begun.options.recipe)
    has_ended = isinstance(source, directory.RunModel) and source.has_ended_on(text.counts.shards)
    options, reason = recipes.complete(
        options,
        settings.values,
        n_tokens=n_tokens,
        n_passes=n_passes,
        n_steps=n_steps,
        recipe=request.recipe,
        begun=begun.options if begun and is_kept else None,
        has_ended=None if source is None else has_ended,
    )
    if reason:
        reporter.say(reason)
    elif request.kind == "restart":
        reporter.say(f"optimizer: {options.optimizer.value}, learning rate {options.step_size:g}")
    seed = settings.seed if settings.seed is not None or begun is None else begun.seed
    if seed is None:
        if worker.n_workers > 1:
            raise OptionsError("`seed`: required with several workers, the same for all")
        seed = random.SystemRandom().randrange(2**31)
        reporter.say(f"seed: {seed}")
    return plan.Plan(
        command=request.kind,
        options=dataclasses.replace(options, n_train_tokens=options.n_train_tokens or n_tokens),
        train_prefix=corpus_record(text.counts),
        heldout_prefix=corpus_record(heldout.counts) if heldout else None,
        eval_every=settings.eval_every if heldout else None,
        seed=seed,
        shuffle=settings.shuffle,
        shuffle_buffer=settings.shuffle_buffer,
        n_gpus=n_replicas // worker.n_workers,
        jit=settings.jit,
        log_every=settings.log_every,
        workers=worker.n_workers,
        xla=compiles(),
        freeze=request.freeze,
        threads=backend.threads_of_an_operation(),
        n_steps=n_steps,
        steps_per_epoch=steps_per_epoch,
    )


def _make_model(
    options: Options, seed: int, strategy: tf.distribute.Strategy, resources: contextlib.ExitStack
) -> LanguageModel:
    """Make a new model; the seed determines its weights."""
    backend.use_tf32(options.precision is Precision.TF32, resources)
    is_wanted = backend.n_gpus() and os.environ.get("TF_DETERMINISTIC_OPS", "1") != "0"
    if is_wanted and not tf_config.is_op_determinism_enabled():
        tf.config.experimental.enable_op_determinism()  # sums of rows in one order, so that resuming is exact
        resources.callback(tf_config.disable_op_determinism)
    before = random.getstate()  # Keras draws the seeds of initializers from it
    random.seed(seed)
    try:
        with strategy.scope():
            return LanguageModel(options, options.precision)
    finally:
        random.setstate(before)


def tell_size(trainer: Trainer, path: Path, settings: TrainingSettings, reporter: Reporter) -> None:
    """Report memory and disk needed by the model; warn if there is too little."""
    memory, n_bytes = memory_bytes(), trainer.n_bytes
    free = shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
    # The layers' activations come on top, and TensorFlow itself.
    needed = n_bytes + 4 * trainer.model.count_params()
    reporter.say(
        f"size: {messages.size_of(needed)} of {messages.size_of(memory)} memory for weights, gradients and "
        f"optimizer; {messages.size_of(n_bytes)} of {messages.size_of(free)} free disk for each checkpoint"
    )
    if needed > 0.8 * memory:
        reporter.warn("training needs more memory than is safe here; a smaller model needs less")
    if settings.resume:  # those of the run are replaced
        free += sum(file.lstat().st_size for file in path.glob(f"{run_files.CHECKPOINT}*"))
    n_kept = settings.keep + 2  # plus the best one, and the one being written
    if n_kept * n_bytes > free and not settings.dry_run:
        reporter.warn(f"{n_kept} checkpoints do not fit on the disk; make room, or give a smaller `keep`")


def _require_same_start(
    trainer: Trainer, start: distribution.StoredModel | None, is_resumed: bool, text: Text
) -> None:
    """Check that all workers begin alike.

    Raises:
        DataError: they have other texts or seeds.
        LostWorkerError: they begin from other checkpoints, of which one may have been written meanwhile.
    """
    own = [is_resumed, start and start.step, trainer.seed, text.counts.n_tokens]
    every = trainer.workers.gather_json(own)
    problem = f"the workers begin differently (resumed, step, seed, tokens: {every})"
    if any(other[2:] != own[2:] for other in every):
        raise DataError(f"{problem}; give all the same seed and text")
    if any(other != own for other in every):
        raise LostWorkerError(f"{problem}; all must read the same run directory; start the job again")


def _restored(
    trainer: Trainer, interrupted: directory.RunModel, planned: plan.Plan, reporter: Reporter
) -> RunState:
    """Restore the trainer from the checkpoint of an interrupted call, and return the state to go on from."""
    checkpoint, state = interrupted.weight_file, interrupted.run_state
    variables = trainer.model.named_weights()
    transfer.set_weights(variables, interrupted.arrays(), interrupted.source)
    restore_optimizer(trainer.optimizer, variables, checkpoint, interrupted.names)
    worker = trainer.workers.worker
    states = read_lstm_states(checkpoint, trainer.states * worker.n_workers)
    own = worker.index * trainer.n_parts
    trainer.states = states[own : own + trainer.n_parts]
    trainer.loss_scale = state.loss_scale
    best = state.best
    reporter.say(
        f"resuming: {checkpoint.prefix}, step {state.step:,}, {state.n_done:,} of "
        f"{planned.n_steps:,} done (epoch {state.n_done / planned.steps_per_epoch:.2f})"
        + (f", best heldout perplexity {best.perplexity:.4f} at step {best.step:,}" if best else "")
    )
    return dataclasses.replace(state, plan=planned)  # the text may have moved


def _load(
    trainer: Trainer,
    source: distribution.StoredModel | None,
    old_vocabulary: Vocabulary | None,
    text: Text,
    reporter: Reporter,
) -> int:
    """Load model and optimizer from the source, if there is one, and return its number of steps.

    A new softmax starts from the text as `softmax_bias_init` and `softmax_row_init` say.
    """
    model, options, old = trainer.model, trainer.options, old_vocabulary or text.vocabulary
    has_softmax = source is not None and source.n_predicted == old.size
    if not has_softmax and options.softmax_bias_init is SoftmaxBiasInit.UNIGRAM:
        model.start_softmax_biases(text.counts.word_counts)
    has_own_rows = not has_softmax and not options.share_embedding_softmax
    if has_own_rows and options.softmax_row_init is SoftmaxRowInit.COOCCURRENCE:
        reporter.say("softmax: its rows start from the words' neighbours in the text")
        vectors = word_vectors(text, options.lstm.projection_dim, trainer.seed)
        model.start_softmax_rows(trainer.workers.of_chief(vectors))
    if source is None:
        return 0
    remapping = None
    if old_vocabulary is not None:
        remapping = transfer.Remapping(old.words, text.vocabulary.words, text.counts.word_counts)
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
    if isinstance(source, directory.RunModel):
        restore_optimizer(
            trainer.optimizer, model.named_weights(), source.weight_file, source.names, remapping
        )
    reporter.say(
        f"{'starting' if source.step is None else 'restarting'}: {source.source}"
        + ("" if source.step is None else f", step {source.step:,}")
        + ("" if has_softmax else ", with a new softmax")
    )
    return source.step or 0
