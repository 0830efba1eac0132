"""The training loop of train and restart.

It takes steps, validates, writes records and checkpoints, and may end early. All state that determines the
numbers is in `RunState` and saved with every checkpoint, so that a resumed run gives the same bits as an
uninterrupted one.
"""

import contextlib
import dataclasses
import functools
import math
import os
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from bilm.backend.settings import memory_bytes, multiplies_bfloat16
from bilm.data import corpus, pipeline, stream
from bilm.embedding import scoring
from bilm.errors import DataError, DivergenceError, LostWorkerError
from bilm.io import atomic, background, json_objects, messages
from bilm.io.run_files import DIVERGED
from bilm.models.language_model import LanguageModel
from bilm.options import Precision
from bilm.run_directory import directory, records
from bilm.run_directory.state import Best, RunState
from bilm.runs.log import RunLog, record_arguments, record_call
from bilm.runs.reporter import Estimate, Outcome, Reporter, Schedule, TrainingResult
from bilm.runs.settings import TrainingCall, TrainingSettings
from bilm.training import meter
from bilm.training.trainer import Trainer, training_steps

_SLICE_TOKENS = 20_000  # of the training text, scored along with the heldout text
_TIMED_STEPS = 5  # of a dry run


def run_to_end(call: TrainingCall, save_dir: Path, training: "TrainingRun") -> TrainingResult:
    """Train to the end of the schedule or until told to stop; a dry run takes only a few steps.

    Args:
        call: call of train or restart.
        save_dir: run directory as the user gave it, for the result.
        training: result of `bilm.runs.prepare.prepare`.

    Raises:
        BilmError: as `TrainingRun.train`; or the run directory cannot be written.
        LostWorkerError: another worker is gone.
    """
    state, trainer, worker = training.state, training.trainer, training.trainer.workers.worker
    _tell_size(training)
    if call.settings.dry_run:
        return TrainingResult(save_dir, Outcome.DRY_RUN, state.step, estimate=_dry_run(training))
    training.asked_to_stop, training.until = call.should_stop, call.until
    call.reporter.begin(training.schedule)
    call.callback(call.reporter.end)
    if worker.is_chief and (state.must_evaluate or training.end() is None):
        record_call(training.run.path, call.command, state.step, trainer.seed, trainer.options.to_json())
        if call.kind == "train":
            record_arguments(training.run.path, call.repeated(trainer.seed, trainer.options))
    try:
        outcome = training.train()
    except tf.errors.OpError as error:
        if worker.n_workers == 1 or messages.is_out_of_memory(error):
            raise
        raise LostWorkerError(
            f"worker {worker.index} lost contact with the others ({messages.reason(error)}); stop "
            "the remaining workers and start the job again with resume=True"
        ) from error
    best, reason = state.best, training.stop_reason or "another worker was asked to"
    return TrainingResult(
        save_dir,
        outcome,
        state.step,
        saved=training.saved and save_dir / training.saved.name,
        best_perplexity=best.perplexity if best else None,
        best_step=best.step if best else None,
        best_checkpoint=save_dir / training.run.index.prefix(best.step).name if best else None,
        n_without_gain=state.n_without_gain,
        stop_reason=reason if outcome is Outcome.STOPPED else None,
    )


def _tell_size(training: "TrainingRun") -> None:
    """Report memory and disk needed by the model; warn if there is too little."""
    reporter, settings, n_bytes = training.reporter, training.settings, training.trainer.n_bytes
    memory, path = memory_bytes(), training.run.path
    free = shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
    # The layers' activations come on top, and TensorFlow itself.
    needed = n_bytes + 4 * training.trainer.model.count_params()
    reporter.say(
        f"size: {messages.size_of(needed)} of {messages.size_of(memory)} memory for weights, gradients and "
        f"optimizer; {messages.size_of(n_bytes)} of {messages.size_of(free)} free disk for each checkpoint"
    )
    if needed > 0.8 * memory:
        reporter.warn("training needs more memory than there is; use a smaller model, see `preset`")
    n_kept = settings.keep + 2  # plus the best one, and the one being written
    if n_kept * n_bytes > free and not settings.dry_run:
        reporter.warn(f"{n_kept} checkpoints do not fit on the disk; `keep` fewer, or make room")


