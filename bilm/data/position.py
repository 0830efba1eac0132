"""The position of a stream of training batches: all that is needed to resume it exactly."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from bilm.io.json import Bounds

_Number = Annotated[int, Bounds(least=0, below=1 << 62)]


@dataclass(frozen=True)
class Order:
    """The order in which a corpus is read.

    Attributes:
        shuffle: Take the shards in random order and shuffle the sentences within consecutive blocks;
            a block may span shards. Without it: file order.
        seed: The order depends only on it, the epoch and the number of the block.
        shuffle_buffer: Sentences of a block; blocks of very long lines are shorter.
        part: Number of this worker among several, from 0.
        n_parts: Workers, each of which reads its own part of the corpus.
    """

    shuffle: bool = False
    seed: int = 0
    shuffle_buffer: int = 100_000
    part: int = 0
    n_parts: int = 1


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
    offset: Annotated[int, Bounds(least=1)]

    def contradictions(self) -> list[str]:
        """Contradictions between the values."""
        n_words = len(self.text.split())
        return [f"offset: must be at most the {n_words} words of the text"] if self.offset > n_words else []


@dataclass(frozen=True, eq=False)
class Position:
    """The position of a stream of batches, which goes on in the same order.

    Attributes:
        place: The next sentence.
        rows: The unfinished sentence of each row; None where the next sentence is due.
    """

    place: Place
    rows: Sequence[Unfinished | None]
