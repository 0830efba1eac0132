"""``bilm plot``."""

from __future__ import annotations

from pathlib import Path

import click

from bilm.analysis.curves import X_AXES, load_curves, plot_training
from bilm.analysis.pictures import picture_format
from bilm.cli import flags
from bilm.io.outputs import check_output


@click.command()
@click.argument("runs", type=flags.FILE, nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--outfile",
    type=flags.FILE,
    required=True,
    help="File to write: .html, a page to explore, or an image, .png, .svg or .pdf.",
)
@click.option(
    "--x",
    type=click.Choice(list(X_AXES)),
    default="step",
    show_default=True,
    help="What the horizontal axis counts.",
)
@flags.overwrite
def plot(runs: tuple[Path, ...], outfile: Path, x: str, overwrite: bool) -> None:
    """Draw the perplexity of run directories, RUN..., over training.

    One colour per run. The best heldout perplexity is marked. Where the legend says so, the training
    perplexity is that of a sampled softmax, which is lower than that of the whole vocabulary.
    """
    check_output(outfile, overwrite, runs)
    picture_format(outfile)
    plot_training(load_curves(runs), outfile, x)
    click.echo(f"plot -> {outfile}")
