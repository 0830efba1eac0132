"""Records of a training run: ``metrics.jsonl`` and ``calls.jsonl``."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from bilm.io import PathLike
from bilm.io.json import JsonObject, read_json_lines
from bilm.training.meter import Meter, Perplexities, mean

METRICS_FILE = "metrics.jsonl"
CALLS_FILE = "calls.jsonl"
ARGUMENTS_FILE = "run.toml"


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Record:
    kind: ClassVar[str]

    step: int
    epoch: float
    tokens: int
    perplexity: float = math.nan
    forward_perplexity: float | None = None
    backward_perplexity: float | None = None
    time: float

    def to_json(self) -> dict[str, Any]:
        """The object of its line, without what is None or not finite."""
        values = {"kind": self.kind} | dataclasses.asdict(self)
        return {
            key: value
            for key, value in values.items()
            if value is not None and (isinstance(value, str) or math.isfinite(value))
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainRecord(_Record):
    """Means over the training steps since the previous record.

    Values that are not finite, as float16 may give, are left out of the file and read as nan.

    Attributes:
        step: steps behind the model.
        epoch: passes over the text since the call began.
        tokens: targets in one direction since the call began.
        loss: per token, in nats, mean of the directions.
        perplexity: exp(loss); of a sample of the classes where `sampled`.
        forward_perplexity, backward_perplexity: of each direction; None for a missing one.
        gradient_norm: global norm before clipping.
        learning_rate: of the last step.
        tokens_per_second: targets in one direction.
        data_wait: percent of the time in which the step waited for its batch.
        time: Unix seconds.
    """

    kind: ClassVar[str] = "train"

    loss: float = math.nan
    sampled: bool
    gradient_norm: float = math.nan
    learning_rate: float
    tokens_per_second: float
    data_wait: float

    @classmethod
    def of(cls, meter: Meter, **others: Any) -> TrainRecord:  # noqa: ANN401
        """The means of a meter, now, and the fields that it does not know."""
        return cls(
            **others,
            **Perplexities.of(meter.direction_losses)._asdict(),
            loss=mean(meter.direction_losses),
            gradient_norm=meter.norms / meter.n_steps,
            learning_rate=meter.learning_rate,
            tokens_per_second=meter.n_tokens / max(meter.seconds, 1e-9),
            data_wait=100.0 * meter.wait_seconds / max(meter.seconds, 1e-9),
            time=time.time(),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeldoutRecord(_Record):
    """Perplexity of the heldout text under the full softmax.

    Attributes:
        step, epoch, tokens, time: as in `TrainRecord`.
        perplexity: of both directions; each has its own.
        train_perplexity: the same of a fixed slice of the training text.
        best: whether it was the lowest up to there.
        seconds: that it took.
    """

    kind: ClassVar[str] = "heldout"

    train_perplexity: float | None = None
    best: bool
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallRecord:
    """One call of ``bilm train`` or ``bilm restart``.

    Attributes:
        command: as it was typed.
        step: steps behind the model when it began.
        seed: of everything random.
        time: Unix seconds.
        versions: of bilm and its dependencies, by name.
        options: as in the run's ``options.json``.
    """

    command: str
    step: int
    seed: int
    time: float
    versions: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Metrics:
    """The records of a run by kind, each in order of steps."""

    train: tuple[TrainRecord, ...]
    heldout: tuple[HeldoutRecord, ...]

    @property
    def last(self) -> TrainRecord | HeldoutRecord | None:
        """The record of the newest step."""
        records: list[TrainRecord | HeldoutRecord] = [*self.train, *self.heldout]
        return max(records, key=lambda record: record.step, default=None)

    @property
    def best(self) -> HeldoutRecord | None:
        """The best heldout perplexity, as the run itself has it."""
        return next((record for record in reversed(self.heldout) if record.best), None)


def read_metrics(path: PathLike) -> Metrics:
    """Read ``metrics.jsonl``; unknown keys and an unfinished last line are passed over.

    Of steps that were taken twice, because a call continued from an earlier checkpoint, the
    records of the later call stay.

    Raises:
        DataError: the file cannot be read, or a line is damaged; names file and line.
    """
    train: list[TrainRecord] = []
    heldout: list[HeldoutRecord] = []
    for record in read_json_lines(path, _read_record):
        # A record takes the place of its kind's at the same step; one of either kind ends what was later.
        _drop_from(train, record.step + isinstance(record, HeldoutRecord))
        _drop_from(heldout, record.step + isinstance(record, TrainRecord))
        if isinstance(record, TrainRecord):
            train.append(record)
        elif isinstance(record, HeldoutRecord):
            heldout.append(record)
    return Metrics(tuple(train), tuple(heldout))


def read_calls(path: PathLike) -> tuple[CallRecord, ...]:
    """Read ``calls.jsonl``, oldest first; as `read_metrics`.

    Raises:
        DataError: the file cannot be read, or a line is damaged; names file and line.
    """
    return tuple(read_json_lines(path, lambda line: line.read_as(CallRecord)))


def _read_record(line: JsonObject) -> TrainRecord | HeldoutRecord:
    kinds: dict[str, type[TrainRecord | HeldoutRecord]] = {"train": TrainRecord, "heldout": HeldoutRecord}
    kind = line.take("kind", str)
    if kind is not None and kind not in kinds:
        line.problems.append(f"kind: expected one of {', '.join(kinds)}, got {kind}")
    return line.read_as(kinds.get(kind, TrainRecord))


def _drop_from(records: list[Any], step: int) -> None:
    while records and records[-1].step >= step:
        records.pop()
