"""``bilm neighbours``."""

from __future__ import annotations

from pathlib import Path

import click

from bilm.cli import shared
from bilm.cli.quiet import import_tensorflow
from bilm.errors import DataError
from bilm.text import read_lines

_CONTEXT = 8


@click.command()
@click.argument("word")
@click.argument("sentence")
@click.argument("corpus", type=shared.FILE)
@click.option("--options-file", type=shared.FILE, help="options.json that goes with the weights.")
@click.option("--weight-file", type=shared.FILE, help="Weights as HDF5.")
@click.option("--save-dir", type=shared.FILE, help="Run directory, instead of the two.")
@click.option(
    "--vocab-file", type=shared.FILE, help="Vocabulary of a word-level model.  [default: the run's]"
)
@click.option("-n", "n_neighbours", type=click.IntRange(min=1), default=10, show_default=True)
@click.option("--layer", type=click.IntRange(min=0), help="Compare this layer.  [default: the top one]")
@click.option("--same-word", is_flag=True, help="Other occurrences of the same word only.")
def neighbours(
    word: str,
    sentence: str,
    corpus: Path,
    options_file: Path | None,
    weight_file: Path | None,
    save_dir: Path | None,
    vocab_file: Path | None,
    n_neighbours: int,
    layer: int | None,
    same_word: bool,
) -> None:
    """Print the words of CORPUS that are nearest to WORD as it stands in SENTENCE.

    A line has the cosine, the number of the sentence from 0, and the word in its context.
    """
    words = sentence.split()
    if word not in words:
        raise DataError(f"{word!r} is not a word of the sentence {sentence!r}")
    import_tensorflow()
    from bilm.embedder import ElmoEmbedder
    from bilm.neighbours import find_neighbours

    if save_dir is not None and options_file is None and weight_file is None:
        embedder = ElmoEmbedder.from_run(save_dir, vocab_file)
    elif options_file is not None and weight_file is not None and save_dir is None:
        embedder = ElmoEmbedder(options_file, weight_file, vocab_file)
    else:
        raise click.UsageError("give --options-file and --weight-file, or --save-dir alone")
    found = find_neighbours(
        embedder,
        words,
        words.index(word),
        read_lines(corpus),
        n_neighbours=n_neighbours,
        layers="top" if layer is None else layer,
        same_word=same_word,
    )
    for one in found:
        before = " ".join(one.words[max(one.position - _CONTEXT, 0) : one.position])
        after = " ".join(one.words[one.position + 1 : one.position + 1 + _CONTEXT])
        click.echo(f"{one.similarity:.4f}\t{one.line}\t{before} [{one.words[one.position]}] {after}".rstrip())
