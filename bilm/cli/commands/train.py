"""``bilm train``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from bilm.cli import flags
from bilm.cli.training import training_command
from bilm.options import PRESETS
from bilm.options.recipes import RECIPES

if TYPE_CHECKING:
    from bilm.runs.reporter import TrainingResult


@click.command(cls=flags.TextCommand)
@flags.vocab_file(required=True)
@click.option("--save-dir", type=flags.DIRECTORY, required=True, help="Run directory to write.")
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), show_default="original", help="Hyper-parameters by name."
)
@click.option("--options", type=flags.FILE, help="Hyper-parameters from an options.json.")
@click.option(
    "--recipe",
    type=click.Choice(RECIPES),
    show_default="auto with a preset",
    help="Optimizer, schedule and regularisation by name; auto chooses by the text and the passes over it.",
)
@training_command
@flags.overwrite
def train(**arguments: Any) -> TrainingResult:  # noqa: ANN401
    """Train a language model from text.

    The hyper-parameters are those of --preset or --options, unless a flag or --set changes them.
    The default is the published model, which needs a GPU and a large corpus; try `--preset tiny` first.

    SIGTERM, SIGINT (Ctrl-C), SIGUSR1, SIGHUP and the end of --max-time finish the step, save, and exit
    with status 75; the same command with --resume continues from there.

    With --ray the workers of a Ray cluster train, each with a batch of its own. All of them must have text,
    vocabulary and run directory under the same paths. A worker that is lost is started again.
    """
    from bilm.runs import train

    return train.train(**arguments)
