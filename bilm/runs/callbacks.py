"""Callbacks of the training loop: what happens after a step, each with one reason to change.

The order of the loop is theirs, too: a step is checked, recorded and reported; the heldout text is scored;
the call is asked whether to stop; and all of that goes into a checkpoint.
"""

import contextlib
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from bilm.data import corpus, pipeline, stream
from bilm.errors import DivergenceError
from bilm.io import atomic, json
from bilm.run_directory import directory, records
from bilm.run_directory.state import Best, RunState
from bilm.runs.log import RunLog
from bilm.runs.reporter import Reporter
from bilm.runs.settings import TrainingSettings
from bilm.training import evaluation
from bilm.training.meter import Meter, StepReport
from bilm.training.trainer import Trainer
from bilm.training.workers import Workers

_SLICE_TOKENS = 20_000  # of the training text, scored along with the heldout text
_WINDOWS_BETWEEN_QUESTIONS = 16  # to several workers, which wait for each other to agree


class Callback(Protocol):
    """Does something after each step."""

    def after_step(self, report: StepReport) -> None:
        """Act on a step that the state of the run has counted."""


class Guard:
    """Ends a training whose loss or gradient norm is not finite, and saves the text of the step to a file.

    Args:
        path: run directory.
        text: training text.
        trainer: model in training.
        checkpoints: checkpoints of the call, for the message.
    """

    def __init__(self, path: Path, text: corpus.Text, trainer: Trainer, checkpoints: "Checkpoints") -> None:
        self._path, self._vocabulary, self._trainer = path, text.vocabulary, trainer
        self._checkpoints = checkpoints

    def after_step(self, report: StepReport) -> None:
        """Check the numbers of a step.

        Raises:
            DivergenceError: they are not finite.
        """
        if report.is_finite or report.is_skipped:
            return
        lines = [line for part in report.batch.parts for line in pipeline.batch_lines(part, self._vocabulary)]
        worker = self._trainer.workers.worker
        aside = self._path / f"diverged-{report.step}{'' if worker.is_chief else f'-{worker.index}'}.txt"
        with contextlib.suppress(OSError), atomic.writing(aside) as (file,):  # the disk may be full
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        where = f"; its text is in {aside}" if aside.exists() else ""
        saved = self._checkpoints.saved
        raise DivergenceError(
            f"training diverged at step {report.step:,}: loss {report.loss:g}, gradient norm "
            f"{report.gradient_norm:g}{where}. Try a smaller learning_rate than "
            f"{self._trainer.options.learning_rate:g}"
            + ("" if saved is None else f"; the last checkpoint is {saved}")
        )


class Records:
    """Writes the means of the steps and histograms of the weights, and reports every step.

    Args:
        state: state of the run; its meter is emptied with every record.
        trainer: model in training.
        settings: ``log_every`` and ``histograms_every``.
        log: records of the run; None for a worker that writes none.
        reporter: receives the step.
    """

    def __init__(
        self,
        state: RunState,
        trainer: Trainer,
        settings: TrainingSettings,
        log: RunLog | None,
        reporter: Reporter,
    ) -> None:
        self._state, self._trainer, self._settings = state, trainer, settings
        self._log, self._reporter = log, reporter

    def after_step(self, report: StepReport) -> None:
        """Write a record or histograms if they are due, and report the step.

        Raises:
            CheckpointError: they cannot be written.
        """
        state, settings = self._state, self._settings
        is_due = report.n_done % settings.log_every == 0 or report.n_done == report.n_steps
        if is_due and state.meter.n_steps:
            if self._log is not None:
                sampled = self._trainer.options.use_sampling
                self._log.write(records.TrainRecord.of(state.meter, **progress(state), sampled=sampled))
            state.meter = Meter()
        every = settings.histograms_every
        if every and report.n_done % every == 0 and self._log is not None:
            self._log.write_histograms(report.step, self._trainer.model.named_weights())
        self._reporter.step(report)


