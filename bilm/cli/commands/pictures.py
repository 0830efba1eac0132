"""``bilm plot`` and ``bilm neighbours``: training curves, and the nearest words of a text."""

from __future__ import annotations

from pathlib import Path

import click

from bilm.cli import flags
from bilm.cli.process import import_tensorflow
from bilm.errors import DataError
from bilm.io.messages import printable, quoted
from bilm.io.outputs import check_output


@click.command(cls=flags.TextCommand, short_help="Draw the training curves of runs.")
@flags.model_path("Run directories.", several=True)
@click.option(
    "--outfile",
    type=flags.FILE,
    required=True,
    help="File to write: .html, a page to explore, or an image, .png, .svg or .pdf.",
)
@click.option(
    "--x",
    type=click.Choice(["step", "tokens", "epoch", "time"]),
    default="step",
    help="What the horizontal axis counts.",
)
@flags.overwrite
def plot(model: tuple[Path, ...], outfile: Path, x: str, overwrite: bool) -> None:
    """Draw the perplexity of runs over training. `bilm plot RUN...` is short for `--model RUN...`.

    One colour per run. The best heldout perplexity is marked. Where the legend says so, the training
    perplexity is that of a sampled softmax, which is lower than that of the whole vocabulary.
    """
    check_output(outfile, overwrite, model)
    from bilm.analysis import curves, pictures  # NumPy, which completion can do without

    pictures.save_picture(curves.curves_picture(curves.load_curves(model), x), outfile)
    click.echo(f"plot -> {outfile}")


@click.command(short_help="Print the words of a text nearest to a word in its sentence.")
@click.argument("word")
@click.argument("sentence")
@click.argument("corpus", type=flags.TEXT)
@flags.embedding_model
@flags.no_xla
@click.option("-n", "n_neighbours", type=click.IntRange(min=1), default=10, help="Number of words to print.")
@click.option(
    "--layer", type=click.IntRange(min=0), show_default="the top one", help="Compare vectors of this layer."
)
@click.option(
    "--plot",
    type=flags.FILE,
    help="Also draw them in two dimensions: .html, a page to explore every layer, or .png, .svg or .pdf.",
)
@click.option("--same-word", is_flag=True, help="Consider only other occurrences of the same word.")
@flags.overwrite
def neighbours(
    word: str,
    sentence: str,
    corpus: Path,
    model: flags.ModelArguments,
    vocab_file: Path | None,
    n_neighbours: int,
    layer: int | None,
    plot: Path | None,
    same_word: bool,
    overwrite: bool,
) -> None:
    """Print the words of CORPUS (- for stdin) that are nearest to WORD in the context of SENTENCE.

    Each line has the cosine similarity, the number of the sentence from 0, and the word in its context.
    """
    words = sentence.split()
    if word not in words:
        raise DataError(f"{quoted(word)} is not a word of the sentence {quoted(sentence)}")
    from bilm.analysis import pictures

    if plot is not None:
        check_output(plot, overwrite, [corpus, vocab_file, *model.inputs])
        pictures.picture_format(plot)
    import_tensorflow()
    from bilm.analysis.neighbours import find_neighbours, neighbours_picture
    from bilm.embedding.embedder import ElmoEmbedder

    embedder = ElmoEmbedder.of_arguments(model, vocab_file)
    top = embedder.n_layers - 1
    chosen = top if layer is None else layer
    if chosen > top:
        raise DataError(f"--layer {layer}: the model has layers 0 to {top}")
    by_layer = find_neighbours(
        embedder,
        words,
        words.index(word),
        flags.input_lines(corpus),
        n_neighbours=n_neighbours,
        same_word=same_word,
    )
    for near in by_layer[chosen].found:
        click.echo(f"{near.similarity:.4f}\t{near.line}\t{printable(near.in_context(8))}")
    if plot is not None:
        pictures.save_picture(neighbours_picture(by_layer, chosen), plot)
        click.echo(f"plot -> {plot}", err=True)
