"""Export of a model's weights to files for embedding."""

import json
import re
from pathlib import Path

from bilm.errors import ArgumentError, BilmError, DataError, WeightsError, checked
from bilm.io import PathLike, atomic, messages, outputs
from bilm.options import Options
from bilm.options.options_file import read_options
from bilm.run_directory.files import vocabulary_files
from bilm.run_directory.model_source import ModelArguments, is_run
from bilm.runs.model_card import CARD_NAME, model_card
from bilm.runs.reporter import DumpResult
from bilm.weights import distribution
from bilm.weights.distribution import OPTIONS_NAME, VOCABULARY_NAME, WEIGHTS_NAME
from bilm.weights.hdf5_file import write_hdf5


@checked
def dump_weights(
    save_dir: PathLike | None = None,
    outfile: PathLike | None = None,
    *,
    model: PathLike | None = None,
    model_dir: PathLike | None = None,
    vocab_file: PathLike | None = None,
    checkpoint: str | int | None = None,
    with_softmax: bool = False,
    language: str | None = None,
    license: str | None = None,
    description: str | None = None,
    overwrite: bool = False,
) -> DumpResult:
    """Write the weights for embedding to an HDF5 file, and the options to a JSON file.

    With `model_dir`, the directory gets ``model.hdf5``, ``options.json`` and ``vocab.txt``, as models are
    distributed and as simple_elmo reads them, and ``README.md``, a model card for model hubs, with the size,
    the training and the heldout perplexity of the model.

    With `outfile`, the options for inference, with 262 characters, are written to ``options.json`` beside the
    weights; where that file belongs to a run or to other weights, to ``NAME.options.json`` for ``NAME.hdf5``.

    Args:
        save_dir: run directory of bilm or bilm-tf.
        outfile: HDF5 file to write.
        model: path of a model, instead of `save_dir`: a run directory, or dumped weights as a folder, ZIP
            archive or file.
        model_dir: directory to write, instead of `outfile`.
        vocab_file: vocabulary of the model, with `model_dir`; None for the run's copy, or the one that comes
            with `model`.
        checkpoint: ``"latest"`` (the default), ``"best"``, a step or a name, see `RunDirectory.choose`.
        with_softmax: write the softmax, too.
        language: language code for the card, such as ``"fi"``, with `model_dir`.
        license: licence for the card, such as ``"cc-by-4.0"``, with `model_dir`.
        description: description of the model and its text for the card, in Markdown, with `model_dir`.
        overwrite: replace existing files, the card among them; a directory only if it holds nothing but a
            model that bilm wrote.

    Raises:
        ArgumentError: arguments are missing or exclude each other.
        BilmError: the model cannot be read, or something would be lost.

    Example:
        >>> import bilm
        >>> dump = bilm.dump_weights("run", "dump.hdf5", overwrite=True)
        >>> str(dump.weight_file), str(dump.options_file)
        ('dump.hdf5', 'options.json')
    """
    if (outfile is None) == (model_dir is None):
        raise ArgumentError("give one of `outfile` and `model_dir`")
    about = {"language": language, "license": license, "description": description}
    for name, value in {"vocab_file": vocab_file, **about}.items():
        if outfile is not None and value is not None:
            raise ArgumentError(f"`{name}` is for `model_dir`")
    for name in ("language", "license"):
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]*", str(about[name] or "none")):
            raise ArgumentError(f"`{name}` is {about[name]!r:.80}; give it as model hubs do: fi, cc-by-4.0")
    stored = ModelArguments(model, save_dir, checkpoint=checkpoint).open(takes_files=False)
    inputs = [model, save_dir, vocab_file, *stored.files]
    vocabulary, text = None, _options_text(stored.options)
    if outfile is not None:
        file = Path(outfile)
        options_file, beside = options_beside(file, stored.options)
        for output in (file, *beside):
            outputs.check_output(output, overwrite, inputs)
    else:
        directory = Path(model_dir or "")
        file, options_file = directory / WEIGHTS_NAME, directory / OPTIONS_NAME
        outputs.check_output(directory, overwrite, inputs, _MODEL)
        vocabulary = stored.require_vocabulary(vocab_file, with_characters=False)
        stored.check_vocabulary(vocabulary)
        distribution.require_size(vocabulary, stored.n_predicted, stored.source)
    if with_softmax and stored.n_predicted is None:
        raise WeightsError(f"{stored.source}: has no softmax; leave out `with_softmax`")
    arrays = stored.arrays()
    names = [name for name in stored.names if name.own in arrays and (with_softmax or not name.is_softmax)]
    n_values = sum(arrays[name.own].size for name in names)
    if vocabulary is None:
        write_hdf5(file, arrays, names, beside, overwrite)
    else:
        card = model_card(stored, about, directory.resolve().name, n_values, vocabulary.size, with_softmax)
        failures = messages.os_errors_as(DataError, f"{directory}: cannot be written")
        held = atomic.writing(directory, overwrite=overwrite, inputs=inputs, kind=_MODEL)
        with failures, held as (temporary,):
            write_hdf5(temporary / WEIGHTS_NAME, arrays, names, {temporary / OPTIONS_NAME: text})
            (temporary / VOCABULARY_NAME).write_bytes(vocabulary_files(vocabulary)[VOCABULARY_NAME])
            (temporary / CARD_NAME).write_bytes(card)
    return DumpResult(
        file,
        options_file,
        stored.source,
        len(names),
        n_values,
        vocabulary_file=None if vocabulary is None else directory / VOCABULARY_NAME,
        card_file=None if vocabulary is None else directory / CARD_NAME,
        unreadable_by=unreadable_by(stored.options),
    )


