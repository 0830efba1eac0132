"""The weights of a run as a file to embed with."""

from __future__ import annotations

import json
from pathlib import Path

from bilm.errors import WeightsError
from bilm.io import PathLike
from bilm.io.outputs import check_output, require_file
from bilm.run_directory.averages import read_weights
from bilm.run_directory.directory import RunDirectory
from bilm.runs.results import DumpResult
from bilm.weights.files import write_hdf5


def dump_weights(
    save_dir: PathLike,
    outfile: PathLike,
    *,
    checkpoint: str | int = "latest",
    weights: str | None = None,
    with_softmax: bool = False,
    overwrite: bool = False,
) -> DumpResult:
    """Write the weights for embedding, as HDF5, and the options that go with them.

    The options, with the 262 characters of inference, are written to ``options.json`` next to the weights;
    in a run directory, which has its own ``options.json``, to ``NAME.options.json`` for ``NAME.hdf5``.

    Args:
        save_dir: run directory of bilm or bilm-tf.
        outfile: HDF5 file to write.
        checkpoint: ``"latest"``, ``"best"`` or a step.
        weights: ``"raw"``, or ``"averaged"`` for their averages over the training; None for the averages
            where the run has kept some.
        with_softmax: write the softmax too.
        overwrite: replace what exists already.

    Raises:
        BilmError: the run cannot be read, or something would be lost.

    Example:
        >>> import bilm
        >>> dump = bilm.dump_weights("run", "dump.hdf5", overwrite=True)
        >>> str(dump.weight_file), str(dump.options_file)
        ('dump.hdf5', 'options.json')
    """
    save_dir, outfile = Path(save_dir), Path(outfile)
    target = require_file(outfile)
    options_file = _options_file(outfile)
    if target == require_file(options_file):
        raise WeightsError(f"{outfile}: is the name of the options file; give the weights another name")
    check_output(outfile, overwrite, [save_dir])
    check_output(options_file, True, [save_dir])  # whether it may be there, its text decides
    run = RunDirectory.open(save_dir)
    text = json.dumps(run.options.to_inference_json(), indent=1) + "\n"
    check_output(options_file, overwrite or _holds(options_file, text))
    chosen = run.choose(str(checkpoint))
    names = [name for name in run.names if with_softmax or not name.is_softmax]
    arrays = read_weights(chosen, run.names, weights)
    write_hdf5(outfile, arrays, names, {options_file: text})
    n_values = sum(arrays[name.own].size for name in names)
    return DumpResult(outfile, options_file, str(chosen.prefix), len(names), n_values)


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
