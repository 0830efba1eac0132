"""``bilm dump-weights``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bilm.atomic import replacing
from bilm.cli import shared
from bilm.cli.quiet import import_tensorflow
from bilm.errors import WeightsError


@click.command()
@shared.save_dir
@shared.checkpoint
@click.option("--outfile", type=shared.FILE, required=True, help="HDF5 file to write.")
@click.option("--with-softmax", is_flag=True, help="Write the softmax too.")
@shared.overwrite
def dump_weights(save_dir: Path, which: str, outfile: Path, with_softmax: bool, overwrite: bool) -> None:
    """Write the weights for embedding, as HDF5, and the options that go with them.

    The options, with the 262 characters of inference, go to options.json beside the weights; where
    that name is a run's own, to the weights' name with .options.json in place of its ending.
    """
    import_tensorflow()
    from bilm.checkpoint import RunDirectory
    from bilm.weights.files import write_hdf5

    run = RunDirectory.open(save_dir)
    text = json.dumps(run.options.to_inference_json(), indent=1) + "\n"
    options_file = _options_file(outfile)
    if outfile == options_file:
        raise WeightsError(f"{outfile}: is the name of the options; give the weights another")
    if outfile.is_dir():
        raise WeightsError(f"{outfile}: is a directory; give the name of the file to write")
    for file in (outfile, options_file):
        shared.refuse_existing(file, overwrite or (file == options_file and _holds(file, text)))
    checkpoint = run.choose(which)
    names = [name for name in run.names if with_softmax or not name.is_softmax]
    weights = checkpoint.weights(run.names)
    try:
        with replacing(options_file) as file:
            file.write_text(text)
            write_hdf5(outfile, weights, names)  # first of the two to get its name, both or neither
    except OSError as error:
        raise WeightsError(f"{options_file}: cannot be written: {error.strerror or error}") from error
    n_values = sum(weights[name.own].size for name in names)
    click.echo(
        f"{checkpoint.prefix} -> {outfile}: {len(names)} arrays, {n_values:,} values, read back and equal"
    )
    click.echo(f"options -> {options_file}")


def _holds(file: Path, text: str) -> bool:
    """Whether a file is the text already, as it is after another dump of the same model."""
    try:
        return file.read_bytes() == text.encode()
    except OSError:
        return False


def _options_file(outfile: Path) -> Path:
    """Beside the weights, and never in the place of a run's own options."""
    beside = outfile.with_name("options.json")
    is_run = (outfile.parent / "checkpoint").exists()
    return outfile.with_suffix(".options.json") if is_run else beside
