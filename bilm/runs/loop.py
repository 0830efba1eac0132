"""The training loop of train and restart: steps, and callbacks after each, with one reason to change each.

All state that determines the numbers is in `RunState` and saved with every checkpoint, so that a resumed run
gives the same bits as an uninterrupted one. The order of the callbacks matters: a step is checked and
recorded; the heldout text is scored; the call is asked whether to stop; and a checkpoint keeps all of that.
"""

import dataclasses
import functools
import math
import os
import resource
import signal
import statistics
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from bilm.backend.on_tensorflow import threads_of_an_operation
from bilm.backend.settings import memory_bytes, multiplies_bfloat16
from bilm.data import corpus, pipeline, stream
from bilm.embedding import scoring
from bilm.errors import DataError, DivergenceError
from bilm.io import background
from bilm.io.json_objects import JsonObject
from bilm.models.language_model import LanguageModel
from bilm.options import Precision
from bilm.run_directory import directory, records
from bilm.run_directory.state import Best, RunState
from bilm.runs.log import RunLog, record_arguments, record_call
from bilm.runs.reporter import Estimate, Outcome, TrainingResult
from bilm.runs.settings import Request
from bilm.training.meter import Meter, StepReport
from bilm.training.trainer import Trainer, training_steps

_TIMED_STEPS = 5  # of a dry run
_SLICE_TOKENS = 20_000  # of the training text, scored along with the heldout text
_WINDOWS_BETWEEN_QUESTIONS = 16  # to several workers, which wait for each other to agree


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """A call of train or restart, ready for its first step.

    Attributes:
        request: request of the call.
        run: run directory; a new run in a dry run is not on disk.
        trainer: model in training, at the step of `state`.
        state: new state, or the state in the checkpoint that the trainer was restored from.
        text: training text.
        heldout: heldout text, or None.
        log: records of the run; None for a worker that writes none, and for a dry run.
    """

    request: Request
    run: directory.RunDirectory
    trainer: Trainer
    state: RunState
    text: corpus.Text
    heldout: corpus.Text | None
    log: RunLog | None

    def train(self) -> TrainingResult:
        """Train to the end of the schedule or until told to stop, and save a checkpoint at the end.

        A dry run takes only a few steps, and saves nothing.

        Raises:
            DataError: the text cannot be read, or has changed; the steps before are saved.
            DivergenceError: the training diverged; no later checkpoint is saved.
            CheckpointError: the run directory cannot be written.
        """
        request, run, trainer, state = self.request, self.run, self.trainer, self.state
        reporter = request.reporter
        if request.settings.dry_run:
            return TrainingResult(request.save_dir, Outcome.DRY_RUN, state.step, estimate=self.estimate())
        interrupt = _Interrupt()
        ending = Ending(self, interrupt)
        checkpoints = Checkpoints(self, ending)
        if self.log is not None and ending.outcome is None:
            record_call(
                run.path,
                command=request.command,
                step=state.step,
                seed=trainer.seed,
                options=trainer.options.to_json(),
                n_done=state.n_done,
            )
            if request.kind == "train":
                record_arguments(run.path, request.repeated(state.plan), state.plan)
        reporter.begin(state.plan)
        try:
            with interrupt:
                outcome = self._loop(checkpoints, ending)
        finally:
            reporter.end()
        best, reason = state.best, ending.reason or "another worker was asked to stop"
        return TrainingResult(
            request.save_dir,
            outcome,
            state.step,
            saved=checkpoints.saved and request.save_dir / checkpoints.saved.name,
            best_perplexity=best.perplexity if best else None,
            best_step=best.step if best else None,
            best_checkpoint=request.save_dir / run.index.prefix(best.step).name if best else None,
            n_without_gain=state.n_without_gain,
            stop_reason=reason if outcome is Outcome.STOPPED else None,
        )

    def estimate(self) -> Estimate | None:
        """Time a few steps and estimate the rest of the schedule; None if no steps are left.

        Where the processor multiplies bfloat16, its steps are timed too.
        """
        trainer, plan = self.trainer, self.state.plan
        n_left = plan.n_steps - self.state.n_done
        if n_left <= 0:
            return None

        def times(trainer: Trainer) -> list[float]:
            return [report.seconds for report in training_steps(trainer, self._batches(), _TIMED_STEPS + 1)]

        self.request.reporter.say(f"timing: {_TIMED_STEPS + 1} steps, the first of which compiles the model")
        first, *others = times(trainer)
        step_seconds = statistics.median(others)
        options, n_replicas = trainer.options, trainer.strategy.num_replicas_in_sync
        has_gpu = bool(tf.config.list_logical_devices("GPU"))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        in_bfloat16 = None
        is_float32, is_alone = options.precision is Precision.FLOAT32, n_replicas == 1
        has_room = 4 * trainer.n_bytes < memory_bytes()  # for another model
        if is_float32 and is_alone and has_room and not has_gpu and multiplies_bfloat16():
            options = dataclasses.replace(options, precision=Precision.BFLOAT16)
            model = LanguageModel(options, options.precision)
            twin = Trainer(model, trainer.seed, freeze=plan.freeze, jit=trainer.jit)
            in_bfloat16 = statistics.median(times(twin)[1:])
        return Estimate(
            n_steps=plan.n_steps,
            steps_per_epoch=plan.steps_per_epoch,
            n_left=n_left,
            step_seconds=step_seconds,
            first_step_seconds=first,
            tokens_per_second=trainer.options.step_tokens * n_replicas / step_seconds,
            peak_bytes=peak if os.uname().sysname == "Darwin" else peak * 1024,
            gpu_bytes=tf.config.experimental.get_memory_info("GPU:0")["peak"] if has_gpu else None,
            kept_bytes=trainer.n_bytes,
            n_timed=1 + len(others),
            threads=threads_of_an_operation(),
            bfloat16_seconds=in_bfloat16,
        )

    def _loop(self, checkpoints: "Checkpoints", ending: "Ending") -> Outcome:
        """Take steps until there is an outcome."""
        state, trainer, worker, report = self.state, self.trainer, self.trainer.workers.worker, None
        validation = Validation(self, ending)
        try:
            validation.validate()
            checkpoints.after_step(None)
            batches = self._batches(state.positions[worker.index] if state.positions else None)
            steps = training_steps(trainer, batches, state.plan.n_steps, state.first_step, state.n_done)
            while (outcome := ending.outcome) is None:
                report = next(steps)
                state.add(report, trainer.loss_scale)
                _require_finite(self, report, checkpoints.saved)
                _record_step(self, report)
                validation.after_step(report)
                ending.should_stop()
                checkpoints.after_step(report)
            return outcome
        except DataError as error:  # the text was changed or removed; the steps before are valid
            if worker.n_workers == 1:  # other workers may be at another step
                checkpoints.save(report)
            if checkpoints.saved is None:
                raise
            raise DataError(
                f"{error}; saved: {checkpoints.saved}; continue with resume=True on the original text, or "
                "with `bilm restart` on the new one"
            ) from error

    def record(self, record: records.TrainRecord | records.HeldoutRecord) -> None:
        """Write a record, if this worker does."""
        if self.log is not None:
            self.log.write(record)

    @property
    def progress(self) -> dict[str, Any]:
        """Fields common to all records."""
        epoch = self.state.n_done / self.state.plan.steps_per_epoch
        return {"step": self.state.step, "epoch": epoch, "tokens": self.state.n_tokens}

    def _batches(self, position: stream.Position | None = None) -> Iterator[pipeline.TrainingBatch]:
        """Read batches of the training text from a position, or from the beginning."""
        options, plan, worker = self.trainer.options, self.state.plan, self.trainer.workers.worker
        # A restart reads the text in another order than the run before.
        seed = plan.seed + self.state.first_step
        order = stream.Order(
            plan.shuffle, seed, plan.shuffle_buffer, options.passage_tokens, worker.index, worker.n_workers
        )
        files, vocabulary, n_parts = self.text.counts.shards, self.text.vocabulary, self.trainer.n_parts
        return background.prefetch(
            pipeline.training_batches(files, vocabulary, options, order, n_replicas=n_parts, start=position)
        )


