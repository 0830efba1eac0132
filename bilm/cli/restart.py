"""``bilm restart``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from bilm.cli import shared
from bilm.cli.jobs import (
    Schedule,
    load_run_vocabulary,
    make_trainer,
    read_text,
    run_training,
    steps_per_epoch,
)
from bilm.cli.quiet import import_tensorflow
from bilm.errors import OptionsError

# What makes another model of it cannot change between checkpoint and restart.
_FIXED = ("lstm", "char_cnn", "bidirectional", "n_tokens_vocab", "share_embedding_softmax")


@click.command()
@shared.text_files("train")
@shared.vocab_file(required=False)
@shared.save_dir
@shared.training_flags
def restart(
    prefixes: tuple[str, ...],
    more: tuple[str, ...],
    vocab_file: Path | None,
    save_dir: Path,
    changes: tuple[str, ...],
    max_steps: int | None,
    save_every: int,
    seed: int,
    shuffle: bool,
    n_gpus: int,
    **named: Any,  # noqa: ANN401
) -> None:
    """Go on training a run, on the same text or another.

    Starts from the newest checkpoint with its weights, Adagrad accumulators and step; the run's
    options hold unless a flag says otherwise. Takes bilm-tf's directories too.
    """
    import_tensorflow()
    from bilm.checkpoint import RunDirectory

    run = RunDirectory.open(save_dir)
    # The tokens are counted; a number in the file speaks of the corpus the run began with.
    before = dataclasses.replace(run.options, n_train_tokens=None)
    options = before.with_values(shared.option_values(changes, named))
    changed = [key for key in _FIXED if getattr(options, key) != getattr(before, key)]
    if changed:
        raise OptionsError(f"cannot change in a restart: {', '.join(changed)}; train a new run instead")
    vocabulary = load_run_vocabulary(shared.run_vocabulary_file(run, vocab_file), options)
    run.check_vocabulary(vocabulary)
    schedule = Schedule(max_steps, save_every, seed, shuffle, n_gpus)
    text = read_text([*prefixes, *more], vocabulary)
    steps_per_epoch(options, text, n_gpus)

    trainer = make_trainer(options, schedule)
    step = run.restore(trainer.model, trainer.optimizer)
    click.echo(f"restarting: {run.latest().prefix}, step {step:,}")
    run_training(run, trainer, text, schedule, first_step=step)
