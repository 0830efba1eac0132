"""``bilm dump-weights``."""

from __future__ import annotations

from typing import Any

import click

from bilm.cli import flags
from bilm.cli.process import import_tensorflow


@click.command()
@flags.model
@flags.save_dir
@flags.checkpoint
@flags.weights
@click.option("--outfile", type=flags.FILE, help="HDF5 file to write.")
@click.option(
    "--model-dir",
    type=flags.FILE,
    help="Directory to write, instead of --outfile: model.hdf5, options.json and vocab.txt.",
)
@click.option(
    "--vocab-file",
    type=flags.FILE,
    show_default="the model's own",
    help="With --model-dir: vocabulary of the model.",
)
@click.option("--with-softmax", is_flag=True, help="Write the softmax too.")
@flags.overwrite
def dump_weights(which: str | None, **arguments: Any) -> None:  # noqa: ANN401
    """Write the weights for embedding, as HDF5, and the options that go with them.

    With --model-dir these are the files of a model as vectors.nlpl.eu and simple_elmo have it, in a directory
    of their own, which any command takes as --model.

    With --outfile the options, with the 262 characters of inference, are written to options.json next to the
    weights; in a run directory, which has its own options.json, to NAME.options.json for NAME.hdf5.
    """
    import_tensorflow()
    from bilm.runs import dump_weights

    result = dump_weights.dump_weights(checkpoint=which, **arguments)
    click.echo(
        f"{result.checkpoint} -> {result.weight_file}: {result.n_arrays} arrays, {result.n_values:,} values, "
        "read back and equal"
    )
    click.echo(f"options -> {result.options_file}")
    if result.vocabulary_file is not None:
        click.echo(f"vocabulary -> {result.vocabulary_file}")
