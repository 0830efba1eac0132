"""Inspect the layers of a biLM: their shares in learned mixes, and nearest neighbours in each layer.

    python examples/inspect_layers.py --results pos.json --save-dir run \
        --word bank --sentence "the bank of the river" --text heldout.txt --plot layers.png

--results is a file of `pos_tagging.py --results`: the learned mixes, averaged over the seeds, are printed,
and drawn with --plot (pip install matplotlib). With --word, --sentence, --text and a biLM, the nearest
neighbours of the word in its sentence are printed for each layer: layer 0 sees only the characters of a word,
higher layers its context. Either part can be left out.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from bilm.analysis.neighbours import find_neighbours
from bilm.analysis.pictures import PAGE, picture_format
from bilm.cli.flags import embedding_model
from bilm.embedding.embedder import ElmoEmbedder
from bilm.errors import BilmError, DataError
from bilm.io import atomic
from bilm.io.lines import read_lines
from bilm.run_directory.model_source import ModelArguments

Mixes = dict[str, np.ndarray]


def read_mixes(path: Path) -> tuple[Mixes, Mixes]:
    """Read the shares (runs, layers) and scales (runs,) of each mix, by its tagger, fraction and name.

    Raises:
        DataError: the file cannot be read, or is not a file of pos_tagging.py.
    """
    shares: dict[str, list[Any]] = defaultdict(list)
    scales: dict[str, list[Any]] = defaultdict(list)
    try:
        for run in json.loads("\n".join(read_lines(path))):
            for name, mix in run["mixes"].items():
                label = f"{run['variant']}, {100 * run['fraction']:.3g}%: {name}"
                shares[label].append(mix["shares"])
                scales[label].append(mix["gamma"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise DataError(f"{path}: is not a file of pos_tagging.py --results") from error
    if not shares:
        raise DataError(f"{path}: no tagger in it has learned a mix; train the variants input and both")
    return (
        {label: np.array(values) for label, values in shares.items()},
        {label: np.array(values) for label, values in scales.items()},
    )


def print_mixes(shares: Mixes, scales: Mixes) -> None:
    """Print a Markdown table of means over the runs."""
    n_layers = next(iter(shares.values())).shape[1]
    print("| mix | " + " | ".join(f"layer {k}" for k in range(n_layers)) + " | scale | runs |")
    print("|" + "---|" * (n_layers + 3))
    for label, values in shares.items():
        cells = [f"{share:.3f}" for share in values.mean(axis=0)]
        print(f"| {label} | {' | '.join(cells)} | {scales[label].mean():.2f} | {len(values)} |")


def plot_mixes(shares: Mixes, path: Path) -> None:
    """Draw bars of the shares, with the standard deviation over the runs."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 1 + 0.5 * len(shares)), layout="constrained")
    axes = figure.add_subplot()
    places = np.arange(len(shares))
    n_layers = next(iter(shares.values())).shape[1]
    for layer in range(n_layers):
        values = [runs[:, layer] for runs in shares.values()]
        axes.barh(
            places + 0.8 * (layer / n_layers),
            [runs.mean() for runs in values],
            height=0.75 / n_layers,
            xerr=[runs.std(ddof=1) if len(runs) > 1 else 0.0 for runs in values],
            label=f"layer {layer}",
        )
    axes.set_yticks(places + 0.4 * (1 - 1 / n_layers), list(shares))
    axes.invert_yaxis()
    axes.set_xlabel("share of the mix")
    axes.legend()
    with atomic.writing(path, overwrite=False, failure=DataError, errors=[ValueError]) as (temporary,):
        figure.savefig(temporary, format=picture_format(path))


def print_neighbours(embedder: ElmoEmbedder, word: str, sentence: str, text: Path, n_neighbours: int) -> None:
    """Print the nearest neighbours in each layer, with cosine similarity and context."""
    words = sentence.split()
    if word not in words:
        raise DataError(f"{word!r} is not a word of the sentence {sentence!r}")
    by_layer = find_neighbours(
        embedder, words, words.index(word), read_lines(text), n_neighbours=n_neighbours
    )
    for layer, neighbours in enumerate(by_layer):
        print(f"\nlayer {layer}")
        for occurrence in neighbours.found:
            print(f"{occurrence.similarity:.3f}  {occurrence.in_context(5)}")


def verbatim(text: str) -> str:
    """Keep click from wrapping the help."""
    return text.replace("\n\n", "\n\n\b\n")


@click.command(help=verbatim(__doc__))
@click.option("--results", type=click.Path(path_type=Path), help="JSON file of pos_tagging.py --results.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the mixes: .png, .svg or .pdf.")
@click.option("--word", help="Word to find neighbours of.")
@click.option("--sentence", help="Tokenised sentence that contains the word.")
@click.option(
    "--text", type=click.Path(path_type=Path), help="Text to search, one tokenised sentence per line."
)
@click.option("-n", "n_neighbours", type=click.IntRange(min=1), default=5, show_default=True)
@embedding_model
def main(
    results: Path | None, plot: Path | None, word: str | None, sentence: str | None, text: Path | None,
    n_neighbours: int, model: ModelArguments, vocab_file: Path | None,
) -> None:  # fmt: skip
    """Print the mixes and the neighbours."""
    asked = [value is not None for value in (word, sentence, text)]
    if any(asked) != all(asked) or (results is None and not any(asked)):
        raise click.UsageError("give --results, or --word, --sentence and --text together, or all four")
    if plot is not None and results is None:
        raise click.UsageError("--plot draws the mixes of --results; give it")
    if plot is not None and picture_format(plot) == PAGE:
        raise DataError(f"{plot}: give a name that ends in .png, .svg or .pdf")
    if results is not None:
        shares, scales = read_mixes(results)
        print_mixes(shares, scales)
        if plot is not None:
            plot_mixes(shares, plot)
    if word is not None and sentence is not None and text is not None:
        embedder = ElmoEmbedder(model=model, vocab_file=vocab_file)
        print_neighbours(embedder, word, sentence, text, n_neighbours)


if __name__ == "__main__":
    try:
        main()
    except BilmError as error:
        sys.exit(f"Error: {error}")
