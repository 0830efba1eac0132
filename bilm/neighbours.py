"""The occurrences of a corpus that are nearest to a word in its sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bilm.embedding import Embedder, Layers
from bilm.errors import DataError


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


def find_neighbours(
    embedder: Embedder,
    words: list[str],
    position: int,
    lines: Iterable[str],
    *,
    n_neighbours: int = 10,
    layers: Layers = "top",
    same_word: bool = False,
) -> list[Occurrence]:
    """Compare a word with every word of a corpus, which is read once and not kept.

    Args:
        embedder: makes the vectors.
        words: the sentence.
        position: of the word in it, from 0.
        lines: the corpus, words separated by white space.
        n_neighbours: occurrences wanted.
        layers: which vectors to compare; not all.
        same_word: compare occurrences of the same word only, whatever their case.

    Returns:
        The nearest first; of equal ones the first in the corpus first.

    Raises:
        DataError: the position is not in the sentence.
    """
    if not 0 <= position < len(words):
        raise DataError(f"position {position}: the sentence has words 0 to {len(words) - 1}")
    wanted = embedder.embed_chunk([words], layers)[0][position]
    wanted = wanted / max(float(np.linalg.norm(wanted)), 1e-12)
    best: list[Occurrence] = []
    chunk: list[tuple[int, list[str]]] = []
    n_tokens = 0

    def search() -> None:
        vectors = embedder.embed_chunk([found for _, found in chunk], layers)
        for (line, found), own in zip(chunk, vectors, strict=True):
            norms = np.maximum(np.linalg.norm(own, axis=1), 1e-12)
            for i, similarity in enumerate((own @ wanted / norms).tolist()):
                if not same_word or found[i].lower() == words[position].lower():
                    best.append(Occurrence(line, found, i, similarity, own[i].copy()))
            best.sort(key=lambda occurrence: -occurrence.similarity)
            del best[n_neighbours:]

    for number, line in enumerate(lines):
        found = line.split()
        if found and not (same_word and words[position].lower() not in map(str.lower, found)):
            chunk.append((number, found))
            n_tokens += len(found) + 2
        if embedder.is_chunk(len(chunk), n_tokens):
            search()
            chunk, n_tokens = [], 0
    search()
    return best
