"""Running a job, new or resumed, to its end or until it is stopped."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import tensorflow as tf

from bilm.errors import LostWorkerError
from bilm.io.json import whole_lines
from bilm.io.messages import is_out_of_memory, reason
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.records import METRICS_FILE
from bilm.run_directory.state import RunState
from bilm.runs.dry_run import dry_run
from bilm.runs.jobs import Job
from bilm.runs.log import record_call
from bilm.runs.loop import Outcome, TrainingRun
from bilm.runs.results import TrainingResult
from bilm.training.trainer import Trainer


def begin(
    job: Job,
    save_dir: Path,
    trainer: Trainer,
    inputs: Collection[Path],
    first_step: int = 0,
    *,
    overwrite: bool = False,
) -> TrainingResult:
    """Train in a new run directory, of which nothing is left if there is no checkpoint in the end."""
    state = RunState(job.settings(trainer.seed), first_step)
    if not job.call.writes:
        return run_job(job, RunDirectory(save_dir, job.options), trainer, state)
    inputs = [*inputs, *job.text.files, *(job.heldout.files if job.heldout else ())]
    run = RunDirectory.create(save_dir, job.options, job.text.vocabulary, overwrite, inputs)
    try:
        return run_job(job, run, trainer, state)
    finally:
        run.discard_unsaved()


def go_on(job: Job, run: RunDirectory, trainer: Trainer, first_step: int) -> TrainingResult:
    """Train on in a run directory that others trained in before."""
    if job.call.writes:
        run.keep_vocabulary(job.text.vocabulary)
    state = RunState(job.settings(trainer.seed), first_step)
    state.log_bytes = whole_lines(run.path / METRICS_FILE)
    return run_job(job, run, trainer, state)


def run_job(job: Job, run: RunDirectory, trainer: Trainer, state: RunState) -> TrainingResult:
    """Train to the end of the schedule or until told to stop; of a dry run only a few steps."""
    if job.call.settings.dry_run:
        estimate = dry_run(trainer, job.batches(trainer, 0, None), job.schedule(state.n_done))
        return TrainingResult(run.path, Outcome.DRY_RUN, state.step, estimate=estimate)
    reporter, stop = job.call.reporter, job.call.stop
    training = TrainingRun(
        run,
        trainer,
        job.text.vocabulary,
        job.plan(),
        state,
        job.validation(trainer),
        stop,
        reporter,
    )
    stop.begin()
    reporter.begin(job.schedule(state.n_done))
    try:
        if job.worker.is_chief:
            run.make_ready(job.text.vocabulary)
            if not training.is_over:
                record_call(run.files, job.call.command, state.step, trainer.seed, job.options.to_json())
        outcome = _train(job, training)
    finally:
        reporter.end()
    best = state.best
    return TrainingResult(
        run.path,
        outcome,
        state.step,
        saved=training.saved,
        best_perplexity=None if best is None else best.perplexity,
        best_step=None if best is None else best.step,
        best_checkpoint=None if best is None else run.index.prefix(best.step),
        n_without_gain=state.n_without_gain,
        stop_reason=(stop.reason or "another worker was asked to") if outcome is Outcome.STOPPED else None,
    )


def _train(job: Job, training: TrainingRun) -> Outcome:
    """Take the steps.

    Raises:
        LostWorkerError: another worker is gone.
    """
    trainer, first_step = training.trainer, training.state.first_step
    try:
        return training.train(lambda position: job.batches(trainer, first_step, position))
    except tf.errors.OpError as error:
        if job.worker.n_workers == 1 or is_out_of_memory(error):
            raise
        raise LostWorkerError(
            f"worker {job.worker.index} lost contact with the others ({reason(error)}); stop the remaining "
            "workers and start the job again with resume=True"
        ) from error
