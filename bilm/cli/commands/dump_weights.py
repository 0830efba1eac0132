"""``bilm dump-weights``."""

from __future__ import annotations

from pathlib import Path

import click

from bilm.cli import shared
from bilm.cli.quiet import import_tensorflow


@click.command()
@shared.save_dir
@shared.checkpoint
@shared.weights
@click.option("--outfile", type=shared.FILE, required=True, help="HDF5 file to write.")
@click.option("--with-softmax", is_flag=True, help="Write the softmax too.")
@shared.overwrite
def dump_weights(
    save_dir: Path, which: str, weights: str | None, outfile: Path, with_softmax: bool, overwrite: bool
) -> None:
    """Write the weights for embedding, as HDF5, and the options that go with them.

    The options, with the 262 characters of inference, are written to options.json next to the weights;
    in a run directory, which has its own options.json, to NAME.options.json for NAME.hdf5.
    """
    import_tensorflow()
    from bilm.runs import dump_weights

    result = dump_weights.dump_weights(
        save_dir, outfile, checkpoint=which, weights=weights, with_softmax=with_softmax, overwrite=overwrite
    )
    click.echo(
        f"{result.checkpoint} -> {outfile}: {result.n_arrays} arrays, {result.n_values:,} values, read back "
        "and equal"
    )
    click.echo(f"options -> {result.options_file}")
