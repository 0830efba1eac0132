"""``bilm restart``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bilm.cli import flags
from bilm.cli.training import training_command
from bilm.options import Freeze

if TYPE_CHECKING:
    from bilm.runs.reporter import TrainingResult


@click.command(cls=flags.TextCommand)
@flags.vocab_file(required=False)
@flags.dump_or_run
@click.option("--save-to", type=flags.DIRECTORY, help="New run directory; the old one stays as it is.")
@click.option("--remap-vocab", is_flag=True, help="Carry the model over to the words of --vocab-file.")
@click.option(
    "--old-vocab-file",
    type=flags.FILE,
    show_default="the run's copy",
    help="With --remap-vocab: the vocabulary the model was trained with.",
)
@click.option(
    "--freeze",
    type=click.Choice(Freeze.values()),
    default="none",
    show_default=True,
    help="Part of the model to freeze.",
)
@training_command
def restart(which: str | None, **arguments: Any) -> TrainingResult:  # noqa: ANN401
    """Continue training a model, on the same text or another.

    Starts from a checkpoint of a run of bilm or bilm-tf, with its weights, Adagrad accumulators and
    step; the run's options apply unless a flag changes them. Dumped weights have no accumulators, no
    step and often no softmax, which is then learned from scratch.

    If the text needs another vocabulary, --remap-vocab carries the model over to it, in the new run
    directory --save-to. Words of both vocabularies keep what was learned about them.

    With --ray the workers of a Ray cluster train, as in `bilm train`.
    """
    from bilm.runs import train

    return train.restart(checkpoint=which, **arguments)
