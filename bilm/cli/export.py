"""``bilm export``."""

from __future__ import annotations

from pathlib import Path

import click

from bilm.cli import shared
from bilm.cli.quiet import import_tensorflow
from bilm.models.saved_model_files import check_saved_model


@click.command()
@click.option(
    "--saved-model", "directory", type=shared.DIRECTORY, required=True, help="Directory to write it to."
)
@shared.embedding_model
@shared.overwrite
def export(
    directory: Path,
    options_file: Path | None,
    weight_file: Path | None,
    save_dir: Path | None,
    which: str | None,
    weights: str | None,
    vocab_file: Path | None,
    overwrite: bool,
) -> None:
    """Write a TensorFlow SavedModel with the signatures and output names of TF-Hub's ELMo.

    `default` takes sentences as strings, `tokens` padded words and their number.
    """
    check_saved_model(directory, overwrite, [options_file, weight_file, save_dir, vocab_file])
    import_tensorflow()
    from bilm.models.saved_model import write_saved_model

    embedder = shared.open_embedder(options_file, weight_file, save_dir, which, weights, vocab_file)
    write_saved_model(embedder.model.encoder, directory, embedder.vocabulary, overwrite)
    outputs = [f"lstm_outputs{i}" for i in range(1, embedder.n_layers)]
    click.echo(
        f"{directory}: signatures default, tokens; outputs word_emb, {', '.join(outputs)}, elmo, default"
    )
