"""One model on several devices, each of which embeds a chunk of the sentences at a time."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue

import numpy as np

from bilm.embedding.packed_embedder import PackedEmbedder
from bilm.embedding_files.chunks import Layers


class Replicas:
    """Embedders of the same model; as many threads may call it at the same time.

    Args:
        embedders: at least one.
    """

    def __init__(self, embedders: Sequence[PackedEmbedder]) -> None:
        self.embedders = tuple(embedders)
        self.first = self.embedders[0]
        self._free: SimpleQueue[PackedEmbedder] = SimpleQueue()
        for embedder in self.embedders:
            self._free.put(embedder)

    def __reduce__(self) -> tuple[type[Replicas], tuple[Sequence[PackedEmbedder]]]:
        """Pickle and copy the embedders."""
        return Replicas, (self.embedders,)

    def __call__(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """As `PackedEmbedder`, by the first that is free."""
        embedder = self._free.get()
        try:
            return embedder(sentences, layers, dtype)
        finally:
            self._free.put(embedder)

    def with_rows(self, batch_size: int) -> Replicas:
        """See `PackedEmbedder.with_rows`."""
        return Replicas([embedder.with_rows(batch_size) for embedder in self.embedders])