def _require_finite(training: Training, report: StepReport, saved: Path | None) -> None:
    """Check that the loss and the gradient norm of a step are finite.

    Raises:
        DivergenceError: one of them is not.
    """
    if report.is_finite or report.is_skipped:
        return
    rate = training.trainer.options.step_size
    raise DivergenceError(
        f"training diverged at step {report.step:,}: loss {report.loss:g}, gradient norm "
        f"{report.gradient_norm:g}. Try a smaller `learning_rate` than {rate:g}"
        + ("" if saved is None else f"; the last checkpoint is {saved}")
    )


def _record_step(training: Training, report: StepReport) -> None:
    """Report a step; write the record of the last ones, and histograms of the weights, if they are due.

    Raises:
        CheckpointError: they cannot be written.
    """
    state, settings = training.state, training.request.settings
    is_due = report.n_done % settings.log_every == 0 or report.n_done == report.n_steps
    if is_due and state.meter.n_steps:
        sampled = training.trainer.options.use_sampling
        training.record(records.TrainRecord.from_meter(state.meter, **training.progress, sampled=sampled))
        state.meter = Meter()
    every = settings.histograms_every
    if every and report.n_done % every == 0 and training.log is not None:
        training.log.write_histograms(report.step, training.trainer.model.named_weights())
    training.request.reporter.step(report)


