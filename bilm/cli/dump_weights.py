"""``bilm dump-weights``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bilm.cli import shared
from bilm.cli.quiet import import_tensorflow
from bilm.errors import WeightsError
from bilm.io.outputs import check_output, require_file


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
    options_file = _options_file(outfile)
    if require_file(outfile) == require_file(options_file):
        raise WeightsError(f"{outfile}: is the name of the options; give the weights another")
    check_output(outfile, overwrite, [save_dir])
    check_output(options_file, True, [save_dir])  # whether it may be there, its text decides
    import_tensorflow()
    from bilm.run_directory.directory import RunDirectory
    from bilm.weights.files import write_hdf5

    run = RunDirectory.open(save_dir)
    text = json.dumps(run.options.to_inference_json(), indent=1) + "\n"
    check_output(options_file, overwrite or _holds(options_file, text))
    checkpoint = run.choose(which)
    names = [name for name in run.names if with_softmax or not name.is_softmax]
    weights = checkpoint.weights(run.names)
    write_hdf5(outfile, weights, names, {options_file: text})
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
