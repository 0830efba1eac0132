"""The texts of a call: counted, reported and read in passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilm.data.corpus import CorpusCounts, corpus_record, count_corpus, describe_corpus, recorded_counts
from bilm.data.pipeline import Batch, evaluation_batches
from bilm.errors import DataError
from bilm.io.background import prefetch
from bilm.options import Options
from bilm.runs.reporter import Reporter
from bilm.vocabulary.vocabulary import Vocabulary


@dataclass(frozen=True)
class Text:
    """A corpus that was read once, and its vocabulary."""

    files: tuple[Path, ...]
    vocabulary: Vocabulary
    counts: CorpusCounts

    @property
    def record(self) -> dict[str, Any]:
        """By which the text is known again wherever it lies; see `bilm.data.corpus`."""
        return corpus_record(self.counts)

    def batches(
        self, options: Options, *, compat: bool = False, max_tokens: int | None = None
    ) -> Iterator[Batch]:
        """One pass to be scored, made in the background; see `bilm.data.pipeline.evaluation_batches`.

        The text must be as it was counted, as in every pass.
        """
        return prefetch(
            evaluation_batches(
                self.counts.shards,
                self.vocabulary,
                options,
                compat=compat,
                max_tokens=max_tokens,
            )
        )


def read_text(
    files: tuple[Path, ...],
    vocabulary: Vocabulary,
    reporter: Reporter,
    name: str = "corpus",
    record: object = None,
    argument: str = "",
) -> Text:
    """Count the text, and say what was found.

    Args:
        files: of the text.
        vocabulary: of the model.
        reporter: told of it.
        name: what to call the text.
        record: `Text.record` of the call that is resumed, if there is one; what is the same is not
            counted again.
        argument: that gave the files.

    Raises:
        DataError: the text cannot be read, is empty, or is not that of the record.
    """
    counts = count_corpus(files, vocabulary) if record is None else _recorded(record, files, argument)
    reporter.say(describe_corpus(counts, name))
    return Text(files, vocabulary, counts)


def _recorded(record: object, files: Sequence[Path], argument: str) -> CorpusCounts:
    try:
        return recorded_counts(record, files)
    except DataError as error:
        raise DataError(
            f"`{argument}`: cannot be resumed with another text: {error}; give the original text, or "
            "continue with `bilm restart`"
        ) from error
