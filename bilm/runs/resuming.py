"""Resuming an interrupted run: it is found, compared with the new call, and restored."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bilm.errors import CheckpointError, OptionsError
from bilm.io.json import JsonObject, changes
from bilm.options import Options
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.files import CheckpointIndex
from bilm.run_directory.state import RunState, read_lstm_states, read_state, restore_average
from bilm.runs.jobs import HELDOUT, TEXT, XLA, Job
from bilm.runs.results import TrainingResult
from bilm.runs.running import run_job
from bilm.weights.checkpoint_file import CheckpointFile


def interrupted_run(save_dir: Path) -> RunDirectory | None:
    """The run to be resumed in a directory; None where no checkpoint was ever saved."""
    is_run = (save_dir / "options.json").exists() and CheckpointIndex(save_dir).exists()
    return RunDirectory.open(save_dir) if is_run else None


def begun_settings(checkpoint: CheckpointFile | None, kind: str) -> Mapping[str, Any]:
    """What the call that is to be resumed began with; nothing where there is none of this kind."""
    state = None if checkpoint is None else read_state(checkpoint)
    return state.settings if state is not None and state.settings.get("command") == kind else {}


def resume(job: Job, run: RunDirectory, checkpoint: CheckpointFile) -> TrainingResult:
    """Go on where an interrupted call stopped.

    Raises:
        CheckpointError: the checkpoint is none of this call's.
        OptionsError: something that decides about the numbers has changed; names all that has.
        VocabularyError: it is not the run's.
    """
    run.check_vocabulary(job.text.vocabulary)
    state = _resumable(job, run, checkpoint)
    trainer = job.make_trainer(state.settings["--seed"])
    run.restore(trainer.model, trainer.optimizer, checkpoint, weights="raw")
    if trainer.average is not None:
        restore_average(trainer.average, checkpoint)
    states = read_lstm_states(checkpoint, trainer.states * job.worker.n_workers)
    own = job.worker.index * trainer.n_parts
    trainer.states = states[own : own + trainer.n_parts]
    trainer.loss_scale = state.loss_scale
    best = state.best
    job.call.reporter.say(
        f"resuming: {checkpoint.prefix}, step {state.step:,}, {state.n_done:,} of {job.n_steps:,} done "
        f"(epoch {state.n_done / job.steps_per_epoch:.2f})"
        + ("" if best is None else f", best heldout perplexity {best.perplexity:.4f} at step {best.step:,}")
    )
    return run_job(job, run, trainer, state)


def _resumable(job: Job, run: RunDirectory, checkpoint: CheckpointFile) -> RunState:
    """The state in a checkpoint of this very call; for errors see `resume`."""
    state, kind = read_state(checkpoint), job.call.kind
    if state is None or state.settings.get("command") != kind:
        by = "by bilm-tf or an older bilm" if state is None else f"by bilm {state.settings.get('command')}"
        raise CheckpointError(
            f"{checkpoint.prefix}: written {by}, not by the bilm {kind} that is to be resumed; "
            "`bilm restart` continues from it"
        )
    problems: list[str] = []
    settings = JsonObject("settings", state.settings, problems)
    seed = settings.take("--seed", "an integer", least=0, below=1 << 31)
    settings.take("options", "an object")
    if problems:
        raise CheckpointError(f"{checkpoint.prefix}: its state is damaged: {'; '.join(problems)}")
    given = job.call.settings.seed
    now = job.settings(seed if given is None else given)
    if found := changes(_comparable(state.settings), _comparable(now)):
        raise OptionsError(
            f"{run.path}: cannot be resumed with {', '.join(found)}; give the original values, or "
            "continue with `bilm restart`"
        )
    state.settings = now  # the text may have another place
    return state


def _comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without sections, arguments as such; texts, which `Job` compared, are there or are not.

    Options that an older bilm did not know have their defaults, and it could not do without XLA.
    """
    values = {XLA: True, **settings, **Options.defaults(), **settings["options"]} | {
        text: "given" for text in (TEXT, HELDOUT) if text in settings
    }
    del values["options"]
    return {_argument(name) if name.startswith("--") else name: value for name, value in values.items()}


def _argument(flag: str) -> str:
    """``--shuffle-buffer``, as checkpoints have it, as an argument is named in messages."""
    return f"`{flag.removeprefix('--').replace('-', '_')}`"