class _Interrupt:
    """Context manager that holds back a KeyboardInterrupt until the step is done, and a second one not.

    In the main thread, where nothing else handles SIGINT, as in a notebook.

    Attributes:
        is_due: true if there was one; it is raised at the end.
    """

    is_due = _listens = False

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        self._listens = is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._listens:
            signal.signal(signal.SIGINT, self._hold_back)

    def _hold_back(self, *_: object) -> None:
        self.is_due = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def __exit__(self, *error: object) -> None:
        if self._listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self.is_due and error[0] is None:
            raise KeyboardInterrupt("the run is saved; the same call with resume=True continues it")


class Ending:
    """Decides when the call ends: at its last step, without gain, on request, or as its time is nearly over.

    Attributes:
        reason: reason of this worker to stop, or None.
    """

    def __init__(self, training: Training, interrupt: _Interrupt) -> None:
        self._training, self._interrupt = training, interrupt
        self._is_stopping = False
        self.reason: str | None = None
        self._last_question: float | None = None  # the first step, which is compiled, does not count
        self._longest_pause = 0.0  # between two questions: a step, a save or both

    def should_stop(self) -> bool:
        """Return true if this worker or another should stop: on request, or because its time is nearly over.

        The margin before the deadline is the longest time between two questions so far.
        """
        now, request = time.monotonic(), self._training.request
        self._longest_pause = max(self._longest_pause, now - (self._last_question or now))
        self._last_question = now
        if request.should_stop() or self._interrupt.is_due:
            self.reason = self.reason or "a stop was requested"
        if now + self._longest_pause >= request.until:
            self.reason = self.reason or "the time allowed by `max_time` is nearly over"
        self._is_stopping = self._training.trainer.workers.any(self.reason is not None)
        return self._is_stopping

    @property
    def outcome(self) -> Outcome | None:
        """Outcome of the call if it ends, after its last validation unless stopped; None otherwise."""
        state, patience = self._training.state, self._training.request.settings.patience
        if not state.must_evaluate and state.n_done >= state.plan.n_steps:
            return Outcome.FINISHED
        if not state.must_evaluate and patience is not None and state.n_without_gain >= patience:
            return Outcome.NO_GAIN
        return Outcome.STOPPED if self._is_stopping else None


class Stopped(Exception):  # noqa: N818 - ends a validation, is not an error
    """A stop was requested during a validation."""


