"""Find the words of a list whose contexts differ most between two texts, for example of two times.

    python examples/semantic_change.py old.txt new.txt --words words.txt --model run --plot change.html

Each text has one tokenised sentence per line, the list one word per line. The model should have read both.
For each word the table has its occurrences in both texts, the prototype distance (1 - cosine of the two mean
vectors) and the average pairwise distance (1 - mean cosine of all pairs of an occurrence in one text and one
in the other), as in SemEval-2020 task 1 (arXiv:2007.11464); and the excess, which is that distance less the
mean of the same distance within each text: a word of many contexts in both has not changed. The table is
sorted by the excess. Of its first word, the most typical occurrences in both texts follow: those nearest to
the mean of their text.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from bilm.analysis.neighbours import Neighbours, Occurrence, neighbours_picture
from bilm.analysis.pictures import picture_format, save_picture
from bilm.cli.flags import embedding_model
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.word_output import WordOccurrence
from bilm.errors import BilmError, DataError
from bilm.io.lines import read_lines, read_words
from bilm.io.outputs import check_output
from bilm.run_directory.model_source import ModelArguments

ByWord = dict[str, list[WordOccurrence]]


def find_occurrences(embedder: ElmoEmbedder, text: Path, words: list[str]) -> ByWord:
    """Return the occurrences of each word in a text."""
    by_word: ByWord = {word: [] for word in words}
    for occurrence in embedder.embed_words(map(str.split, read_lines(text)), words):
        by_word[occurrence.word].append(occurrence)
    return by_word


def vectors_of(occurrences: Sequence[WordOccurrence | Occurrence]) -> np.ndarray:
    """Return the vectors of occurrences, (occurrences, dim)."""
    return np.stack([occurrence.vector for occurrence in occurrences]).astype(np.float64)


def directions(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors (..., dim) to length 1."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def distances(old: np.ndarray, new: np.ndarray) -> tuple[float, float, float]:
    """Return prototype distance, average pairwise distance and excess of vectors (occurrences, dim)."""
    prototype = 1 - directions(old.mean(axis=0)) @ directions(new.mean(axis=0))
    old, new = directions(old), directions(new)
    # The mean over all pairs of the products is the product of the means.
    pairwise = 1 - old.mean(axis=0) @ new.mean(axis=0)
    within = [distance_within(side) for side in (old, new) if len(side) > 1] or [pairwise]
    return float(prototype), float(pairwise), float(pairwise - np.mean(within))


def distance_within(vectors: np.ndarray) -> float:
    """Return the mean of 1 - cosine over the pairs of at least two vectors of length 1."""
    n, total = len(vectors), vectors.sum(axis=0)
    return float(1 - (total @ total - n) / (n * (n - 1)))


def typical(text: Path, occurrences: list[WordOccurrence], n_occurrences: int) -> list[Occurrence]:
    """Return the occurrences nearest to their mean, with their sentences, the nearest first."""
    vectors = vectors_of(occurrences)
    similarities = directions(vectors) @ directions(vectors.mean(axis=0))
    nearest = [(occurrences[i], similarities[i]) for i in np.argsort(-similarities)[:n_occurrences]]
    wanted = {occurrence.line for occurrence, _ in nearest}
    lines = {number: line.split() for number, line in enumerate(read_lines(text)) if number in wanted}
    return [
        Occurrence(found.line, lines[found.line], found.position, float(similarity), found.vector)
        for found, similarity in nearest
    ]


def verbatim(text: str) -> str:
    """Keep click from wrapping the help."""
    return text.replace("\n\n", "\n\n\b\n")


@click.command(help=verbatim(__doc__))
@click.argument("old", type=click.Path(path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option("--words", "words_file", type=click.Path(path_type=Path), required=True, help="List of words.")
@click.option("-n", "n_occurrences", type=click.IntRange(min=1), default=5, show_default=True)
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Draw the typical occurrences: .html, .png, ..."
)
@embedding_model
def main(
    old: Path, new: Path, words_file: Path, n_occurrences: int, plot: Path | None, model: ModelArguments,
    vocab_file: Path | None,
) -> None:  # fmt: skip
    """Print the table and the occurrences."""
    if plot is not None:
        picture_format(plot)  # fails early
        check_output(plot, overwrite=False)
    words = read_words(words_file)
    embedder = ElmoEmbedder(model=model, vocab_file=vocab_file)
    in_old, in_new = (find_occurrences(embedder, text, words) for text in (old, new))
    in_both = [word for word in words if in_old[word] and in_new[word]]
    if not in_both:
        raise DataError(f"{words_file}: no word of the list is in both texts")
    changes = {word: distances(vectors_of(in_old[word]), vectors_of(in_new[word])) for word in in_both}
    print(f"| word | in {old} | in {new} | prototype distance | average pairwise distance | excess |")
    print("|---|---|---|---|---|---|")
    for word in sorted(words, key=lambda word: -changes[word][-1] if word in changes else 2):
        cells = [f"{change:.4f}" for change in changes[word]] if word in changes else [""] * 3
        print(f"| {word} | {len(in_old[word]):,} | {len(in_new[word]):,} | {' | '.join(cells)} |")
    first = max(changes, key=lambda word: changes[word][-1])
    found = [typical(text, by_word[first], n_occurrences) for text, by_word in ((old, in_old), (new, in_new))]
    for text, occurrences in zip((old, new), found, strict=True):
        print(f"\n{first} in {text}")
        for occurrence in occurrences:
            print(f"{occurrence.similarity:.3f}  {occurrence.in_context(5)}")
    if plot is not None:
        query, *others = [occurrence for occurrences in found for occurrence in occurrences]
        similarities = directions(vectors_of(others)) @ directions(query.vector)
        near = [replace(other, similarity=float(s)) for other, s in zip(others, similarities, strict=True)]
        save_picture(neighbours_picture([Neighbours(query, near)]), plot)


if __name__ == "__main__":
    try:
        main()
    except BilmError as error:
        sys.exit(f"Error: {error}")
