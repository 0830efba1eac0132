"""``bilm export``."""

from __future__ import annotations

from pathlib import Path

import click

from bilm.cli import shared
from bilm.cli.quiet import import_tensorflow


@click.command()
@click.option("--saved-model", "directory", type=shared.FILE, required=True, help="Directory to write.")
@click.option("--options-file", type=shared.FILE, help="options.json that goes with the weights.")
@click.option("--weight-file", type=shared.FILE, help="Weights as HDF5.")
@click.option("--save-dir", type=shared.FILE, help="Run directory to export, instead of the two.")
@click.option(
    "--vocab-file", type=shared.FILE, help="Vocabulary of a word-level model.  [default: the run's]"
)
@shared.overwrite
def export(
    directory: Path,
    options_file: Path | None,
    weight_file: Path | None,
    save_dir: Path | None,
    vocab_file: Path | None,
    overwrite: bool,
) -> None:
    """Write a TensorFlow SavedModel with the signatures and output names of TF-Hub's ELMo.

    `default` takes sentences as strings, `tokens` padded words and their number.
    """
    import_tensorflow()
    from bilm.embedder import ElmoEmbedder
    from bilm.saved_model import write_saved_model

    if save_dir is not None and options_file is None and weight_file is None:
        embedder = ElmoEmbedder.from_run(save_dir, vocab_file)
    elif options_file is not None and weight_file is not None and save_dir is None:
        embedder = ElmoEmbedder(options_file, weight_file, vocab_file)
    else:
        raise click.UsageError("give --options-file and --weight-file, or --save-dir alone")
    write_saved_model(embedder.model.encoder, directory, embedder.vocabulary, overwrite)
    outputs = [f"lstm_outputs{i}" for i in range(1, embedder.n_layers)]
    click.echo(
        f"{directory}: signatures default, tokens; outputs word_emb, {', '.join(outputs)}, elmo, default"
    )
