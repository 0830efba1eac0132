"""The training loop, from the first step or the resumed one to the end.

Training, restarting and resuming share this loop: steps, validation, records, checkpoints, and an end
that may come early. All state that determines the numbers is kept in `RunState` and saved with every
checkpoint, so that a resumed run gives the same bits as an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bilm.data.batch import batch_lines
from bilm.data.pipeline import Batch, TrainingBatch
from bilm.data.position import Position
from bilm.errors import CheckpointError, DataError, DivergenceError
from bilm.io.atomic import replacing
from bilm.io.messages import os_errors_as
from bilm.models.encoder import States
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.records import HeldoutRecord, TrainRecord
from bilm.run_directory.state import Best, RunState, average_tensors
from bilm.runs.log import RunLog
from bilm.runs.reporter import Reporter
from bilm.runs.settings import Interval
from bilm.training.evaluation import Evaluation, Evaluator
from bilm.training.meter import Meter, Perplexities, mean
from bilm.training.trainer import StepReport, Trainer, training_steps
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.transfer import named_weights


class Outcome(str, enum.Enum):
    """How a call ended; equal to its word."""

    FINISHED = "finished"
    NO_GAIN = "no gain"
    STOPPED = "stopped"
    DRY_RUN = "dry run"

    __str__ = str.__str__


@dataclass(frozen=True)
class Plan:
    """What a call is to do.

    Attributes:
        n_steps: steps of the call.
        steps_per_epoch: steps that make an epoch.
        save_every: steps or minutes between checkpoints.
        keep: checkpoints that stay, beside the best.
        eval_every: steps between validations; the last step has one as well.
        patience: end after so many validations without a new best.
        log_every: steps in a line of the record.
        histograms_every: steps between histograms of the weights; None for none.
    """

    n_steps: int
    steps_per_epoch: int
    save_every: Interval
    keep: int = 2
    eval_every: int | None = None
    patience: int | None = None
    log_every: int = 20
    histograms_every: int | None = None


Batches = Callable[[], Iterator[Batch]]


@dataclass(frozen=True)
class Validation:
    """Heldout text, and a slice of the training text, whose difference shows overfitting."""

    evaluator: Evaluator
    heldout: Batches
    train_slice: Batches

    def scores(self, on_window: Callable[[int], None]) -> tuple[Evaluation, Evaluation]:
        """The scores of the heldout text and of the slice.

        Args:
            on_window: see `Evaluator.evaluate`; what it raises ends the validation.
        """
        return (
            self.evaluator.evaluate(self.heldout(), on_window),
            self.evaluator.evaluate(self.train_slice(), on_window),
        )


_LOG = logging.getLogger(__name__)
_KEPT = ("options.json", "vocab.txt", "vocab.txt.sha256")


class RunGuard:
    """Knows the directory that a training began in, and what has to be there for the run to be read.

    Args:
        run: that is written.

    Raises:
        CheckpointError: it cannot be read.
    """

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        with os_errors_as(CheckpointError, f"{run.path}: cannot be read"):
            # Held open, so that no other directory gets its number.
            self._handle = os.open(run.path, os.O_RDONLY | os.O_DIRECTORY)
            kept = [run.path / name for name in _KEPT]
            self._kept = {file.name: file.read_bytes() for file in kept if file.is_file()}

    def check(self) -> None:
        """Make sure that what is written belongs to a run; write again what was removed of it.

        Raises:
            CheckpointError: the directory is another than in the beginning, or cannot be written.
        """
        path = self.run.path
        with os_errors_as(CheckpointError, f"{path}: cannot be written"):
            if not self._is_in_place():
                raise CheckpointError(
                    f"{path}: is not the directory in which this run began, which was moved or removed; "
                    "nothing was saved since. Put it back, and continue with resume=True"
                )
            for name, content in self._kept.items():
                if not (path / name).exists():
                    _LOG.warning("%s: removed during training; written again", path / name)
                    self.run.write(name, content)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self.run.path.stat(), os.fstat(self._handle))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def __enter__(self) -> RunGuard:
        """Watch."""
        return self

    def __exit__(self, *error: object) -> None:
        """Watch no longer."""
        os.close(self._handle)


class Stopped(Exception):  # noqa: N818 - a way out of the loops below, not an error
    """Somebody asked for an end."""


class TrainingRun:
    """A call of training.

    Args:
        run: where everything is written.
        trainer: the model, with the state of `state`.
        vocabulary: to write out the text of a batch that broke the training.
        plan: see `Plan`.
        state: a new one, or that of the checkpoint the trainer was restored from.
        validation: needed if the plan has validations.
        should_stop: asked after every step, and within validations.
        reporter: told of each step and validation; None for the log.
    """

    def __init__(
        self,
        run: RunDirectory,
        trainer: Trainer,
        vocabulary: Vocabulary,
        plan: Plan,
        state: RunState,
        validation: Validation | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        reporter: Reporter | None = None,
    ) -> None:
        self.run = run
        self.trainer = trainer
        self.vocabulary = vocabulary
        self.plan = plan
        self.state = state
        self.validation = validation
        self.cluster = trainer.workers
        self._should_stop = should_stop
        self.reporter = reporter or Reporter()
        self.saved: Path | None = None
        self._is_changed = False
        self._n_windows = 0
        self._position: Position | None = None
        self._last_save = time.monotonic()
        self.log: RunLog | None = None
        self.guard: RunGuard | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return self._end() is not None

    def train(self, batches: Callable[[Position | None], Iterator[TrainingBatch]]) -> Outcome:
        """Go on to the end of the plan, or until told to stop; what was learned is saved then.

        Args:
            batches: opens the text after a position, or at its beginning.

        Raises:
            DataError: the text cannot be read, or is not what it was; what was learned before is saved.
            DivergenceError: it diverged; nothing is saved after the step that was the last good one.
            CheckpointError: the run directory cannot be written, or what is in it cannot be read in the end.
        """
        if not self.cluster.worker.is_chief:
            return self._train(batches)
        with RunGuard(self.run) as self.guard, contextlib.closing(self._begin_log()) as self.log:
            outcome = self._train(batches)
        self.run.check_readable()
        return outcome

    def _begin_log(self) -> RunLog:
        return RunLog(self.run.files, self.state.log_bytes)

    def _train(self, batches: Callable[[Position | None], Iterator[TrainingBatch]]) -> Outcome:
        state, plan = self.state, self.plan
        if state.must_evaluate:  # it was stopped within a validation
            self._validate()
            if state.must_evaluate:
                return Outcome.STOPPED  # again, and the checkpoint says so already
        outcome = self._end()
        if outcome is not None:
            if self._is_changed:
                self._save()
            return outcome
        position = state.positions[self.cluster.worker.index] if state.positions else None
        steps = training_steps(self.trainer, batches(position), plan.n_steps, state.first_step, state.n_done)
        try:
            return self._take(steps)
        except DataError as error:  # the text was changed or removed, which no step before it has to pay for
            raise self._saved_before(error) from error

    def _take(self, steps: Iterator[StepReport]) -> Outcome:
        """Take the steps that are left."""
        for report in steps:
            self._guard(report)
            self._count(report)
            is_best = self.state.must_evaluate and self._validate()
            outcome = self._end() or (Outcome.STOPPED if self.should_stop() else None)
            if outcome or is_best or self._save_is_due():
                self._save()
            if outcome is not None:
                return outcome
        raise AssertionError("the last step has an outcome")

    def _saved_before(self, error: DataError) -> DataError:
        """Save what was learned before the text failed; the error that says so."""
        if self._is_changed and self.cluster.worker.n_workers == 1:  # others are not at this place
            self._save()
        if self.saved is None:
            return error
        return DataError(
            f"{error}; saved: {self.saved}; continue with resume=True on the original text, or with "
            "`bilm restart` on the new one"
        )

    def _guard(self, report: StepReport) -> None:
        """Stop at a loss or gradient that is not a number, and write the text it came from aside."""
        if report.is_finite or report.is_skipped:
            return
        lines = [line for part in report.batch.parts for line in batch_lines(part, self.vocabulary)]
        worker = self.cluster.worker
        aside = self.run.path / f"diverged-{report.step}{'' if worker.is_chief else f'-{worker.index}'}.txt"
        try:
            self.run.files.claim(aside.name)
            with replacing(aside) as file:
                file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            where = f"its text is in {aside}"
        except (OSError, CheckpointError) as error:
            where = f"its text could not be written to {aside}: {getattr(error, 'strerror', None) or error}"
        raise DivergenceError(
            f"training diverged at step {report.step:,}: loss {report.loss:g}, gradient norm "
            f"{report.gradient_norm:g}; {where}. Try a smaller learning_rate than "
            f"{self.trainer.options.learning_rate:g}"
            + ("" if self.saved is None else f"; the last checkpoint is {self.saved}")
        )

    def _count(self, report: StepReport) -> None:
        state, plan = self.state, self.plan
        state.n_done, state.n_tokens = report.n_done, state.n_tokens + report.n_tokens
        self._position = report.batch.position
        state.loss_scale = self.trainer.loss_scale
        self._is_changed = True
        is_last = state.n_done == plan.n_steps
        if not report.is_skipped:  # whose numbers are none
            state.train_perplexity = report.perplexity
            state.meter.add(report)
        if state.meter.n_steps and (state.n_done % plan.log_every == 0 or is_last):
            self._record(self._train_record())
            state.meter = Meter()
        if plan.histograms_every and state.n_done % plan.histograms_every == 0 and self.log is not None:
            self.log.write_histograms(report.step, named_weights(self.trainer.model))
        state.must_evaluate = plan.eval_every is not None and (state.n_done % plan.eval_every == 0 or is_last)
        self.reporter.step(report)

    def _train_record(self) -> TrainRecord:
        state, meter = self.state, self.state.meter
        return TrainRecord(
            step=state.step,
            epoch=state.n_done / self.plan.steps_per_epoch,
            tokens=state.n_tokens,
            loss=mean(meter.direction_losses),
            **Perplexities.of(meter.direction_losses)._asdict(),
            sampled=self.trainer.options.use_sampling,
            gradient_norm=meter.norms / meter.n_steps,
            learning_rate=meter.learning_rate,
            tokens_per_second=meter.n_tokens / max(meter.seconds, 1e-9),
            data_wait=100.0 * meter.wait_seconds / max(meter.seconds, 1e-9),
            time=time.time(),
        )

    def _validate(self) -> bool:
        """Score the heldout text; whether it is better than ever. Nothing is recorded if told to stop."""
        if self.validation is None:
            return False
        state, started = self.state, time.monotonic()
        average = self.trainer.average
        try:
            with contextlib.nullcontext() if average is None else average.applied():
                heldout, train_slice = self.validation.scores(self._on_window)
        except Stopped:
            return False
        found = heldout.perplexities
        found = found._replace(
            perplexity=self.cluster.mean(found.perplexity)
        )  # workers of other make may differ in the last bits
        is_best = math.isfinite(found.perplexity) and (
            state.best is None or found.perplexity < state.best.perplexity
        )
        if is_best:
            state.best = Best(state.step, found.perplexity)
        state.n_without_gain = 0 if is_best else state.n_without_gain + 1
        state.must_evaluate = False
        self._is_changed = True
        record = HeldoutRecord(
            step=state.step,
            epoch=state.n_done / self.plan.steps_per_epoch,
            tokens=state.n_tokens,
            **found._asdict(),
            train_perplexity=train_slice.perplexities.perplexity,
            best=is_best,
            seconds=time.monotonic() - started,
            time=time.time(),
        )
        self._record(record)
        self.reporter.heldout(record)
        return is_best

    def _on_window(self, n_scored: int) -> None:
        self._n_windows += 1
        # Workers have to wait for each other to agree, so they do not ask so often.
        is_asked = self.cluster.worker.n_workers == 1 or self._n_windows % 16 == 0
        if is_asked and self.should_stop():
            raise Stopped

    def should_stop(self) -> bool:
        """Whether this worker or another was asked to."""
        return self.cluster.any(self._should_stop())

    def _save_is_due(self) -> bool:
        due = self.plan.save_every.is_due(self.state.n_done, time.monotonic() - self._last_save)
        return due if self.plan.save_every.minutes is None else self.cluster.any(due)

    def _record(self, record: TrainRecord | HeldoutRecord) -> None:
        if self.log is not None:
            self.log.write(record)

    def _end(self) -> Outcome | None:
        """How the call has come to its end; None if it has not."""
        state, plan = self.state, self.plan
        if state.must_evaluate:
            return None
        if state.n_done >= plan.n_steps:
            return Outcome.FINISHED
        hopeless = plan.patience is not None and state.n_without_gain >= plan.patience
        return Outcome.NO_GAIN if hopeless else None

    def _save(self) -> None:
        """Write a checkpoint: what every worker knows, by the chief."""
        state = self.state
        if self._position is not None:
            state.positions = [*map(Position.from_json, self.cluster.gather_json(self._position.to_json()))]
        lstm_states = self.cluster.gather_states(self.trainer.states)
        self._last_save, self._is_changed = time.monotonic(), False
        if self.log is not None and self.guard is not None:
            self._write_checkpoint(self.log, self.guard, lstm_states)
        self.saved = self.run.index.prefix(state.step)

    def _write_checkpoint(self, log: RunLog, guard: RunGuard, lstm_states: tuple[States, ...]) -> None:
        state = self.state
        guard.check()
        log.sync()
        state.log_bytes = log.n_bytes
        model, optimizer = self.trainer.model, self.trainer.optimizer
        extras = state.tensors(lstm_states) | average_tensors(self.trainer.average)
        self.run.save(model, optimizer, state.step, state.train_perplexity, extras)
        guard.check()  # the directory may have been moved meanwhile
        best = None if state.best is None else state.best.step
        self.run.prune(self.plan.keep, state.first_step, state.step, {best})
