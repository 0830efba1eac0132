"""``bilm restart``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.changes import changes
from bilm.cli import shared
from bilm.cli.jobs import Job, load_run_vocabulary
from bilm.cli.quiet import import_tensorflow
from bilm.cli.training_flags import TrainingFlags, training_flags
from bilm.errors import OptionsError
from bilm.options import Options

if TYPE_CHECKING:
    from bilm.checkpoint import RunDirectory
    from bilm.weights.files import CheckpointFile

# What makes another model of it cannot change between checkpoint and restart.
_FIXED = ("lstm", "char_cnn", "bidirectional", "n_tokens_vocab", "share_embedding_softmax")


def _architecture(options: Options) -> dict[str, Any]:
    values = options.to_json()
    return {key: values.get(key) for key in _FIXED}


@click.command()
@shared.vocab_file(required=False)
@shared.save_dir
@shared.checkpoint
@click.option("--save-to", type=shared.FILE, help="New run directory; the old one stays as it is.")
@click.option(
    "--freeze",
    type=click.Choice(["encoder", "softmax", "none"]),
    default="none",
    show_default=True,
    help="Part of the model that is not to learn.",
)
@training_flags
def restart(
    vocab_file: Path | None,
    save_dir: Path,
    which: str,
    save_to: Path | None,
    freeze: str,
    flags: TrainingFlags,
) -> None:
    """Go on training a run, on the same text or another.

    Starts from a checkpoint with its weights, Adagrad accumulators and step; the run's options hold
    unless a flag says otherwise. Takes bilm-tf's directories too.
    """
    import_tensorflow()
    from bilm.checkpoint import RunDirectory, refuse_existing_run
    from bilm.run_log import whole_lines

    source = RunDirectory.open(save_dir)
    # The tokens are counted; a number in the file speaks of the corpus the run began with.
    before = dataclasses.replace(source.options, n_train_tokens=None)
    options = before.with_values(flags.values)
    changed = changes(_architecture(before), _architecture(options))
    if changed:
        raise OptionsError(
            f"a restart cannot change {', '.join(changed)}; train a new run, or leave the model as it is"
        )
    vocabulary = load_run_vocabulary(shared.run_vocabulary_file(source, vocab_file), options)
    source.check_vocabulary(vocabulary)
    checkpoint = source.choose(which)  # what is wrong with it should not come after an hour of reading
    if save_to is None and Path(checkpoint.prefix) != source.index.newest():
        raise OptionsError(
            f"--checkpoint {which}: {checkpoint.prefix} is not the newest of {save_dir}, whose later steps "
            "would be overwritten; give --save-to"
        )
    job = Job("restart", options, flags, vocabulary, None if freeze == "none" else freeze)
    begun = _interrupted(save_to, checkpoint, source) if flags.resume else None
    if begun is not None:
        job.resume(*begun)
        return
    if save_to is not None:
        refuse_existing_run(save_to, overwrite=flags.resume)

    trainer = job.make_trainer(job.new_seed())
    step = source.restore(trainer.model, trainer.optimizer, checkpoint)
    click.echo(f"restarting: {checkpoint.prefix}, step {step:,}")
    if flags.dry_run:
        job.rehearse(trainer)
    elif save_to is not None:
        job.begin(save_to, trainer, step)
    else:
        state = job.new_state(trainer, step)
        state.log_bytes = whole_lines(source.path)
        job.run(source, trainer, state)


def _interrupted(
    save_to: Path | None, newest: CheckpointFile, source: RunDirectory
) -> tuple[RunDirectory, CheckpointFile] | None:
    """The restart that is to be resumed; None where none was begun."""
    from bilm.checkpoint import RunDirectory
    from bilm.run_state import read_state

    if save_to is not None:
        if not (save_to / "checkpoint").exists():
            return None
        run = RunDirectory.open(save_to)
        return run, run.latest()
    state = read_state(newest)
    return None if state is None or state.settings.get("command") != "restart" else (source, newest)
