"""Vectors that Ray's workers make, joined by this process into one file of HDF5."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bilm.embedding.embed_file import EmbeddingReport, FileFormat, embed_file
from bilm.embedding.embedder import ElmoEmbedder
from bilm.embedding.packing import Layers
from bilm.embedding.parquet_output import TOKENS, VECTORS, vectors_of
from bilm.io import PathLike
from bilm.ray.cluster import Cluster
from bilm.ray.pipeline import EmbedPieces, absolute, absolute_path, in_order, read_pieces, run_workers
from bilm.ray.texts import lines_of, text_files
from bilm.run_directory.model_source import ModelArguments


class _MadeElsewhere:
    """An embedder whose vectors come from a dataset, in the order of the sentences.

    Args:
        model: the same one, for what is to be known of it.
        rows: words and vectors of each line; those of lines that are not asked for are passed over.
    """

    stateful = False
    n_at_once = 1

    def __init__(self, model: ElmoEmbedder, rows: Iterator[tuple[list[str], np.ndarray]]) -> None:
        self._model, self._rows = model, rows
        self.n_layers, self.dim, self.fingerprint = model.n_layers, model.dim, model.fingerprint

    def is_chunk(self, n_sentences: int, n_tokens: int) -> bool:
        return self._model.is_chunk(n_sentences, n_tokens)

    def embed_chunk(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        return [next(vectors for found, vectors in self._rows if found == words) for words in sentences]


def embed_hdf5(
    text: str,
    outfile: PathLike,
    model: ModelArguments,
    vocab_file: str | Path | None,
    form: FileFormat,
    *,
    cluster: Cluster | None = None,
    overwrite: bool = False,
    **settings: Any,
) -> EmbeddingReport:
    """Embed a text on Ray into one file, as `bilm.embedding.embed_file`; all vectors pass through here.

    Args:
        text: a file, or a URL.
        outfile: HDF5, local.
        model: opened here, to be described, and by the workers.
        vocab_file: of a word-level model.
        form: what is written.
        cluster: where, see `Cluster`.
        overwrite: replace what is there.
        settings: of `ElmoEmbedder`.

    Raises:
        BilmError: as `bilm.ray.embed.embed`.
    """
    (file,) = text_files([text])
    embedder = ElmoEmbedder.of_arguments(model, vocab_file, **settings, cuda_device=-1)
    settings |= {"layers": form.layers, "dtype": form.dtype}
    with (cluster or Cluster()).connected() as workers, in_order():
        pieces = read_pieces([file], workers)
        found = run_workers(
            pieces, EmbedPieces, workers, absolute(model), absolute_path(vocab_file), **settings
        )
        made = _MadeElsewhere(embedder, _rows(found))
        return embed_file(made, lines_of(file), Path(os.path.abspath(outfile)), form, overwrite=overwrite)


def _rows(found: Any) -> Iterator[tuple[list[str], np.ndarray]]:  # noqa: ANN401
    for table in found.iter_batches(batch_size=None, batch_format="pyarrow"):
        yield from zip(table[TOKENS].to_pylist(), vectors_of(table[VECTORS]), strict=True)
