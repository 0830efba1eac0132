"""Nearest neighbours of a word in context among the words of a corpus, and a picture of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bilm.analysis.pictures import Picture, Series, Style, View
from bilm.io import background
from bilm.options.parameters import UnicodeForm, normaliser

if TYPE_CHECKING:
    from bilm.embedding.chunk_embedder import ChunkEmbedder


@dataclass(frozen=True, eq=False)
class Occurrence:
    """A word in a sentence of a corpus.

    Attributes:
        line: line number of the sentence, from 0.
        words: words of the sentence.
        position: position of the word, from 0.
        similarity: cosine similarity to the query word.
        vector: float32 (dim,), vector of the word.
    """

    line: int
    words: list[str]
    position: int
    similarity: float
    vector: np.ndarray

    def in_context(self, n_words: int) -> str:
        """Format the word in brackets, with `n_words` words on either side."""
        before = self.words[max(self.position - n_words, 0) : self.position]
        after = self.words[self.position + 1 : self.position + 1 + n_words]
        return " ".join([*before, f"[{self.words[self.position]}]", *after])


@dataclass(eq=False)
class Neighbours:
    """Occurrences nearest to a query word in one layer.

    Attributes:
        word: query word; its `line` is -1.
        found: neighbours by descending similarity, ties in the order of the corpus.
    """

    word: Occurrence
    found: list[Occurrence]

    def look_at(self, line: int, words: list[str], places: list[int], vectors: np.ndarray, most: int) -> None:
        """Compare a sentence, and keep the nearest words so far.

        Args:
            line: line number of the sentence.
            words: words of the sentence.
            places: positions of the words to compare.
            vectors: float32 (words, dim), vectors of all words.
            most: number of neighbours to keep.
        """
        direction = self.word.vector / max(float(np.linalg.norm(self.word.vector)), 1e-12)
        norms = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
        # Rounded, so that equal vectors tie: the first in the corpus is kept.
        similarities = np.round((vectors @ direction / norms).astype(np.float64), 6).tolist()
        least = self.found[-1].similarity if len(self.found) == most else -np.inf
        near = [i for i in places if similarities[i] > least]
        nearer = [Occurrence(line, words, i, similarities[i], vectors[i].copy()) for i in near]
        if nearer:
            self.found = sorted(self.found + nearer, key=lambda word: -word.similarity)[:most]


def find_neighbours(
    embedder: "ChunkEmbedder",
    words: list[str],
    position: int,
    lines: Iterable[str],
    *,
    n_neighbours: int = 10,
    same_word: bool = False,
) -> list[Neighbours]:
    """Find the nearest neighbours of a word in a corpus, which is read once and not stored.

    Args:
        embedder: model that computes the vectors.
        words: sentence of the query word.
        position: position of the query word in it, from 0.
        lines: corpus, words separated by whitespace.
        n_neighbours: number of occurrences to find.
        same_word: compare only occurrences of the same word, ignoring case.

    Returns:
        Neighbours in each layer, from 0.
    """
    (own,) = embedder.embed_chunk([words])
    queries = (Occurrence(-1, words, position, 1.0, vectors[position].copy()) for vectors in own)
    by_layer = [Neighbours(query, []) for query in queries]
    in_form = normaliser(embedder.model.options.unicode_form)

    def folded(word: str) -> str:
        return UnicodeForm.NFC.of_text(in_form(word).lower())

    wanted = folded(words[position]) if same_word else None
    sentences = (
        (line, sentence, places)
        for line, sentence in enumerate(map(str.split, lines))
        if (places := [i for i, word in enumerate(sentence) if wanted is None or folded(word) == wanted])
    )
    for chunk in background.prefetch(embedder.in_chunks(sentences, lambda sentence: sentence[1]), depth=1):
        for (line, sentence, places), vectors in chunk:
            for neighbours, layer in zip(by_layer, vectors, strict=True):
                neighbours.look_at(line, sentence, places, layer, n_neighbours)
    return by_layer


_DOT, _STAR = Style(marker="circle", size=5), Style(marker="star", size=11)
_PANEL = "second principal component"
_LONGEST_LABEL = 30
_NOTE = (
    "The nearest words, projected to the first two principal components of their directions. Hover over a "
    "word for its sentence; drag to zoom, double-click to zoom out."
)


def neighbours_picture(layers: Sequence[Neighbours], chosen: int = 0) -> Picture:
    """Make a picture of a word and its neighbours, projected to two principal components.

    Args:
        layers: neighbours in each layer, from 0, or in one.
        chosen: index of the layer that an image shows and a page shows first.
    """
    views = []
    for number, layer in enumerate(layers):
        points = plane_of_directions(np.stack([near.vector for near in (layer.word, *layer.found)]))
        low, high = points.min(axis=0), points.max(axis=0)
        room = np.maximum(0.12 * (high - low), 1e-3)
        (x, *xs), (y, *ys) = ((points - low + room) / (high - low + 2 * room)).T.tolist()
        similarities = [near.similarity for near in layer.found]
        labels = [_label(near) for near in layer.found]
        texts = [
            f"cosine similarity {near.similarity:.4f}, line {near.line}\n{near.in_context(40)}"
            for near in layer.found
        ]
        dots = Series(xs, ys, _PANEL, _DOT, values=similarities, labels=labels, hover=texts)
        hover = f"query word\n{layer.word.in_context(40)}"
        star = Series([x], [y], _PANEL, _STAR, "#d62728", labels=[_label(layer.word)], hover=[hover])
        place = " (words alone)" if not number else " (top)" if layer is layers[-1] else ""
        views.append(View(f"layer {number}{place}", "first principal component", [dots, star]))
    title = layers[0].word.in_context(8)
    return Picture(title, _NOTE, views, chosen, has_numbers=False, bar="cosine similarity")


def _label(word: Occurrence) -> str:
    text = word.in_context(1)
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 1]}…"


def plane_of_directions(vectors: np.ndarray) -> np.ndarray:
    """Normalise vectors (n, dim) and project them to two principal components, (n, 2)."""
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = vectors.astype(np.float64) / np.maximum(norms, 1e-12)
    left, scales, _ = np.linalg.svd(directions - directions.mean(axis=0), full_matrices=False)
    plane = (left * scales)[:, :2]
    return np.pad(plane, [(0, 0), (0, 2 - plane.shape[1])])