def options_beside(weights: Path, options: Options) -> tuple[Path, dict[Path, str]]:
    """Return the file for the options of dumped weights, and its text by path, empty if it has this text.

    Raises:
        DataError: a path is not a file.
        WeightsError: the weights have the name of the options.
    """
    text = _options_text(options)
    outputs.require_kind(weights, outputs.FILE)
    options_file = _options_file(weights, text)
    if outputs.require_kind(options_file, outputs.FILE) == weights.resolve():
        raise WeightsError(f"{weights}: is the name of the options file; give the weights another name")
    return options_file, {} if _holds(options_file, text) else {options_file: text}


def unreadable_by(options: Options) -> dict[str, list[str]]:
    """Return the programs that cannot read the dumped weights of a model, each with the reasons."""
    lstm, cnn = options.lstm, options.char_cnn
    dim = lstm.projection_dim
    n_filters, width = (dim + 1, 50) if cnn is None else (cnn.n_filters, cnn.max_characters_per_token)
    reasons = [
        ("one direction", not options.bidirectional, "bilm-tf AllenNLP simple_elmo"),
        ("words as input", cnn is None, "AllenNLP simple_elmo"),
        (f"{lstm.n_layers} LSTM layers", lstm.n_layers > 8, "bilm-tf simple_elmo"),
        (f"{n_filters} filters for {dim} dimensions", n_filters < dim, "bilm-tf simple_elmo"),
        (f"{n_filters} filters, no projection", n_filters == dim, "AllenNLP"),
        ("LSTM without projection", not lstm.use_projection, "AllenNLP"),
        ("LSTM without skip connections", not lstm.use_skip_connections, "AllenNLP"),
        (f"{width} characters of a word, not 50", width != 50, "AllenNLP"),
    ]
    applying = [(reason, programs.split()) for reason, applies, programs in reasons if applies]
    by_program = {
        program: [reason for reason, programs in applying if program in programs]
        for program in ("bilm-tf", "AllenNLP", "simple_elmo")
    }
    return {program: why for program, why in by_program.items() if why}


def _options_text(options: Options) -> str:
    """Format the options as in the file that goes with dumped weights."""
    return json.dumps(options.to_inference_json(), indent=1) + "\n"


def _options_file(weights: Path, text: str) -> Path:
    """Choose the file for the options of weights: one that is read with them, and not another model's."""
    names = {path.name for path in weights.parent.glob("*")}
    name = distribution.options_beside(weights.name, names) or OPTIONS_NAME
    has_others = name in names and any(
        other.endswith(distribution.HDF5_ENDS) for other in names - {weights.name}
    )
    is_theirs = has_others and _rewritten(weights.with_name(name)) != text
    if name == OPTIONS_NAME and (is_theirs or is_run(weights.parent)):
        return weights.with_suffix(".options.json")
    return weights.with_name(name)


def _rewritten(options_file: Path) -> str | None:
    """Return the text that bilm would write for the options in a file; None if they cannot be read."""
    try:
        return _options_text(read_options(options_file, for_inference=True).options)
    except BilmError:
        return None


def _holds(file: Path, text: str) -> bool:
    """Return true if a file has exactly this text, as after another dump of the same model."""
    try:
        return file.read_bytes() == text.encode()
    except OSError:
        return False


def _is_ours(directory: Path) -> bool:
    """Return true if a directory contains only a model, with options exactly as bilm writes them."""
    names = (WEIGHTS_NAME, OPTIONS_NAME, VOCABULARY_NAME, CARD_NAME)
    if any(file.name not in names or file.is_symlink() or not file.is_file() for file in directory.iterdir()):
        return False
    text = _rewritten(directory / OPTIONS_NAME)
    return text is not None and _holds(directory / OPTIONS_NAME, text)


_MODEL = outputs.Kind("a model", _is_ours)
