"""The position in a stream of training batches: all that is needed to continue from there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from bilm.errors import CheckpointError
from bilm.io.json_reader import JsonObject

_TOO_MANY = 1 << 62


@dataclass(frozen=True)
class Order:
    """How a corpus is gone through.

    Attributes:
        n_files: Files of the whole corpus.
        shuffle: Take the shards in random order and shuffle the sentences within consecutive blocks;
            a block may go over shards. Without it: file order.
        seed: The order depends on it, the epoch and the number of the block only.
        shuffle_buffer: Sentences of a block; blocks of very long lines are ended sooner.
        part: Of a job on several workers, the one this is, from 0.
        n_parts: Workers, each of which reads its own part of the corpus.
    """

    n_files: int
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

    epoch: int = 0
    block: int = 0
    shard: int = 0
    line: int = 0
    taken: int = 0
    sentence: int = 0

    def after(self, n_sentences: int) -> Place:
        """The place after that many more sentences of the same block."""
        taken, sentence = self.taken + n_sentences, self.sentence + n_sentences
        return dataclasses.replace(self, taken=taken, sentence=sentence)


class Unfinished(NamedTuple):
    """A sentence that a row has begun and not ended.

    Attributes:
        text: Its words with spaces between them.
        offset: Inputs already read of it, the first of which is ``<S>``; at least 1, at most its words.
    """

    text: str
    offset: int


@dataclass(frozen=True, eq=False)
class Position:
    """The position of a stream of batches.

    Attributes:
        order: How the stream goes through the corpus; a stream that goes on must go likewise.
        place: The next sentence.
        rows: What each row has not finished; None where the next sentence is due.
    """

    order: Order
    place: Place
    rows: Sequence[Unfinished | None]

    @property
    def epoch(self) -> int:
        """Epochs behind the stream."""
        return self.place.epoch

    @property
    def sentence(self) -> int:
        """Sentences taken in this epoch."""
        return self.place.sentence

    def to_json(self) -> dict[str, Any]:
        """Plain values that JSON can hold; `from_json` reads them."""
        return {
            "order": dataclasses.asdict(self.order),
            "place": dataclasses.asdict(self.place),
            "rows": [None if row is None else row._asdict() for row in self.rows],
        }

    @classmethod
    def from_json(cls, value: object) -> Position:
        """Read what `to_json` gave.

        Raises:
            CheckpointError: It is anything else; every problem is named.
        """
        problems: list[str] = []
        whole = JsonObject("position", value, problems)
        order, place = _read_order(_section(whole, "order")), _read_place(_section(whole, "place"))
        rows = whole.take("rows", "a list") or []
        unfinished = [_read_row(f"position.rows[{k}]", row, problems) for k, row in enumerate(rows)]
        whole.finish(None)
        if problems:
            more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
            raise CheckpointError(f"not a position in the text: {'; '.join(problems[:3])}{more}")
        return cls(order, place, unfinished)


def _section(whole: JsonObject, key: str) -> JsonObject:
    whole.taken.add(key)
    return JsonObject(whole.path(key), whole.values.get(key), whole.problems)


def _read_order(values: JsonObject) -> Order:
    order = Order(
        n_files=values.take("n_files", "an integer", least=1, below=_TOO_MANY),
        shuffle=values.take("shuffle", "true or false"),
        seed=values.take("seed", "an integer", least=0, below=_TOO_MANY),
        shuffle_buffer=values.take("shuffle_buffer", "an integer", least=1, below=_TOO_MANY),
        part=values.take("part", "an integer", least=0, below=_TOO_MANY),
        n_parts=values.take("n_parts", "an integer", least=1, below=_TOO_MANY),
    )
    values.finish(None)
    if not values.problems and order.part >= order.n_parts:
        values.problems.append(f"{values.path('part')}: must be below n_parts")
    return order


def _read_place(values: JsonObject) -> Place:
    place = Place(
        *(
            values.take(field.name, "an integer", least=0, below=_TOO_MANY)
            for field in dataclasses.fields(Place)
        )
    )
    values.finish(None)
    if not values.problems and place.taken > place.sentence:
        values.problems.append(f"{values.path('taken')}: must be at most sentence")
    return place


def _read_row(name: str, value: object, problems: list[str]) -> Unfinished | None:
    if value is None:
        return None
    values = JsonObject(name, value, problems)
    text = values.take("text", "a string")
    offset = values.take("offset", "an integer", least=1, below=_TOO_MANY)
    values.finish(None)
    if text is not None and offset is not None and offset > len(text.split()):
        problems.append(f"{values.path('offset')}: must be at most the {len(text.split())} words of the text")
    return Unfinished(text or "", offset or 1)