class Stop:
    """Decides whether to stop early: on request, or because the time is nearly over.

    Args:
        workers: all workers stop together.
        asked_to_stop: returns true to request a stop.
        until: deadline, in seconds of `time.monotonic`.

    Attributes:
        is_requested: true once any worker should stop.
        reason: reason of this worker to stop, or None.
    """

    def __init__(self, workers: Workers, asked_to_stop: Callable[[], bool], until: float) -> None:
        self._workers, self._asked_to_stop, self._until = workers, asked_to_stop, until
        self.is_requested = False
        self.reason: str | None = None
        self._last_question: float | None = None  # the first step, which is compiled, does not count
        self._longest_pause = 0.0  # between two questions: a step, a save or both

    def after_step(self, report: StepReport) -> None:  # noqa: ARG002
        """Ask whether to stop."""
        self.ask()

    def ask(self) -> bool:
        """Return true if this worker or another should stop.

        The margin before the deadline is the longest time between two questions so far.
        """
        now = time.monotonic()
        self._longest_pause = max(self._longest_pause, now - (self._last_question or now))
        self._last_question = now
        if self._asked_to_stop():
            self.reason = self.reason or "was asked to"
        if now + self._longest_pause >= self._until:
            self.reason = self.reason or "the time allowed by `max_time` is nearly over"
        self.is_requested = self._workers.any(self.reason is not None)
        return self.is_requested


class Stopped(Exception):  # noqa: N818 - ends a validation, is not an error
    """A stop was requested during a validation."""


