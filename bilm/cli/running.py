"""A job on its way: begun, gone on with or resumed, to its end or until it is told to stop."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.cli.jobs import HELDOUT, TEXT, Job
from bilm.cli.progress import TrainingProgress
from bilm.cli.rehearsal import rehearse
from bilm.cli.stopping import STOPPED_STATUS, StopRequests
from bilm.errors import CheckpointError, OptionsError
from bilm.io.json_reader import JsonObject, changes
from bilm.io.reasons import is_out_of_memory, reason

if TYPE_CHECKING:
    from bilm.cli.training_flags import TrainingFlags
    from bilm.run_directory.directory import RunDirectory
    from bilm.run_directory.records import HeldoutRecord
    from bilm.run_directory.state import RunState
    from bilm.training.trainer import Trainer
    from bilm.vocabulary.vocabulary import Vocabulary
    from bilm.weights.files import CheckpointFile


def write_in(save_dir: Path, flags: TrainingFlags) -> None:
    """Be the one process that writes in a run directory, until the command ends.

    Raises:
        CheckpointError: another process does, or it cannot be written.
    """
    from bilm.run_directory.place import writing
    from bilm.training.workers import Worker

    if not flags.dry_run and Worker.from_environment().is_chief:
        click.get_current_context().with_resource(writing(save_dir))


def require_room(
    save_dir: Path, flags: TrainingFlags, vocabulary: Vocabulary, inputs: Collection[Path], overwrite: bool
) -> None:
    """Find out whether a new run has room in a directory, before the text is counted.

    Raises:
        CheckpointError: something would be lost.
    """
    from bilm.run_directory.place import room_for_run
    from bilm.run_directory.vocabulary_copy import content
    from bilm.training.workers import Worker

    if not flags.dry_run and Worker.from_environment().is_chief:
        room_for_run(save_dir, overwrite, content(vocabulary), inputs)


def interrupted_run(save_dir: Path) -> RunDirectory | None:
    """The run to be resumed in a directory; None where no checkpoint was ever saved."""
    from bilm.run_directory.checkpoints import CheckpointIndex
    from bilm.run_directory.directory import RunDirectory

    is_run = (save_dir / "options.json").exists() and CheckpointIndex(save_dir).exists()
    return RunDirectory.open(save_dir) if is_run else None


def begin(
    job: Job,
    save_dir: Path,
    trainer: Trainer,
    inputs: Collection[Path],
    first_step: int = 0,
    *,
    overwrite: bool = False,
) -> None:
    """Train in a new run directory, of which nothing is left if there is no checkpoint in the end."""
    from bilm.run_directory.directory import RunDirectory

    if job.flags.dry_run:
        rehearse(job, trainer)
        return
    state = _new_state(job, trainer, first_step)
    if not job.worker.is_chief:
        _run(job, RunDirectory(save_dir, job.options), trainer, state)
        return
    inputs = [*inputs, *job.text.files, *(job.heldout.files if job.heldout else ())]
    run = RunDirectory.create(save_dir, job.options, job.text.vocabulary, overwrite, inputs)
    try:
        _run(job, run, trainer, state)
    finally:
        run.discard_unsaved()


def go_on(job: Job, run: RunDirectory, trainer: Trainer, first_step: int) -> None:
    """Train on in a run directory that others trained in before."""
    from bilm.io.json_lines import whole_lines
    from bilm.run_directory.records import METRICS_FILE

    if job.flags.dry_run:
        rehearse(job, trainer)
        return
    if job.worker.is_chief:
        run.keep_vocabulary(job.text.vocabulary)
    state = _new_state(job, trainer, first_step)
    state.log_bytes = whole_lines(run.path / METRICS_FILE)
    _run(job, run, trainer, state)


def resume(job: Job, run: RunDirectory, checkpoint: CheckpointFile) -> None:
    """Go on where an interrupted call stopped.

    Raises:
        CheckpointError: the checkpoint is none of this call's.
        OptionsError: something that decides about the numbers has changed; names all that has.
    """
    from bilm.run_directory.state import read_lstm_states

    state = _resumable(job, run, checkpoint)
    trainer = job.make_trainer(state.settings["--seed"])
    run.restore(trainer.model, trainer.optimizer, checkpoint)
    states = read_lstm_states(checkpoint, trainer.states * job.worker.n_workers)
    own = job.worker.index * trainer.n_parts
    trainer.states = states[own : own + trainer.n_parts]
    trainer.loss_scale = state.loss_scale
    best = state.best
    click.echo(
        f"resuming: {checkpoint.prefix}, step {state.step:,}, {state.n_done:,} of {job.n_steps:,} done "
        f"(epoch {state.n_done / job.steps_per_epoch:.2f})"
        + ("" if best is None else f", best heldout perplexity {best.perplexity:.4f} at step {best.step:,}")
    )
    if job.flags.dry_run:
        rehearse(job, trainer, state.n_done)
    else:
        _run(job, run, trainer, state)


def _new_state(job: Job, trainer: Trainer, first_step: int) -> RunState:
    """The state of a call that begins."""
    from bilm.run_directory.state import RunState

    return RunState(job.settings(trainer.seed), first_step)


def _resumable(job: Job, run: RunDirectory, checkpoint: CheckpointFile) -> RunState:
    """The state in a checkpoint of this very call; for errors see `resume`."""
    from bilm.run_directory.state import read_state

    state = read_state(checkpoint)
    if state is None or state.settings.get("command") != job.kind:
        by = "by bilm-tf or an older bilm" if state is None else f"by bilm {state.settings.get('command')}"
        raise CheckpointError(
            f"{checkpoint.prefix}: written {by}, not by the bilm {job.kind} that is to be resumed; "
            "`bilm restart` goes on from it"
        )
    problems: list[str] = []
    settings = JsonObject("settings", state.settings, problems)
    seed = settings.take("--seed", "an integer", least=0, below=1 << 31)
    settings.take("options", "an object")
    if problems:
        raise CheckpointError(f"{checkpoint.prefix}: its state is damaged: {'; '.join(problems)}")
    now = job.settings(seed if job.flags.seed is None else job.flags.seed)
    if found := changes(_comparable(state.settings), _comparable(now)):
        raise OptionsError(
            f"{run.path}: cannot be resumed with {', '.join(found)}; give what the call began with, or "
            "begin another with `bilm restart`"
        )
    state.settings = now  # the text may have another place
    return state


def begun_settings(checkpoint: CheckpointFile | None, kind: str) -> Mapping[str, Any]:
    """What the call that is to be resumed began with; nothing where there is none of this kind."""
    from bilm.run_directory.state import read_state

    state = None if checkpoint is None else read_state(checkpoint)
    return state.settings if state is not None and state.settings.get("command") == kind else {}


def _comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without sections; texts, which `Job` has compared, are there or are not."""
    values = {**settings, **settings["options"]} | {
        flag: "given" for flag in (TEXT, HELDOUT) if flag in settings
    }
    del values["options"]
    return values


