"""``bilm neighbours``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bilm.analysis.pictures import PAGE, picture_format, save_picture
from bilm.cli import flags
from bilm.cli.flags import Integer
from bilm.cli.process import import_tensorflow
from bilm.errors import DataError
from bilm.io.messages import printable, quoted
from bilm.io.outputs import check_output

if TYPE_CHECKING:
    from bilm.embedding.packing import Layers


@click.command()
@click.argument("word")
@click.argument("sentence")
@click.argument("corpus", type=flags.TEXT)
@flags.embedding_model
@flags.no_xla
@click.option(
    "-n",
    "n_neighbours",
    type=Integer(min=1),
    default=10,
    show_default=True,
    help="Number of words to print.",
)
@click.option(
    "--layer", type=Integer(min=0), show_default="the top one", help="Compare vectors of this layer."
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
    model: flags.EmbeddingModel,
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
    of_page = False
    if plot is not None:
        check_output(plot, overwrite, [flags.input_place(corpus), *model.inputs])
        of_page = picture_format(plot) == PAGE
    import_tensorflow()
    from bilm.analysis.neighbours import find_neighbours, in_context, neighbours_picture

    embedder = model.open()
    top = embedder.n_layers - 1
    if layer is not None and layer > top:
        raise DataError(f"--layer {layer}: the model has layers 0 to {top}")
    chosen = top if layer is None else layer
    position = words.index(word)
    wanted: Layers = "all" if of_page else chosen
    by_layer = find_neighbours(
        embedder,
        words,
        position,
        flags.input_lines(corpus),
        n_neighbours=n_neighbours,
        layers=wanted,
        same_word=same_word,
    )
    shown = by_layer[chosen if of_page else 0]
    for near in shown.found:
        context = printable(in_context(near.words, near.position, 8))
        click.echo(f"{near.similarity:.4f}\t{near.line}\t{context}")
    if plot is not None:
        save_picture(neighbours_picture(words, position, by_layer, chosen if of_page else 0), plot)
        click.echo(f"plot -> {plot}", err=True)
