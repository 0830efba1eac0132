"""Export of a model's weights to files for embedding."""

import re
from pathlib import Path

from bilm.errors import ArgumentError, DataError, WeightsError, checked
from bilm.io import PathLike, atomic, outputs
from bilm.io.run_files import ARGUMENTS_FILE, TEXT_FILE
from bilm.run_directory.files import vocabulary_files
from bilm.run_directory.model_source import ModelArguments
from bilm.runs.model_card import CARD_NAME, model_card
from bilm.weights.distribution import OPTIONS_NAME, VOCABULARY_NAME, WEIGHTS_NAME
from bilm.weights.dump import DumpResult, options_beside, options_text
from bilm.weights.hdf5_file import write_hdf5


@checked
def dump_weights(
    save_dir: PathLike | None = None,
    outfile: PathLike | None = None,
    *,
    model: PathLike | None = None,
    model_dir: PathLike | None = None,
    vocab_file: PathLike | None = None,
    checkpoint: PathLike | int | None = None,
    with_softmax: bool = False,
    language: str | None = None,
    license: str | None = None,
    description: str | None = None,
    overwrite: bool = False,
) -> DumpResult:
    """Write the weights for embedding to an HDF5 file, and the options to a JSON file.

    With `model_dir`, the directory gets ``model.hdf5``, ``options.json`` and ``vocab.txt``, as models are
    distributed and as simple_elmo reads them, and ``README.md``, a model card for model hubs, with the size,
    the training and the heldout perplexity of the model; the run's ``run.toml``, which names the files
    it was trained on; and the model's ``text.json``, if it has one.

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
        >>> dump = bilm.dump_weights("run", "dump.hdf5")
        >>> str(dump.weight_file), str(dump.options_file)  # with an options.json of other weights here
        ('dump.hdf5', 'dump.options.json')
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
    stored = ModelArguments(model, save_dir, checkpoint=checkpoint).open()
    inputs = [model, save_dir, vocab_file, *stored.files]
    text, vocabulary, vocabulary_file, card_file = options_text(stored.options), None, None, None
    if outfile is not None:
        file = Path(outfile)
        options_file, beside = options_beside(file, stored.options)
        for output in (file, *beside):
            outputs.check_output(output, overwrite, inputs)
    else:
        directory = Path(model_dir or "")
        file, options_file = directory / WEIGHTS_NAME, directory / OPTIONS_NAME
        vocabulary_file, card_file = directory / VOCABULARY_NAME, directory / CARD_NAME
        outputs.check_output(directory, overwrite, inputs, _MODEL)
        vocabulary = stored.own_vocabulary(vocab_file, stored.n_predicted, with_characters=False)
    if with_softmax and stored.n_predicted is None:
        raise WeightsError(f"{stored.source}: has no softmax; leave out `with_softmax`")
    arrays = stored.arrays()
    names = [name for name in stored.names if name.own in arrays and (with_softmax or not name.is_softmax)]
    n_values = sum(arrays[name.own].size for name in names)
    if vocabulary is None:
        write_hdf5(file, arrays, names, beside, overwrite)
    else:
        card = model_card(stored, about, directory.resolve().name, n_values, vocabulary.words, with_softmax)
        held = atomic.writing(directory, overwrite=overwrite, inputs=inputs, kind=_MODEL, failure=DataError)
        with held as (temporary,):
            write_hdf5(temporary / WEIGHTS_NAME, arrays, names, {temporary / OPTIONS_NAME: text})
            (temporary / VOCABULARY_NAME).write_bytes(vocabulary_files(vocabulary)[VOCABULARY_NAME])
            (temporary / CARD_NAME).write_bytes(card)
            if (arguments := stored.path / ARGUMENTS_FILE).is_file():
                (temporary / ARGUMENTS_FILE).write_bytes(arguments.read_bytes())
            if stored.steps.content is not None:
                (temporary / TEXT_FILE).write_bytes(stored.steps.content)
    return DumpResult(file, options_file, stored.source, len(names), n_values, vocabulary_file, card_file)


_NAMES = (WEIGHTS_NAME, OPTIONS_NAME, VOCABULARY_NAME, CARD_NAME, TEXT_FILE, ARGUMENTS_FILE)
_PATTERN = "|".join(map(re.escape, _NAMES))
_MODEL = outputs.Kind("a model", outputs.only_files(_PATTERN, CARD_NAME, b'library_name: "bilm"'))