def _dry_run(training: "TrainingRun") -> Estimate | None:
    """Time a few steps and estimate the rest of the schedule; None if no steps are left.

    Where the processor multiplies bfloat16, its steps are timed too.
    """
    schedule, trainer = training.schedule, training.trainer
    n_left = schedule.n_steps - training.state.n_done
    if n_left <= 0:
        return None

    def times(trainer: Trainer) -> list[float]:
        return [report.seconds for report in training_steps(trainer, training.batches(), _TIMED_STEPS + 1)]

    first, *others = times(trainer)
    step_seconds = statistics.median(others)
    n_tokens = trainer.options.batch_size * trainer.options.unroll_steps * trainer.n_parts
    has_gpu = bool(tf.config.list_logical_devices("GPU"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    in_bfloat16 = None
    is_float32, is_alone = trainer.options.precision is Precision.FLOAT32, trainer.n_replicas == 1
    if is_float32 and is_alone and not has_gpu and multiplies_bfloat16():
        options = dataclasses.replace(trainer.options, precision=Precision.BFLOAT16)
        model = LanguageModel(options, options.precision)
        twin = Trainer(model, trainer.seed, freeze=training.state.settings.freeze, jit=trainer.jit)
        in_bfloat16 = statistics.median(times(twin)[1:])
    return Estimate(
        n_steps=schedule.n_steps,
        steps_per_epoch=schedule.steps_per_epoch,
        n_left=n_left,
        step_seconds=step_seconds,
        first_step_seconds=first,
        tokens_per_second=n_tokens / step_seconds,
        peak_bytes=peak if os.uname().sysname == "Darwin" else peak * 1024,
        gpu_bytes=tf.config.experimental.get_memory_info("GPU:0")["peak"] if has_gpu else None,
        kept_bytes=trainer.n_bytes,
        n_timed=1 + len(others),
        bfloat16_seconds=in_bfloat16,
    )


class Stopped(Exception):  # noqa: N818 - ends a validation, is not an error
    """A stop was requested during a validation."""


@dataclasses.dataclass(eq=False)
class TrainingRun:
    """The training loop of a call, ready for its first step.

    Attributes:
        run: run directory; a new run in a dry run is not on disk.
        trainer: model in training, at the step of `state`.
        state: new state, or the state in the checkpoint that the trainer was restored from.
        text: training text.
        heldout: heldout text, or None.
        settings: settings of the call.
        schedule: steps of the call.
        reporter: receives each step and validation.
        asked_to_stop: called after every step and during validations; returns true to stop.
        until: deadline, in seconds of `time.monotonic`.
        stop_reason: reason of this worker to stop, or None.
        saved: prefix of the last checkpoint saved, or None.
    """

    run: directory.RunDirectory
    trainer: Trainer
    state: RunState
    text: corpus.Text
    heldout: corpus.Text | None
    settings: TrainingSettings
    schedule: Schedule
    reporter: Reporter
    asked_to_stop: Callable[[], bool] = lambda: False
    until: float = math.inf
    stop_reason: str | None = None
    saved: Path | None = None
    _is_changed: bool = False
    _n_windows: int = 0
    _position: stream.Position | None = None  # after the last step
    _last_save: float = dataclasses.field(default_factory=time.monotonic)
    _last_question: float | None = None  # the first step, which is compiled, does not count
    _longest_pause: float = 0.0  # between two questions: a step, a save or both
    _log: RunLog | None = None  # of the chief

    @functools.cached_property
    def scorer(self) -> scoring.Scorer:
        """Scorer of the model."""
        return scoring.Scorer(self.trainer.model, self.text.vocabulary)

    def batches(self, position: stream.Position | None = None) -> Iterator[pipeline.TrainingBatch]:
        """Read batches of the training text from a position, or from the beginning."""
        trainer, settings, worker = self.trainer, self.settings, self.trainer.workers.worker
        # A restart reads the text in another order than the run before.
        seed = trainer.seed + self.state.first_step
        order = stream.Order(
            settings.shuffle,
            seed,
            settings.shuffle_buffer,
            trainer.options.passage_tokens,
            part=worker.index,
            n_parts=worker.n_workers,
        )
        files, vocabulary, n_parts = self.text.counts.shards, self.text.vocabulary, trainer.n_parts
        return background.prefetch(
            pipeline.training_batches(
                files, vocabulary, trainer.options, order, n_replicas=n_parts, start=position
            )
        )

    def train(self) -> Outcome:
        """Train to the end of the schedule or until told to stop, and save a checkpoint at the end.

        Raises:
            DataError: the text cannot be read, or has changed; the steps before are saved.
            DivergenceError: the training diverged; no later checkpoint is saved.
            CheckpointError: the run directory cannot be written; or, at the end, a later command could not
                read it.
        """
        if not self.trainer.workers.worker.is_chief:
            return self._train()
        with contextlib.closing(RunLog(self.run.path, self.state.log_bytes)) as self._log:
            outcome = self._train()
        directory.RunDirectory.open(self.run.path).latest(read=False)
        return outcome

    def _train(self) -> Outcome:
        state, worker = self.state, self.trainer.workers.worker
        batches = self.batches(state.positions[worker.index] if state.positions else None)
        steps = training_steps(self.trainer, batches, self.schedule.n_steps, state.first_step, state.n_done)
        try:
            while True:
                is_best = state.must_evaluate and self._validate()
                outcome = self.end()
                if state.must_evaluate or (not outcome and self._position and self.should_stop()):
                    outcome = Outcome.STOPPED
                if self._is_changed and (outcome or is_best or self._save_is_due()):
                    self._save()
                if outcome is not None:
                    return outcome
                report = next(steps)
                self._guard(report)
                self._count(report)
        except DataError as error:  # the text was changed or removed; the steps before are valid
            if self._is_changed and worker.n_workers == 1:  # other workers may be at another step
                self._save()
            if self.saved is None:
                raise
            raise DataError(
                f"{error}; saved: {self.saved}; continue with resume=True on the original text, or with "
                "`bilm restart` on the new one"
            ) from error

    def end(self) -> Outcome | None:
        """Return the outcome if the schedule is complete or `patience` ran out; None otherwise."""
        state, patience = self.state, self.settings.patience
        if state.n_done >= self.schedule.n_steps:
            return Outcome.FINISHED
        return Outcome.NO_GAIN if patience is not None and state.n_without_gain >= patience else None

    def _guard(self, report: meter.StepReport) -> None:
        """Raise an error if loss or gradient norm is not finite, and save the text of the step to a file."""
        if report.is_finite or report.is_skipped:
            return
        vocabulary = self.text.vocabulary
        lines = [line for part in report.batch.parts for line in pipeline.batch_lines(part, vocabulary)]
        worker = self.trainer.workers.worker
        aside = self.run.path / f"{DIVERGED}{report.step}{'' if worker.is_chief else f'-{worker.index}'}.txt"
        with contextlib.suppress(OSError), atomic.writing(aside) as (file,):  # the disk may be full
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        where = f"; its text is in {aside}" if aside.exists() else ""
        raise DivergenceError(
            f"training diverged at step {report.step:,}: loss {report.loss:g}, gradient norm "
            f"{report.gradient_norm:g}{where}. Try a smaller learning_rate than "
            f"{self.trainer.options.step_size:g}"
            + ("" if self.saved is None else f"; the last checkpoint is {self.saved}")
        )

    def _count(self, report: meter.StepReport) -> None:
        state, settings = self.state, self.settings
        state.n_done, state.n_tokens = report.n_done, state.n_tokens + report.n_tokens
        self._position = report.batch.position
        state.loss_scale = self.trainer.loss_scale
        self._is_changed = True
        is_last = state.n_done == self.schedule.n_steps
        if not report.is_skipped:  # a skipped step has meaningless numbers
            state.train_perplexity = report.perplexity
            state.meter.add(report)
        if state.meter.n_steps and (state.n_done % settings.log_every == 0 or is_last):
            sampled = self.schedule.sampled
            self._record(records.TrainRecord.from_meter(state.meter, **self._progress, sampled=sampled))
            state.meter = meter.Meter()
        every = settings.histograms_every
        if every and state.n_done % every == 0 and self._log is not None:
            self._log.write_histograms(report.step, self.trainer.model.named_weights())
        if self.heldout is not None:
            is_epoch = settings.eval_every == "epoch"
            eval_every = self.schedule.steps_per_epoch if is_epoch else int(settings.eval_every)
            state.must_evaluate = state.n_done % eval_every == 0 or is_last
        self.reporter.step(report)

    @property
    def _progress(self) -> dict[str, Any]:
        """Fields common to all records."""
        epoch = self.state.n_done / self.schedule.steps_per_epoch
        return {"step": self.state.step, "epoch": epoch, "tokens": self.state.n_tokens}

    def _validate(self) -> bool:
        """Score the heldout text; return true if it is the best result so far. Records nothing if stopped."""
        heldout = self.heldout
        if heldout is None:
            return False
        state, started = self.state, time.monotonic()
        try:
            scored = self._score(heldout.sentences(), heldout.counts.n_tokens)
            train_slice = self._score(self._train_slice, sum(len(part.ids) for part in self._train_slice))
        except Stopped:
            return False
        # Workers on different hardware may differ in the last bits.
        perplexity = self.trainer.workers.mean(scored.perplexities.perplexity)
        is_best = math.isfinite(perplexity) and (state.best is None or perplexity < state.best.perplexity)
        if is_best:
            state.best = Best(state.step, perplexity)
        state.n_without_gain = 0 if is_best else state.n_without_gain + 1
        state.must_evaluate = False
        self._is_changed = True
        record = records.HeldoutRecord(
            **self._progress,
            **scored.perplexities._replace(perplexity=perplexity)._asdict(),
            train_perplexity=train_slice.perplexities.perplexity,
            best=is_best,
            seconds=time.monotonic() - started,
            time=time.time(),
        )
        self._record(record)
        self.reporter.heldout(record)
        return is_best

    @functools.cached_property
    def _train_slice(self) -> list[stream.Sentences]:
        """Sentences at equal distances in the training text."""
        text = self.text
        return [*text.sentences(every=-(-text.counts.n_tokens // _SLICE_TOKENS))]

    def _score(self, parts: Iterable[stream.Sentences], n_tokens: int) -> scoring.Evaluation:
        """Score a text of about `n_tokens` tokens, and report the progress.

        Raises:
            Stopped: a stop was requested.
        """
        self.reporter.scored(0, n_tokens)
        return self.scorer.evaluate(parts, functools.partial(self._on_window, n_tokens))

    def _on_window(self, n_tokens: int, n_scored: int) -> None:
        self.reporter.scored(n_scored, n_tokens)
        self._n_windows += 1
        # Workers wait for each other to agree, so they ask less often.
        is_asked = self.trainer.workers.worker.n_workers == 1 or self._n_windows % 16 == 0
        if is_asked and self.should_stop():
            raise Stopped

    def should_stop(self) -> bool:
        """Return true if this worker or another should stop: on request, or because its time is nearly over.

        The margin before the deadline is the longest time between two questions so far.
        """
        now = time.monotonic()
        self._longest_pause = max(self._longest_pause, now - (self._last_question or now))
        self._last_question = now
        if self.asked_to_stop():
            self.stop_reason = self.stop_reason or "was asked to"
        if now + self._longest_pause >= self.until:
            self.stop_reason = self.stop_reason or "the time allowed by `max_time` is nearly over"
        return self.trainer.workers.any(self.stop_reason is not None)

    def _save_is_due(self) -> bool:
        every = self.settings.save_every
        if isinstance(every, int):
            return self.state.n_done % every == 0
        return self.trainer.workers.any(
            time.monotonic() - self._last_save >= 60 * float(every.removesuffix("m"))
        )

    def _record(self, record: records.TrainRecord | records.HeldoutRecord) -> None:
        if self._log is not None:
            self._log.write(record)

    def _save(self) -> None:
        """Gather the state of all workers; the chief writes it as a checkpoint."""
        state = self.state
        if self._position is not None:
            position = dataclasses.asdict(stream.Position(self._position.place, [*self._position.rows]))
            gathered = self.trainer.workers.gather_json(position)
            state.positions = [
                json_objects.JsonObject("", values).read_as(stream.Position) for values in gathered
            ]
        lstm_states = self.trainer.workers.gather_states(self.trainer.states)
        self._last_save, self._is_changed = time.monotonic(), False
        if self._log is not None:
            state.log_bytes = self._log.sync()
            best = None if state.best is None else state.best.step
            self.run.save(
                self.trainer.model,
                self.trainer.optimizer,
                state.step,
                state.train_perplexity,
                state.tensors(lstm_states),
                obsolete=self.run.obsolete(self.settings.keep, state.first_step, state.step, {best}),
            )
            self._log.require_in_place()  # the directory may have been moved while saving
        self.saved = self.run.index.prefix(state.step)
