"""A job as a Ray dataset: files are read in pieces, and what workers make of them comes in their order."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bilm.embedding.parquet_output import SENTENCE
from bilm.io import PathLike
from bilm.ray.cluster import Workers
from bilm.ray.texts import pieces, sentences_of, words_of_a_piece
from bilm.ray.workers import Embed, as_table

if TYPE_CHECKING:
    import pyarrow as pa
    import ray.data

    from bilm.run_directory.model_source import ModelArguments

_MOST_BYTES = 1 << 31  # of a block, so that a piece is one


class EmbedPieces(Embed):
    """`Embed` for the pieces of a text."""

    def __call__(self, batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
        """Embed the sentences of pieces, a row each."""
        return super().__call__(sentences_of(as_table(batch)))


@contextmanager
def in_order() -> Iterator[None]:
    """Let the datasets that are made inside keep the order of their rows, whichever worker is first."""
    import ray.data

    context = ray.data.DataContext.get_current()
    changed = {
        "target_max_block_size": _MOST_BYTES,
        "raise_original_map_exception": True,
        "enable_progress_bars": context.enable_progress_bars and sys.stderr.isatty(),
    }
    before = {name: getattr(context, name) for name in changed}
    preserve_order = context.execution_options.preserve_order
    try:
        context.execution_options.preserve_order = True
        for name, value in changed.items():
            setattr(context, name, value)
        yield
    finally:
        context.execution_options.preserve_order = preserve_order
        for name, value in before.items():
            setattr(context, name, value)


def read_pieces(files: Sequence[str], workers: Workers, most_words: int = 1 << 16) -> ray.data.Dataset:
    """The texts in pieces, one a block, so that a worker gets one at a time.

    Args:
        files: see `bilm.ray.texts.text_files`.
        workers: of the job.
        most_words: of a piece; those of small texts have fewer.
    """
    import ray.data

    n_words = words_of_a_piece(files, workers.n, most_words)
    named = ray.data.from_items(list(files), override_num_blocks=len(files))
    found = named.map_batches(pieces, batch_size=1, fn_kwargs={"n_words": n_words})
    return found.repartition(target_num_rows_per_block=1)


def run_workers(
    texts: ray.data.Dataset, worker: type, workers: Workers, *arguments: Any, **settings: Any
) -> ray.data.Dataset:
    """What workers make of pieces, each a process with a model of its own.

    Args:
        texts: see `read_pieces`.
        worker: a class, made once in each process.
        workers: how many, and what each has.
        arguments: of the class.
        settings: of the class; the number of threads is added.
    """
    import ray.data

    return texts.map_batches(
        worker,
        batch_size=None,
        batch_format="pyarrow",
        fn_constructor_args=arguments,
        fn_constructor_kwargs={**settings, "column": SENTENCE, "n_threads": workers.cpus},
        compute=ray.data.ActorPoolStrategy(size=workers.n),
        num_cpus=workers.reserved_cpus,
        num_gpus=workers.gpus,
    )


def absolute(model: ModelArguments) -> ModelArguments:
    """The arguments with paths that hold in the workers, whatever their current directory is."""
    names = ("model", "save_dir", "options_file", "weight_file")
    given = {name: getattr(model, name) for name in names}
    paths: dict[str, Any] = {name: Path(os.path.abspath(path)) for name, path in given.items() if path}
    return dataclasses.replace(model, **paths)


def absolute_path(path: PathLike | None) -> str | None:
    """A path that holds in the workers."""
    return None if path is None else os.path.abspath(path)


def rows_of(found: ray.data.Dataset, *columns: str) -> Iterator[dict[str, Any]]:
    """The rows of a dataset in their order, of these columns; fetched as they are needed."""
    for table in found.iter_batches(batch_size=None, batch_format="pyarrow"):
        yield from table.select(columns).to_pylist()
