"""``bilm restart``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click

from bilm.cli import shared
from bilm.cli.jobs import (
    Schedule,
    load_run_vocabulary,
    make_strategy,
    make_trainer,
    read_text,
    run_training,
    steps_per_epoch,
)
from bilm.cli.quiet import import_tensorflow
from bilm.errors import OptionsError
from bilm.options import Options

# What makes another model of it cannot change between checkpoint and restart.
_FIXED = ("lstm", "char_cnn", "bidirectional", "n_tokens_vocab", "share_embedding_softmax")


def _architecture(options: Options) -> dict[str, Any]:
    values = options.to_json()
    return {key: values.get(key) for key in _FIXED}


def _changes(before: dict[str, Any], after: dict[str, Any], section: str = "") -> list[str]:
    """What differs, as ``lstm.dim (512 to 1024)``."""
    changes = []
    for key in {**before, **after}:
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            changes += _changes(old, new, f"{section}{key}.")
        elif old != new:
            changes.append(f"{section}{key} ({json.dumps(old)} to {json.dumps(new)})")
    return changes


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
    changed = _changes(_architecture(before), _architecture(options))
    if changed:
        raise OptionsError(
            f"a restart cannot change {', '.join(changed)}; train a new run, or leave the model as it is"
        )
    vocabulary = load_run_vocabulary(shared.run_vocabulary_file(run, vocab_file), options)
    run.check_vocabulary(vocabulary)
    schedule = Schedule(max_steps, save_every, seed, shuffle, n_gpus)
    checkpoint = run.latest()  # what is wrong with it should not come after an hour of reading
    strategy = make_strategy(n_gpus)
    text = read_text([*prefixes, *more], vocabulary)
    steps_per_epoch(options, text, n_gpus)

    trainer = make_trainer(options, schedule, strategy)
    step = run.restore(trainer.model, trainer.optimizer, checkpoint)
    click.echo(f"restarting: {checkpoint.prefix}, step {step:,}")
    run_training(run, trainer, text, schedule, first_step=step)
