"""Sentences in chunks that are embedded together, and what embeds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol, TypeVar

import numpy as np

_Sentence = TypeVar("_Sentence")

Layers = Literal["all", "top", "average"] | int
"""Which layers: all of them, the top one, their plain mean, or one by its number from 0, the word vectors."""


class Embedder(Protocol):
    """What makes the vectors, see `bilm.embedding.embedder.ElmoEmbedder`."""

    @property
    def n_layers(self) -> int:
        """Layers of a result."""

    @property
    def dim(self) -> int:
        """Width of a result."""

    @property
    def stateful(self) -> bool:
        """Whether a vector depends on the sentences before."""

    @property
    def fingerprint(self) -> str:
        """What tells the model from others."""

    @property
    def n_at_once(self) -> int:
        """Chunks that can be embedded at the same time."""

    def is_chunk(self, n_sentences: int, n_tokens: int) -> bool:
        """Whether sentences are enough to be embedded together."""

    def embed_chunk(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """Vectors of sentences, in their order."""


def no_vectors(embedder: Embedder, layers: Layers, dtype: str) -> np.ndarray:
    """Those of a blank sentence: (layers, 0, dim) for all layers, else (0, dim)."""
    return np.zeros((embedder.n_layers, 0, embedder.dim) if layers == "all" else (0, embedder.dim), dtype)


def chunks(
    sentences: Iterable[_Sentence],
    is_enough: Callable[[int, int], bool],
    words_of: Callable[[_Sentence], Sequence[str] | None],
) -> Iterator[list[_Sentence]]:
    """Sentences to be worked on together, in their order; none is empty.

    Args:
        sentences: any number of them, with whatever belongs to each.
        is_enough: whether so many sentences, and so many tokens with their marks, are a chunk.
        words_of: words of a sentence; None of what is none and goes with the others.
    """
    chunk: list[_Sentence] = []
    n_sentences = n_tokens = 0
    for sentence in sentences:
        chunk.append(sentence)
        words = words_of(sentence)
        n_sentences += words is not None
        n_tokens += len(words or ()) + 2
        if is_enough(n_sentences, n_tokens):
            yield chunk
            chunk, n_sentences, n_tokens = [], 0, 0
    if chunk:
        yield chunk
