"""The word occurrences in a corpus that are nearest to a word in its sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from bilm.embedding.packing import Layers, chunks
from bilm.errors import DataError

if TYPE_CHECKING:
    from bilm.embedding.packed_embedder import Embedder


@dataclass(frozen=True, eq=False)
class Occurrence:
    """A word in a sentence of a corpus.

    Attributes:
        line: of the sentence, from 0.
        words: of the sentence.
        position: of the word, from 0.
        similarity: cosine of the angle to the word asked for.
        vector: float32 (dim,).
    """

    line: int
    words: list[str]
    position: int
    similarity: float
    vector: np.ndarray


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The occurrences nearest to a word by their vectors in one layer, or in a mean of layers.

    Attributes:
        vector: of the word asked for, float32 (dim,).
        found: the nearest first; of equal ones the first in the corpus first.
    """

    vector: np.ndarray
    found: list[Occurrence]


def find_neighbours(
    embedder: Embedder,
    words: list[str],
    position: int,
    lines: Iterable[str],
    *,
    n_neighbours: int = 10,
    layers: Layers = "top",
    same_word: bool = False,
) -> list[Neighbours]:
    """Compare a word with every word of a corpus, which is read once and not kept.

    Args:
        embedder: makes the vectors.
        words: the sentence.
        position: of the word in it, from 0.
        lines: the corpus, words separated by whitespace.
        n_neighbours: occurrences wanted.
        layers: which vectors to compare; with all of them, each layer has neighbours of its own.
        same_word: compare occurrences of the same word only, whatever their case.

    Returns:
        The neighbours in each layer from 0 if all are compared; else one element.

    Raises:
        DataError: the position is not in the sentence.
    """
    if not 0 <= position < len(words):
        raise DataError(f"position {position}: the sentence has words 0 to {len(words) - 1}")
    (own,) = embedder.embed_chunk([words], layers)
    searches = [_Search(vectors[position], n_neighbours) for vectors in _by_layer(own)]
    wanted = words[position].lower() if same_word else None

    def may_have_one(line: tuple[int, list[str]]) -> bool:
        return bool(line[1]) and (wanted is None or wanted in map(str.lower, line[1]))

    sentences = filter(may_have_one, enumerate(line.split() for line in lines))
    for chunk in chunks(sentences, embedder.is_chunk, itemgetter(1)):
        embedded = embedder.embed_chunk([found for _, found in chunk], layers)
        for (line, found), vectors in zip(chunk, embedded, strict=True):
            places = [i for i, word in enumerate(found) if wanted is None or word.lower() == wanted]
            for search, layer in zip(searches, _by_layer(vectors), strict=True):
                search.look_at(line, found, places, layer)
    return [Neighbours(search.vector, search.best) for search in searches]


def _by_layer(vectors: np.ndarray) -> np.ndarray:
    """Vectors of a sentence, (layers, words, dim), also where there is one layer."""
    return vectors if vectors.ndim == 3 else vectors[None]


class _Search:
    """What has been found so far that is nearest to a vector."""

    def __init__(self, vector: np.ndarray, n_neighbours: int) -> None:
        self.vector = vector.copy()
        self.best: list[Occurrence] = []
        self._direction = vector / max(float(np.linalg.norm(vector)), 1e-12)
        self._n_neighbours = n_neighbours

    def look_at(self, line: int, words: list[str], places: list[int], vectors: np.ndarray) -> None:
        """Keep those words of a sentence, (words, dim), at some places that are nearer than what there is."""
        norms = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
        # Equal vectors may differ in their last digits here; of equals those that come first are kept.
        similarities = np.round((vectors @ self._direction / norms).astype(np.float64), 6).tolist()
        is_full = len(self.best) == self._n_neighbours
        least = self.best[-1].similarity if is_full else -np.inf
        found = [
            Occurrence(line, words, i, similarities[i], vectors[i].copy())
            for i in places
            if similarities[i] > least
        ]
        if found:
            self.best = sorted(self.best + found, key=lambda one: -one.similarity)[: self._n_neighbours]
