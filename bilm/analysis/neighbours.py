"""The word occurrences in a corpus that are nearest to a word in its sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from bilm.embedding_files.chunks import Embedder, Layers, chunks
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
        lines: the corpus, words separated by whitespace.
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

    def may_have_one(line: tuple[int, list[str]]) -> bool:
        return bool(line[1]) and not (same_word and words[position].lower() not in map(str.lower, line[1]))

    sentences = filter(may_have_one, enumerate(line.split() for line in lines))
    for chunk in chunks(sentences, embedder.is_chunk, itemgetter(1)):
        vectors = embedder.embed_chunk([found for _, found in chunk], layers)
        for (line, found), own in zip(chunk, vectors, strict=True):
            norms = np.maximum(np.linalg.norm(own, axis=1), 1e-12)
            for i, similarity in enumerate((own @ wanted / norms).tolist()):
                if not same_word or found[i].lower() == words[position].lower():
                    best.append(Occurrence(line, found, i, similarity, own[i].copy()))
            best.sort(key=lambda occurrence: -occurrence.similarity)
            del best[n_neighbours:]
    return best
