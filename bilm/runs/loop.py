"""The training loop of train and restart: steps, and callbacks after each.

All state that determines the numbers is in `RunState` and saved with every checkpoint, so that a resumed run
gives the same bits as an uninterrupted one.
"""

import contextlib
import dataclasses
from collections.abc import Iterator

import tensorflow as tf

from bilm.data import corpus, pipeline, stream
from bilm.errors import DataError, LostWorkerError
from bilm.io import background, messages
from bilm.run_directory import directory
from bilm.run_directory.state import RunState
from bilm.runs import callbacks
from bilm.runs.estimate import estimate, tell_size
from bilm.runs.log import RunLog, record_arguments, record_call
from bilm.runs.reporter import Outcome, TrainingResult
from bilm.runs.settings import Request
from bilm.training.trainer import Trainer, training_steps


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
    """

    request: Request
    run: directory.RunDirectory
    trainer: Trainer
    state: RunState
    text: corpus.Text
    heldout: corpus.Text | None

    def train(self) -> TrainingResult:
        """Train to the end of the schedule or until told to stop, and save a checkpoint at the end.

        A dry run takes only a few steps, and saves nothing.

        Raises:
            DataError: the text cannot be read, or has changed; the steps before are saved.
            DivergenceError: the training diverged; no later checkpoint is saved.
            CheckpointError: the run directory cannot be written; or, at the end, a later command could not
                read it.
            LostWorkerError: another worker is gone.
        """
        request, run, trainer, state = self.request, self.run, self.trainer, self.state
        settings, worker, path = request.settings, trainer.workers.worker, self.run.path
        tell_size(trainer, path, settings, request.reporter)
        if settings.dry_run:
            needed = estimate(trainer, state.plan, state.n_done, self._batches)
            return TrainingResult(request.save_dir, Outcome.DRY_RUN, state.step, estimate=needed)
        request.reporter.begin(state.plan)
        stop = callbacks.Stop(trainer.workers, request.should_stop, request.until)
        with contextlib.ExitStack() as held:
            held.callback(request.reporter.end)
            log = None
            if worker.is_chief:
                if self._outcome(stop) is None:
                    record_call(path, request.command, state.step, trainer.seed, trainer.options.to_json())
                    if request.kind == "train":
                        record_arguments(path, request.repeated(trainer.seed, trainer.options))
                log = held.enter_context(contextlib.closing(RunLog(path, state.log_bytes)))
            checkpoints = callbacks.Checkpoints(
                run, state, trainer, settings, log, lambda: self._outcome(stop) is not None
            )
            try:
                outcome = self._loop(checkpoints, stop, log)
            except tf.errors.OpError as error:
                if worker.n_workers == 1 or messages.is_out_of_memory(error):
                    raise
                raise LostWorkerError(
                    f"worker {worker.index} lost contact with the others ({messages.reason(error)}); stop "
                    "the remaining workers and start the job again with resume=True"
                ) from error
        if worker.is_chief:
            directory.RunDirectory.open(path).latest(read=False)
        best, reason = state.best, stop.reason or "another worker was asked to"
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

    def _loop(self, checkpoints: callbacks.Checkpoints, stop: callbacks.Stop, log: RunLog | None) -> Outcome:
        """Take steps until there is an outcome; the order of the callbacks matters, see their module."""
        state, trainer, text, reporter = self.state, self.trainer, self.text, self.request.reporter
        heldout = [] if self.heldout is None else [self.heldout]
        validations = [
            callbacks.Validation(state, trainer, text, one, log, reporter, stop) for one in heldout
        ]
        after_step: list[callbacks.Callback] = [
            callbacks.Guard(self.run.path, text, trainer, checkpoints),
            callbacks.Records(state, trainer, self.request.settings, log, reporter),
            *validations,
            stop,
            checkpoints,
        ]
        worker, report = trainer.workers.worker, None
        try:
            for validation in validations:
                validation.at_start()
            checkpoints.at_start()
            batches = self._batches(state.positions[worker.index] if state.positions else None)
            steps = training_steps(trainer, batches, state.plan.n_steps, state.first_step, state.n_done)
            while (outcome := self._outcome(stop)) is None:
                report = next(steps)
                state.add(report, trainer.loss_scale)
                for callback in after_step:
                    callback.after_step(report)
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

    def _outcome(self, stop: callbacks.Stop) -> Outcome | None:
        """Return the outcome of the call if it has ended, after its last validation; None otherwise."""
        state, patience = self.state, self.request.settings.patience
        if not state.must_evaluate and state.n_done >= state.plan.n_steps:
            return Outcome.FINISHED
        if not state.must_evaluate and patience is not None and state.n_without_gain >= patience:
            return Outcome.NO_GAIN
        return Outcome.STOPPED if stop.is_requested else None

    def _batches(self, position: stream.Position | None = None) -> Iterator[pipeline.TrainingBatch]:
        """Read batches of the training text from a position, or from the beginning."""
        trainer, plan, worker = self.trainer, self.state.plan, self.trainer.workers.worker
        # A restart reads the text in another order than the run before.
        seed = plan.seed + self.state.first_step
        order = stream.Order(
            plan.shuffle,
            seed,
            plan.shuffle_buffer,
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
