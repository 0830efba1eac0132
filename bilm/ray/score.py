"""Scoring texts on Ray: log-probabilities of their sentences, and their perplexity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bilm.embedding.parquet_output import FILE, LINE, TOKENS
from bilm.embedding.scoring import SentenceScore
from bilm.errors import DataError
from bilm.io import PathLike
from bilm.ray.cluster import Cluster
from bilm.ray.pipeline import absolute, absolute_path, in_order, read_pieces, rows_of, run_workers
from bilm.ray.texts import sentences_of, text_files
from bilm.ray.workers import Score, as_table
from bilm.run_directory.model_source import ModelArguments
from bilm.runs.results import TestResult
from bilm.training.meter import Perplexities

if TYPE_CHECKING:
    import pyarrow as pa


class ScorePieces(Score):
    """`Score` for the pieces of a text."""

    def __call__(self, batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
        """Score the sentences of pieces, a row each."""
        return super().__call__(sentences_of(as_table(batch)))


class SumPieces(ScorePieces):
    """Sums of the log-probabilities of pieces, so that no more goes through the driver."""

    def __call__(self, batch: pa.Table | Mapping[str, np.ndarray]) -> pa.Table:
        """One row of sums."""
        import pyarrow as pa
        import pyarrow.compute as pc

        scores = super().__call__(batch)
        known = pc.list_flatten(scores["known"])
        columns: dict[str, float] = {
            "unknown": len(known) - (pc.sum(known).as_py() or 0),
            "words": len(known),
        }
        for name in ("forward", "backward"):
            values = pc.list_flatten(scores[name]).to_numpy().astype(np.float64)
            columns[name] = float(values.sum())
            columns[f"n_{name}"] = len(values)
        return pa.table(
            {name: [value] for name, value in {**columns, "model": self.name, "step": self.step}.items()}
        )


def score(
    texts: Sequence[str],
    model: ModelArguments,
    vocab_file: PathLike | None = None,
    *,
    cluster: Cluster | None = None,
) -> Iterator[tuple[str, int, SentenceScore]]:
    """Score the sentences of texts on Ray, each by itself, as ``bilm score`` does.

    Args:
        texts: files, directories and globs, or URLs; the workers read them.
        model: a run, or weights with their softmax; the workers open it.
        vocab_file: see `bilm.test`.
        cluster: where, see `Cluster`.

    Yields:
        The file, the number of the line from 0, and its score, in the order of the texts; no blank lines.

    Raises:
        BilmError: as `bilm.ray.embed.embed`, or the model has no softmax.
    """
    files = text_files(texts)
    with (cluster or Cluster()).connected() as workers, in_order():
        pieces = read_pieces(files, workers)
        found = run_workers(pieces, ScorePieces, workers, absolute(model), absolute_path(vocab_file))
        for row in rows_of(found, FILE, LINE, TOKENS, "known", "forward", "backward"):
            if row[TOKENS]:
                forward = np.array(row["forward"], np.float32)
                backward = None if row["backward"] is None else np.array(row["backward"], np.float32)
                yield (
                    row[FILE],
                    row[LINE],
                    SentenceScore(row[TOKENS], forward, backward, np.array(row["known"])),
                )


def test(
    texts: Sequence[str],
    model: ModelArguments,
    vocab_file: PathLike | None = None,
    *,
    cluster: Cluster | None = None,
) -> TestResult:
    """The perplexity of texts whose sentences are scored on Ray, each from zero state.

    `bilm.test` carries the LSTM states from sentence to sentence, so that the first words of a sentence are
    predicted from those before it; here nothing stands before them, and the perplexity is somewhat higher.

    Args:
        texts: as `score`.
        model: as `score`.
        vocab_file: as `score`.
        cluster: as `score`.

    Raises:
        BilmError: as `score`, or there are no sentences.
    """
    files = text_files(texts)
    sums = dict.fromkeys(("forward", "backward", "n_forward", "n_backward", "words", "unknown"), 0.0)
    with (cluster or Cluster()).connected() as workers, in_order():
        pieces = read_pieces(files, workers)
        found = run_workers(pieces, SumPieces, workers, absolute(model), absolute_path(vocab_file))
        for row in rows_of(found, *sums, "model", "step"):
            for name in sums:
                sums[name] += row[name]
    if not sums["words"]:
        raise DataError(f"no sentences in {', '.join(texts)}: the text is empty")
    directions = [name for name in ("forward", "backward") if sums[f"n_{name}"]]
    losses = tuple(-sums[name] / sums[f"n_{name}"] for name in directions)
    return TestResult(
        **Perplexities.of(losses)._asdict(),
        tokens=int(sums["n_forward"]),
        oov_rate=sums["unknown"] / sums["words"],
        checkpoint=row["model"],
        step=row["step"],
    )
