"""``bilm neighbours``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bilm.cli import shared
from bilm.cli.numbers import Integer
from bilm.cli.quiet import import_tensorflow
from bilm.errors import DataError
from bilm.io.figures import picture_format, require_matplotlib
from bilm.io.outputs import check_output
from bilm.io.shown import printable, quoted

if TYPE_CHECKING:
    from bilm.embedding.embedded_text import Layers


@click.command()
@click.argument("word")
@click.argument("sentence")
@click.argument("corpus", type=shared.TEXT)
@shared.embedding_model
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
@click.option("--plot", type=shared.FILE, help="Also draw them in two dimensions: .png, .svg or .pdf.")
@click.option("--same-word", is_flag=True, help="Consider only other occurrences of the same word.")
@shared.overwrite
def neighbours(
    word: str,
    sentence: str,
    corpus: Path,
    options_file: Path | None,
    weight_file: Path | None,
    save_dir: Path | None,
    which: str | None,
    weights: str | None,
    vocab_file: Path | None,
    n_neighbours: int,
    layer: int | None,
    plot: Path | None,
    same_word: bool,
    overwrite: bool,
) -> None:
    """Print the words of CORPUS (- for stdin) that are nearest to WORD as it stands in SENTENCE.

    A line has the cosine, the number of the sentence from 0, and the word in its context.
    """
    words = sentence.split()
    if word not in words:
        raise DataError(f"{quoted(word)} is not a word of the sentence {quoted(sentence)}")
    if plot is not None:
        inputs = [shared.input_place(corpus), options_file, weight_file, save_dir, vocab_file]
        check_output(plot, overwrite, inputs)
        picture_format(plot)
        require_matplotlib()
    import_tensorflow()
    from bilm.embedding.neighbours import find_neighbours

    embedder = shared.open_embedder(options_file, weight_file, save_dir, which, weights, vocab_file)
    layers: Layers = "top" if layer is None else layer
    position = words.index(word)
    found = find_neighbours(
        embedder,
        words,
        position,
        shared.input_lines(corpus),
        n_neighbours=n_neighbours,
        layers=layers,
        same_word=same_word,
    )
    for one in found:
        click.echo(f"{one.similarity:.4f}\t{one.line}\t{printable(_in_context(one.words, one.position, 8))}")
    if plot is not None:
        import numpy as np

        from bilm.embedding.vector_plot import plot_vectors

        shown = [(words, position), *((one.words, one.position) for one in found)]
        asked = embedder.embed_chunk([words], layers)[0][position]
        labels = [_in_context(sentence, i, 3) for sentence, i in shown]
        plot_vectors(labels, np.stack([asked, *(one.vector for one in found)]), plot)
        click.echo(f"plot -> {plot}", err=True)


def _in_context(words: list[str], position: int, n_words: int) -> str:
    """A word in brackets, with so many words on either side."""
    before, after = words[max(position - n_words, 0) : position], words[position + 1 : position + 1 + n_words]
    return " ".join([*before, f"[{words[position]}]", *after])
