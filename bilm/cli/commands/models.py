"""``bilm dump-weights`` and ``bilm export``: a model in the form of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bilm.cli import flags
from bilm.cli.process import import_tensorflow


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
