"""What a run records of its text: the state of the files, and the counts."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from bilm.data.corpus import CorpusCounts
from bilm.errors import CheckpointError, DataError
from bilm.io.json_reader import Bounds, Count, JsonObject, is_kind
from bilm.io.reasons import os_errors_as
from bilm.text.shards import Shard, same_shards

_COUNTS = ("n_sentences", "n_blank_lines", "n_words", "n_oov")


@dataclasses.dataclass(frozen=True)
class _Record:
    shards: list[Shard]
    n_sentences: Count
    n_blank_lines: Count
    n_words: Annotated[int, Bounds(least=1)]
    n_oov: Count


def corpus_record(counts: CorpusCounts) -> dict[str, Any]:
    """A counted text in plain values that JSON can hold; `recorded_counts` reads them."""
    shards = [
        dataclasses.asdict(dataclasses.replace(shard, path=os.path.abspath(shard))) for shard in counts.shards
    ]
    return {"shards": shards} | {name: getattr(counts, name) for name in _COUNTS}


def recorded_counts(record: object, files: Sequence[Path]) -> CorpusCounts | None:
    """What was counted in a text, if it is still the same; nothing of it is decompressed.

    Args:
        record: What `corpus_record` gave, or the sizes of the files by their names, as bilm 0.1 saved them.
        files: Where the text lies now.

    Returns:
        The counts, without those of the single words; None where only the sizes are known, so that the
        text has to be counted again.

    Raises:
        CheckpointError: The record is damaged.
        DataError: The text is another; says what differs.
    """
    if isinstance(record, Mapping) and all(is_kind(size, "an integer") for size in record.values()):
        _require_sizes(record, files)
        return None
    problems: list[str] = []
    values = JsonObject("text", record, problems)
    found = values.read_as(_Record)
    if problems:
        raise CheckpointError(f"not a valid record of a text: {'; '.join(problems[:3])}")
    numbers = {name: getattr(found, name) for name in _COUNTS}
    shards = same_shards(found.shards, files)
    return CorpusCounts(len(files), word_counts=np.zeros(0, np.int64), shards=shards, **numbers)


def _require_sizes(sizes: Mapping[str, int], files: Sequence[Path]) -> None:
    """Compare names, order and sizes, of files of one name those of the last."""
    now = {}
    for path in files:
        with os_errors_as(DataError, str(path)):
            now[path.name] = path.stat().st_size
    if list(now) != list(sizes):
        raise DataError(f"the files were {', '.join(sizes)}, and are now {', '.join(now)}")
    for name, size in sizes.items():
        Shard(name, size, 0, 0).require(now[name])