def _run(job: Job, run: RunDirectory, trainer: Trainer, state: RunState) -> None:
    """Train to the end of the schedule or until told to stop, which ends the process with status 75."""
    import tensorflow as tf

    from bilm.runs.log import record_call
    from bilm.runs.loop import Outcome, TrainingRun

    context = click.get_current_context()
    stop = context.ensure_object(StopRequests)
    stop.save_first()
    click.echo(f"training: {job.n_steps:,} steps, {job.steps_per_epoch:,} an epoch")
    progress = TrainingProgress(job.steps_per_epoch, job.n_steps, job.options.use_sampling, state.n_done)
    training = TrainingRun(
        run,
        trainer,
        job.text.vocabulary,
        job.plan(),
        state,
        job.validation(trainer),
        stop,
        [progress],
        _tell_heldout,
    )
    if job.worker.is_chief:
        run.make_ready(job.text.vocabulary)
        if not training.is_over:
            command = context.find_root().meta["bilm.command"]
            record_call(run.files, command, state.step, trainer.seed, job.options.to_json())
    with progress:
        try:
            outcome = training.train(lambda position: job.batches(trainer, state.first_step, position))
        except tf.errors.OpError as error:
            if job.worker.n_workers == 1 or is_out_of_memory(error):
                raise
            raise CheckpointError(
                f"worker {job.worker.index} lost the others ({reason(error)}); end what is left of the "
                "job and start it again with --resume"
            ) from error
    best = state.best
    if outcome is Outcome.NO_GAIN:
        click.echo(f"stopped early: {state.n_without_gain} validations without a better perplexity")
    if best is not None:
        where = run.index.prefix(best.step)
        click.echo(f"best: heldout perplexity {best.perplexity:.4f} at step {best.step:,}, {where}")
    if outcome is Outcome.STOPPED:
        click.echo(f"stopped at step {state.step:,}: {stop.reason}; go on with --resume")
    click.echo(f"saved: {training.saved}" if training.saved else "nothing left to do")
    if outcome is Outcome.STOPPED:
        context.exit(STOPPED_STATUS)


def _tell_heldout(record: HeldoutRecord) -> None:
    parts = [f"forward {record.forward_perplexity:.4f}"]
    if record.backward_perplexity is not None:
        parts.append(f"backward {record.backward_perplexity:.4f}")
    click.echo(
        f"step {record.step}  epoch {record.epoch:.2f}  heldout perplexity {record.perplexity:.4f} "
        f"({', '.join(parts)}), training slice {record.train_perplexity:.4f}"
        + ("  best" if record.best else "")
    )
