"""``bilm info``, ``bilm dump-weights`` and ``bilm export``: a model described, or in another form."""

import json
from pathlib import Path
from typing import Any

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


@click.command()
@flags.whole_model
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
def dump_weights(**arguments: Any) -> None:  # noqa: ANN401
    """Write the weights for embedding, as HDF5, and the options that go with them.

    With --model-dir these are the files of a model as vectors.nlpl.eu and simple_elmo have it, in a directory
    of their own, which any command takes as --model.

    With --outfile the options, with the 262 characters of inference, are written to options.json next to the
    weights; in a run directory, which has its own options.json, to NAME.options.json for NAME.hdf5.
    """
    import_tensorflow()
    from bilm.runs import dump_weights

    result = dump_weights.dump_weights(**arguments)
    click.echo(
        f"{result.checkpoint} -> {result.weight_file}: {result.n_arrays} arrays, {result.n_values:,} values, "
        "read back and equal"
    )
    click.echo(f"options -> {result.options_file}")
    if result.vocabulary_file is not None:
        click.echo(f"vocabulary -> {result.vocabulary_file}")


@click.command()
@click.option("--saved-model", "directory", type=flags.DIRECTORY, required=True, help="Directory to write.")
@flags.embedding_model
@flags.overwrite
def export(directory: Path, model: flags.EmbeddingModel, overwrite: bool) -> None:
    """Write a TensorFlow SavedModel with the signatures and output names of TF-Hub's ELMo.

    `default` takes sentences as strings, `tokens` takes padded words and sentence lengths.
    """
    import_tensorflow()
    from bilm.models.saved_model import check_saved_model, write_saved_model

    check_saved_model(directory, overwrite, model.inputs)
    embedder = model.open()
    write_saved_model(embedder.model.encoder, directory, embedder.vocabulary, overwrite)
    outputs = [f"lstm_outputs{i}" for i in range(1, embedder.n_layers)]
    click.echo(
        f"{directory}: signatures default, tokens; outputs word_emb, {', '.join(outputs)}, elmo, default"
    )
