"""The position of a stream of training batches: all that is needed to resume it exactly."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from bilm.errors import CheckpointError
from bilm.io.json import Bounds, JsonObject

_Number = Annotated[int, Bounds(least=0, below=1 << 62)]
_Positive = Annotated[int, Bounds(least=1, below=1 << 62)]


@dataclass(frozen=True)
class Order:
    """The order in which a corpus is read.

    Attributes:
        n_files: Files of the whole corpus.
        shuffle: Take the shards in random order and shuffle the sentences within consecutive blocks;
            a block may span shards. Without it: file order.
        seed: The order depends only on it, the epoch and the number of the block.
        shuffle_buffer: Sentences of a block; blocks of very long lines are shorter.
        part: Number of this worker among several, from 0.
        n_parts: Workers, each of which reads its own part of the corpus.
    """

    n_files: _Positive
    shuffle: bool = False
    seed: _Number = 0
    shuffle_buffer: _Positive = 100_000
    part: _Number = 0
    n_parts: _Positive = 1

    def contradictions(self) -> list[str]:
        """Contradictions between the values."""
        return ["part: must be below n_parts"] if self.part >= self.n_parts else []


@dataclass(frozen=True)
class Place:
    """The next sentence to take.

    Attributes:
        epoch: From 0.
        block: Number of its shuffled block in the epoch, from 0.
        shard: Where the block begins: shard, from 0 in the order of the epoch.
        line: Sentences of this part in that shard before the block.
        taken: Sentences of the block taken before it.
        sentence: Sentences of the epoch taken before it.
    """

    epoch: _Number = 0
    block: _Number = 0
    shard: _Number = 0
    line: _Number = 0
    taken: _Number = 0
    sentence: _Number = 0

    def contradictions(self) -> list[str]:
        """Contradictions between the values."""
        return ["taken: must be at most sentence"] if self.taken > self.sentence else []

    def after(self, n_sentences: int) -> Place:
        """The place after that many more sentences of the same block."""
        taken, sentence = self.taken + n_sentences, self.sentence + n_sentences
        return dataclasses.replace(self, taken=taken, sentence=sentence)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A sentence that a row has begun and not finished.

    Attributes:
        text: Its words with spaces between them.
        offset: Number of its inputs already read, ``<S>`` the first; at least 1, at most its words.
    """

    text: str
    offset: _Positive

    def contradictions(self) -> list[str]:
        """Contradictions between the values."""
        n_words = len(self.text.split())
        return [f"offset: must be at most the {n_words} words of the text"] if self.offset > n_words else []


@dataclass(frozen=True, eq=False)
class Position:
    """The position of a stream of batches.

    Attributes:
        order: The order in which the corpus is read; a resumed stream must have the same.
        place: The next sentence.
        rows: The unfinished sentence of each row; None where the next sentence is due.
    """

    order: Order
    place: Place
    rows: Sequence[Unfinished | None]

    @property
    def epoch(self) -> int:
        """Number of finished epochs."""
        return self.place.epoch

    @property
    def sentence(self) -> int:
        """Sentences taken in this epoch."""
        return self.place.sentence

    def to_json(self) -> dict[str, Any]:
        """Plain values that JSON can hold; `from_json` reads them."""
        return dataclasses.asdict(dataclasses.replace(self, rows=list(self.rows)))

    @classmethod
    def from_json(cls, value: object) -> Position:
        """Read what `to_json` gave.

        Raises:
            CheckpointError: It is something else; lists every problem.
        """
        whole = JsonObject("position", value)
        position = whole.read_as(cls, is_complete=True)
        whole.refuse_unknown()
        problems = whole.problems
        if problems:
            more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise CheckpointError(f"not a valid position in the text: {'; '.join(problems[:3])}{more}")
        return position