class Validation:
    """Scores the heldout text, and a slice of the training text.

    Args:
        state: state of the run; its best validation is updated.
        trainer: model in training.
        text: training text.
        heldout: heldout text.
        log: records of the run; None for a worker that writes none.
        reporter: receives the record.
        stop: asked during a validation, which then is repeated by the call that resumes.
    """

    def __init__(
        self,
        state: RunState,
        trainer: Trainer,
        text: corpus.Text,
        heldout: corpus.Text,
        log: RunLog | None,
        reporter: Reporter,
        stop: Stop,
    ) -> None:
        self._state, self._workers, self._text, self._heldout = state, trainer.workers, text, heldout
        self._log, self._reporter, self._stop = log, reporter, stop
        self._scorer = evaluation.Scorer(trainer.model, text.vocabulary)
        self._n_windows = 0

    def at_start(self) -> None:
        """Score the text if the interrupted call was stopped before it had."""
        if self._state.must_evaluate:
            self._validate()

    def after_step(self, report: StepReport) -> None:
        """Score the text if a validation is due.

        Raises:
            CheckpointError: the record cannot be written.
            DataError: a text has changed since it was counted.
        """
        is_last = report.n_done == report.n_steps
        self._state.must_evaluate = is_last or report.n_done % self._state.plan.n_steps_to_validation == 0
        self.at_start()

    def _validate(self) -> None:
        """Score the texts and record the result, unless stopped."""
        state, started = self._state, time.monotonic()
        try:
            scored = self._score(self._heldout.sentences(), self._heldout.counts.n_tokens)
            train_slice = self._score(self._train_slice, sum(len(part.ids) for part in self._train_slice))
        except Stopped:
            return
        # Workers on different hardware may differ in the last bits.
        perplexity = self._workers.mean(scored.perplexities.perplexity)
        is_best = math.isfinite(perplexity) and (state.best is None or perplexity < state.best.perplexity)
        if is_best:
            state.best = Best(state.step, perplexity)
        state.n_without_gain = 0 if is_best else state.n_without_gain + 1
        state.must_evaluate = False
        record = records.HeldoutRecord(
            **progress(state),
            **scored.perplexities._replace(perplexity=perplexity)._asdict(),
            train_perplexity=train_slice.perplexities.perplexity,
            best=is_best,
            seconds=time.monotonic() - started,
            time=time.time(),
        )
        if self._log is not None:
            self._log.write(record)
        self._reporter.heldout(record)

    @functools.cached_property
    def _train_slice(self) -> list[stream.Sentences]:
        """Sentences at equal distances in the training text."""
        text = self._text
        return [*text.sentences(every=-(-text.counts.n_tokens // _SLICE_TOKENS))]

    def _score(self, parts: Iterable[stream.Sentences], n_tokens: int) -> evaluation.Evaluation:
        """Score a text of about `n_tokens` tokens, and report the progress.

        Raises:
            Stopped: a stop was requested.
        """
        self._reporter.scored(0, n_tokens)
        return self._scorer.evaluate(parts, functools.partial(self._on_window, n_tokens))

    def _on_window(self, n_tokens: int, n_scored: int) -> None:
        self._reporter.scored(n_scored, n_tokens)
        self._n_windows += 1
        is_alone = self._workers.worker.n_workers == 1
        if (is_alone or self._n_windows % _WINDOWS_BETWEEN_QUESTIONS == 0) and self._stop.ask():
            raise Stopped


class Checkpoints:
    """Saves checkpoints: when they are due, after the best validation, and at the end.

    Args:
        run: run directory.
        state: state of the run.
        trainer: model in training.
        settings: ``save_every`` and ``keep``.
        log: records of the run, which a checkpoint counts; None for a worker that writes none.
        is_ending: returns true if the step was the last of the call.

    Attributes:
        saved: prefix of the last checkpoint saved, or None.
    """

    def __init__(
        self,
        run: directory.RunDirectory,
        state: RunState,
        trainer: Trainer,
        settings: TrainingSettings,
        log: RunLog | None,
        is_ending: Callable[[], bool],
    ) -> None:
        self._run, self._state, self._trainer, self._settings = run, state, trainer, settings
        self._log, self._is_ending = log, is_ending
        self.saved: Path | None = None
        self._saved_at = self._point
        self._last_save = time.monotonic()

    @property
    def _point(self) -> tuple[int, bool]:
        """Point in the course of the run, which differs from the saved one if there is something to save."""
        return self._state.n_done, self._state.must_evaluate

    def at_start(self) -> None:
        """Save after a validation before the first step, see `Validation.at_start`."""
        self.after_step(None)

    def after_step(self, report: StepReport | None) -> None:
        """Save if a checkpoint is due, the validation was the best so far, or the call ends.

        Raises:
            CheckpointError: the checkpoint cannot be written.
        """
        best = self._state.best
        is_best = best is not None and best.step == self._state.step
        if self._point != self._saved_at and (self._is_ending() or is_best or self._is_due()):
            self.save(report)

    def _is_due(self) -> bool:
        every = self._settings.save_every
        if isinstance(every, int):
            return self._state.n_done % every == 0
        minutes = float(every.removesuffix("m"))
        return self._trainer.workers.any(time.monotonic() - self._last_save >= 60 * minutes)

    def save(self, report: StepReport | None) -> None:
        """Gather the state of all workers; the chief writes it as a checkpoint. Does nothing if it is saved.

        Args:
            report: report of the last step; None before the first step of the call.

        Raises:
            CheckpointError: the checkpoint cannot be written.
        """
        if self._point == self._saved_at:
            return
        state, workers = self._state, self._trainer.workers
        if report is not None:
            after = report.batch.position
            position = dataclasses.asdict(stream.Position(after.place, [*after.rows]))
            gathered = workers.gather_json(position)
            state.positions = [json.JsonObject("", values).read_as(stream.Position) for values in gathered]
        lstm_states = workers.gather_states(self._trainer.states)
        self._last_save, self._saved_at = time.monotonic(), self._point
        if self._log is not None:
            state.log_bytes = self._log.sync()
            best = None if state.best is None else state.best.step
            self._run.save(
                self._trainer.model,
                self._trainer.optimizer,
                state.step,
                state.train_perplexity,
                state.tensors(lstm_states),
                obsolete=self._run.obsolete(self._settings.keep, state.first_step, state.step, {best}),
            )
            self._log.require_in_place()  # the directory may have been moved while saving
        self.saved = self._run.index.prefix(state.step)


def progress(state: RunState) -> dict[str, Any]:
    """Return the fields common to all records."""
    epoch = state.n_done / state.plan.steps_per_epoch
    return {"step": state.step, "epoch": epoch, "tokens": state.n_tokens}
