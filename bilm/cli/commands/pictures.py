"""``bilm plot`` and ``bilm neighbours``: training curves and nearest neighbours."""

import itertools
import shutil
import sys
from pathlib import Path

import click

from bilm.cli import echo, flags, process
from bilm.errors import DataError
from bilm.io import messages, outputs
from bilm.io.run_files import DIGEST_FILE


@click.command(short_help="Draw the training curves of runs.")
@click.argument("model", type=flags.MODEL, nargs=-1, required=True, metavar="RUN...")
@flags.path(
    "--outfile",
    "File to write: .html (interactive page), .png, .svg or .pdf.",
    show_default="a chart in the terminal",
)
@flags.choice("--x", "Unit of the horizontal axis.", ["step", "tokens", "epoch", "time"], default="step")
@flags.overwrite
def plot(model: tuple[Path, ...], outfile: Path | None, x: str, overwrite: bool) -> None:
    """Draw the training curves of run directories RUN... in the terminal or to a file.

    The terminal shows heldout and training perplexity of one run, or the heldout perplexity of several. A
    file also shows learning rate, gradient norm and tokens per second. A training perplexity labelled
    "sampled softmax" is lower than under the full softmax.
    """
    if outfile is not None:
        outputs.check_output(outfile, overwrite, model)
    elif overwrite:
        raise click.UsageError("--overwrite needs --outfile")
    from bilm.analysis import curves, pictures  # imports NumPy, not needed for completion

    metrics = curves.load_curves(model)
    digests = [file for run in model if (file := run / DIGEST_FILE).is_file()]
    if len({file.read_bytes() for file in digests}) > 1:
        echo("the runs have different vocabularies; their perplexities cannot be compared", err=True)
    if outfile is not None:
        pictures.save_picture(curves.curves_picture(metrics, x), outfile, overwrite)
        click.echo(f"plot -> {outfile}")
        return
    has_braille = bool("\u28ff".encode(sys.stdout.encoding, "ignore"))
    click.echo(curves.curves_chart(metrics, x, shutil.get_terminal_size().columns, not has_braille))


@click.command(short_help="Print the nearest neighbours of a word in context.")
@click.argument("word")
@click.argument("sentence")
@click.argument("corpus", type=flags.TEXT)
@flags.embedding_text
@flags.number("-n", "Number of neighbours to print.", "n_neighbours", default=10)
@flags.number("--layer", "Compare vectors of this layer.", least=0, show_default="the top one")
@flags.path(
    "--plot", "Also draw them in two dimensions, to .html (interactive, all layers), .png, .svg or .pdf."
)
@flags.switch("--same-word", "Consider only other occurrences of the same word, ignoring case.")
@flags.overwrite
def neighbours(
    word: str,
    sentence: str,
    corpus: str,
    model: "flags.ModelArguments",
    vocab_file: Path | None,
    raw: bool,
    n_neighbours: int,
    layer: int | None,
    plot: Path | None,
    same_word: bool,
    overwrite: bool,
) -> None:
    """Print the words in CORPUS (- for stdin) that are nearest to WORD in the context of SENTENCE.

    Each output line has the cosine similarity, the sentence number from 0, and the word in its context. With
    --raw, CORPUS and SENTENCE are raw text.
    """
    lines = flags.input_text(corpus)
    from bilm.analysis import pictures

    if plot is not None:
        outputs.check_output(plot, overwrite, [corpus, vocab_file, *model.inputs])
        pictures.picture_format(plot)
    elif overwrite:
        raise click.UsageError("--overwrite needs --plot")
    process.import_tensorflow()
    from bilm.analysis.neighbours import find_neighbours, neighbours_picture
    from bilm.embedding.embedder import ElmoEmbedder
    from bilm.embedding.model_text import ModelText

    stored = model.open()
    embedder = ElmoEmbedder(model=stored, vocab_file=vocab_file)
    text = ModelText(stored, raw, embedder.vocabulary)
    word, sentences = text.word(word), text.sentences(sentence)
    words = next((words for words in sentences if word in words), [*itertools.chain(*sentences)])
    if word not in words:
        raise DataError(f"{word!r:.80} is not a word of the sentence {' '.join(words)!r:.80}")
    top = embedder.n_layers - 1
    chosen = top if layer is None else layer
    if chosen > top:
        raise DataError(f"--layer {layer}: the model has layers 0 to {top}")
    by_layer = find_neighbours(
        embedder, words, words.index(word), text(lines), n_neighbours=n_neighbours, same_word=same_word
    )
    if not by_layer[chosen].found:
        raise DataError(f"{corpus}: no {f'other occurrence of {word!r:.80}' if same_word else 'words'}")
    for near in by_layer[chosen].found:
        click.echo(f"{near.similarity:.4f}\t{near.line}\t{messages.printable(near.in_context(8))}")
    flags.say_end(text)
    if plot is not None:
        pictures.save_picture(neighbours_picture(by_layer, chosen), plot, overwrite)
        click.echo(f"plot -> {plot}", err=True)
