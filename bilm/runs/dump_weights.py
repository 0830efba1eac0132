"""The weights of a model as files to embed with."""

from __future__ import annotations

from pathlib import Path

from bilm.errors import ArgumentError, WeightsError, require_flags
from bilm.io import PathLike
from bilm.io.outputs import check_output, refuse_inputs, require_file
from bilm.run_directory.model_source import ModelArguments, is_run
from bilm.runs.model_directory import check_model_directory, options_text, write_model_directory
from bilm.runs.results import DumpResult
from bilm.weights.distribution import OPTIONS_NAME, VOCABULARY_NAME, WEIGHTS_NAME
from bilm.weights.hdf5_file import Arrays, write_hdf5
from bilm.weights.names import WeightName
from bilm.weights.stored_model import StoredModel, require_size


def dump_weights(
    save_dir: PathLike | None = None,
    outfile: PathLike | None = None,
    *,
    model: PathLike | None = None,
    model_dir: PathLike | None = None,
    vocab_file: PathLike | None = None,
    checkpoint: str | int | None = None,
    weights: str | None = None,
    with_softmax: bool = False,
    overwrite: bool = False,
) -> DumpResult:
    """Write the weights for embedding, as HDF5, and the options that go with them.

    With `model_dir` these are ``model.hdf5``, ``options.json`` and ``vocab.txt`` in a directory of their own,
    as models are distributed and simple_elmo reads them. With `outfile` the options, with the 262 characters
    of inference, are written to ``options.json`` next to the weights; in a run directory, which has its own
    ``options.json``, to ``NAME.options.json`` for ``NAME.hdf5``.

    Args:
        save_dir: run directory of bilm or bilm-tf.
        outfile: HDF5 file to write.
        model: a model by its path, instead of `save_dir`: a run directory, or a folder, a ZIP archive or a
            file of dumped weights, which are written anew.
        model_dir: directory to write, instead of `outfile`.
        vocab_file: with `model_dir`, the vocabulary of the model; None for the run's copy, or the one that
            comes with `model`.
        checkpoint: ``"latest"`` (the default), ``"best"`` or a step.
        weights: ``"raw"``, or ``"averaged"`` for their averages over the training; None for the averages
            where the run has kept some.
        with_softmax: write the softmax too.
        overwrite: replace what exists already; a directory only if it is a model that bilm wrote.

    Raises:
        ArgumentError: arguments are missing or exclude each other.
        BilmError: the model cannot be read, or something would be lost.

    Example:
        >>> import bilm
        >>> dump = bilm.dump_weights("run", "dump.hdf5", overwrite=True)
        >>> str(dump.weight_file), str(dump.options_file)
        ('dump.hdf5', 'options.json')
    """
    require_flags(with_softmax=with_softmax, overwrite=overwrite)
    if (outfile is None) == (model_dir is None):
        raise ArgumentError("give one of `outfile` and `model_dir`")
    if outfile is not None and vocab_file is not None:
        raise ArgumentError("`vocab_file` is for `model_dir`")
    inputs = [model, save_dir, vocab_file]
    file = Path(outfile or "")
    if model_dir is not None:
        check_model_directory(model_dir, overwrite, inputs)
    else:
        options_file = _check_file(file, overwrite, inputs)
    stored = ModelArguments(model, save_dir, checkpoint=checkpoint, weights=weights).open(takes_files=False)
    if model_dir is not None:
        return _write_directory(Path(model_dir), stored, vocab_file, with_softmax, overwrite)
    for path in (file, options_file):
        refuse_inputs(path, stored.files)
    text = options_text(stored.options.to_inference_json())
    check_output(options_file, overwrite or _holds(options_file, text))
    names, arrays = _read(stored, with_softmax)
    write_hdf5(file, arrays, names, {options_file: text})
    return _result(file, options_file, stored, names, arrays)


def _read(stored: StoredModel, with_softmax: bool) -> tuple[list[WeightName], Arrays]:
    """The arrays to write, and their names."""
    if with_softmax and stored.n_predicted is None:
        raise WeightsError(f"{stored.source}: has no softmax; leave out `with_softmax`")
    arrays = stored.arrays()
    names = [name for name in stored.names if name.own in arrays and (with_softmax or not name.is_softmax)]
    return names, arrays


def _write_directory(
    directory: Path, stored: StoredModel, vocab_file: PathLike | None, with_softmax: bool, overwrite: bool
) -> DumpResult:
    check_model_directory(directory, overwrite, stored.files)
    file = None if vocab_file is None else Path(vocab_file)
    vocabulary = stored.require_vocabulary(file, with_characters=False)
    stored.check_vocabulary(vocabulary)
    require_size(vocabulary, stored.n_predicted, stored.source)
    names, arrays = _read(stored, with_softmax)
    write_model_directory(
        directory,
        {name.own: arrays[name.own] for name in names},
        names,
        stored.options.to_inference_json(),
        vocabulary,
        overwrite,
    )
    files = [directory / name for name in (WEIGHTS_NAME, OPTIONS_NAME, VOCABULARY_NAME)]
    return _result(files[0], files[1], stored, names, arrays, files[2])


def _result(
    file: Path,
    options_file: Path,
    stored: StoredModel,
    names: list[WeightName],
    arrays: Arrays,
    vocab_file: Path | None = None,
) -> DumpResult:
    n_values = sum(arrays[name.own].size for name in names)
    return DumpResult(file, options_file, stored.source, len(names), n_values, vocab_file)


def _check_file(outfile: Path, overwrite: bool, inputs: list[PathLike | None]) -> Path:
    """Check a file of weights and that of its options, whose path it returns."""
    target = require_file(outfile)
    options_file = _options_file(outfile)
    if target == require_file(options_file):
        raise WeightsError(f"{outfile}: is the name of the options file; give the weights another name")
    check_output(outfile, overwrite, inputs)
    check_output(options_file, True, inputs)  # whether it may be there, its text decides
    return options_file


def _holds(file: Path, text: str) -> bool:
    """Whether a file is the text already, as it is after another dump of the same model."""
    try:
        return file.read_bytes() == text.encode()
    except OSError:
        return False


def _options_file(outfile: Path) -> Path:
    """Beside the weights, and never in the place of a run's own options."""
    beside = outfile.with_name("options.json")
    return outfile.with_suffix(".options.json") if is_run(outfile.parent) else beside
