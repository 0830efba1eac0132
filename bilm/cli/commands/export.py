"""``bilm export``."""

from __future__ import annotations

from pathlib import Path

import click

from bilm.cli import flags
from bilm.cli.process import import_tensorflow


@click.command()
@click.option("--saved-model", "directory", type=flags.DIRECTORY, required=True, help="Directory to write.")
@flags.embedding_model
@flags.overwrite
def export(
    directory: Path,
    model: flags.EmbeddingModel,
    overwrite: bool,
) -> None:
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
