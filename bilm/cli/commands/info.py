"""``bilm info``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bilm.cli import flags
from bilm.cli.process import import_tensorflow
from bilm.io.messages import printable


@click.command()
@click.argument("path", type=flags.FILE)
@click.option("--arrays", "with_arrays", is_flag=True, help="List every array with its shape.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def info(path: Path, with_arrays: bool, as_json: bool) -> None:
    """Describe PATH, any model: a run directory, a folder or ZIP of a model, or an HDF5 weight file.

    Prints parameters by part, hyper-parameters, checkpoints and training progress; for a weight file
    without options next to it, what can be inferred from the shapes of its arrays.
    """
    from bilm.analysis.info import describe  # h5py, which completion can do without

    if path.is_dir():
        import_tensorflow()
    description = describe(path)
    if as_json:
        click.echo(json.dumps(description.facts))
        return
    lines = [*description.lines]
    if with_arrays:
        lines.append("arrays:")
        arrays = description.facts["arrays"]
        width = max(len(array["name"]) for array in arrays)
        lines += [f"  {one['name']:<{width}}  {' x '.join(f'{n:,}' for n in one['shape'])}" for one in arrays]
    for line in lines:
        click.echo(printable(line))