class Validation:
    """Scores the heldout text, and a slice of the training text.

    A validation that is stopped is repeated by the call that resumes.
    """

    def __init__(self, training: Training, ending: Ending) -> None:
        self._training, self._ending = training, ending
        self._n_windows = 0

    def after_step(self, report: StepReport) -> None:
        """Score the text if a validation is due.

        Raises:
            CheckpointError: the record cannot be written.
            DataError: a text has changed since it was counted.
        """
        state, is_last = self._training.state, report.n_done == report.n_steps
        if self._training.heldout is not None:
            state.must_evaluate = is_last or report.n_done % state.plan.n_steps_to_validation == 0
            self.validate()

    def validate(self) -> None:
        """Score the texts if they must be, also after an interrupted call, and record the result."""
        training, state, started = self._training, self._training.state, time.monotonic()
        if (heldout := training.heldout) is None or not state.must_evaluate:
            return
        try:
            scored = self._score(heldout.sentences(), heldout.counts.n_tokens)
            train_slice = self._score(self._train_slice, sum(len(part.ids) for part in self._train_slice))
        except Stopped:
            return
        # Workers on different hardware may differ in the last bits.
        perplexity = training.trainer.workers.mean(scored.perplexities.perplexity)
        is_best = math.isfinite(perplexity) and (state.best is None or perplexity < state.best.perplexity)
        if is_best:
            state.best = Best(state.step, perplexity)
        state.n_without_gain = 0 if is_best else state.n_without_gain + 1
        state.must_evaluate = False
        record = records.HeldoutRecord(
            **training.progress,
            **scored.perplexities._replace(perplexity=perplexity)._asdict(),
            known_perplexity=scored.known_perplexity,
            train_perplexity=train_slice.perplexities.perplexity,
            best=is_best,
            seconds=time.monotonic() - started,
            time=time.time(),
        )
        training.record(record)
        training.request.reporter.heldout(record)

    @functools.cached_property
    def _scorer(self) -> scoring.Scorer:
        return scoring.Scorer(self._training.trainer.model, self._training.text.vocabulary)

    @functools.cached_property
    def _train_slice(self) -> list[stream.Sentences]:
        """Sentences at equal distances in the training text."""
        text = self._training.text
        return [*text.sentences(every=-(-text.counts.n_tokens // _SLICE_TOKENS))]

    def _score(self, parts: Iterable[stream.Sentences], n_tokens: int) -> scoring.Evaluation:
        """Score a text of about `n_tokens` tokens, and report the progress.

        Raises:
            Stopped: a stop was requested.
        """
        self._training.request.reporter.scored(0, n_tokens)
        return self._scorer.evaluate(parts, functools.partial(self._on_window, n_tokens))

    def _on_window(self, n_tokens: int, n_scored: int) -> None:
        self._training.request.reporter.scored(n_scored, n_tokens)
        self._n_windows += 1
        is_alone = self._training.trainer.workers.worker.n_workers == 1
        if (is_alone or self._n_windows % _WINDOWS_BETWEEN_QUESTIONS == 0) and self._ending.should_stop():
            raise Stopped


class Checkpoints:
    """Saves checkpoints: when they are due, after the best validation, and at the end.

    Attributes:
        saved: prefix of the last checkpoint saved, or None.
    """

    def __init__(self, training: Training, ending: Ending) -> None:
        self._training, self._ending = training, ending
        self.saved: Path | None = None
        self._saved_at = self._point
        self._last_save = time.monotonic()

    @property
    def _point(self) -> tuple[int, bool]:
        """Point in the course of the run, which differs from the saved one if there is something to save."""
        return self._training.state.n_done, self._training.state.must_evaluate

    def after_step(self, report: StepReport | None) -> None:
        """Save if a checkpoint is due, the validation was the best so far, or the call ends.

        Args:
            report: report of the step; None before the first one, see `Validation.validate`.

        Raises:
            CheckpointError: the checkpoint cannot be written.
        """
        best = self._training.state.best
        is_best = best is not None and best.step == self._training.state.step
        if self._point != self._saved_at and (self._ending.outcome or is_best or self._is_due()):
            self.save(report)

    def _is_due(self) -> bool:
        every = self._training.request.settings.save_every
        if isinstance(every, int):
            return self._training.state.n_done % every == 0
        minutes = float(every.removesuffix("m"))
        return self._training.trainer.workers.any(time.monotonic() - self._last_save >= 60 * minutes)

    def save(self, report: StepReport | None) -> None:
        """Gather the state of all workers; the chief writes it as a checkpoint. Does nothing if it is saved.

        Args:
            report: report of the last step; None before the first step of the call.

        Raises:
            CheckpointError: the checkpoint cannot be written.
        """
        if self._point == self._saved_at:
            return
        training, state, trainer = self._training, self._training.state, self._training.trainer
        if report is not None:
            after = report.batch.position
            position = dataclasses.asdict(stream.Position(after.place, [*after.rows]))
            gathered = trainer.workers.gather_json(position)
            state.positions = [JsonObject("", values).read_as(stream.Position) for values in gathered]
        lstm_states = trainer.workers.gather_states(trainer.states)
        self._last_save, self._saved_at = time.monotonic(), self._point
        if training.log is not None:
            state.log_bytes = training.log.sync()
            best = None if state.best is None else state.best.step
            keep = training.request.settings.keep
            training.run.save(
                trainer.model,
                trainer.optimizer,
                state.step,
                state.train_perplexity,
                state.tensors(lstm_states),
                obsolete=training.run.obsolete(keep, state.first_step, state.step, {best}),
            )
            training.log.require_in_place()  # the directory may have been moved while saving
        trainer.workers.any(False)  # no worker ends before the chief has written
        self.saved = training.run.index.prefix(state.step)
