"""Records of a training run: ``metrics.jsonl`` and ``calls.jsonl``."""

import dataclasses
import logging
import math
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from bilm import __version__
from bilm.io import PathLike, json_objects
from bilm.training.meter import Meter, Perplexities, mean

WRITER = f"bilm {__version__}"
"""Value of ``written_by`` in the files of a run."""

_LOG = logging.getLogger(__name__)


def warn_of_unknown(file: PathLike, keys: Sequence[str], writer: str) -> None:
    """Log a warning that names the keys that this version does not know, if any, and what wrote them."""
    if keys:
        names = ", ".join(keys)
        _LOG.warning("%s: written by %s; unknown to %s and ignored: %s", file, writer, WRITER, names)


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
        """Return the JSON object of the record, without values that are None or not finite."""
        values = {"kind": self.kind} | dataclasses.asdict(self)
        known = {key: value for key, value in values.items() if value is not None}
        return {key: value for key, value in known.items() if isinstance(value, str) or math.isfinite(value)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainRecord(_Record):
    """Means over the training steps since the previous record.

    Values that are not finite, as float16 may give, are left out of the file and read as nan.

    Attributes:
        step: training steps of the model.
        epoch: passes over the text since the call began.
        tokens: targets in one direction since the call began.
        loss: loss per token in nats, mean of the directions.
        perplexity: exp(loss); over the sampled classes if `sampled`.
        forward_perplexity, backward_perplexity: perplexity of each direction; None for a missing direction.
        sampled: true if the loss is that of a sampled softmax.
        gradient_norm: global norm before clipping.
        learning_rate: learning rate of the last step.
        tokens_per_second: targets in one direction per second.
        data_wait: percent of the time spent waiting for batches.
        time: Unix time in seconds.
    """

    kind: ClassVar[str] = "train"

    loss: float = math.nan
    sampled: bool
    gradient_norm: float = math.nan
    learning_rate: float
    tokens_per_second: float
    data_wait: float

    @classmethod
    def from_meter(cls, meter: Meter, **others: Any) -> "TrainRecord":  # noqa: ANN401
        """Make a record from the means of a meter, the current time and the remaining fields."""
        return cls(
            **others,
            **Perplexities.from_losses(meter.direction_losses)._asdict(),
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
        perplexity: perplexity of both directions together.
        forward_perplexity, backward_perplexity: as in `TrainRecord`.
        known_perplexity: perplexity of the words in the vocabulary and the ends of sentences.
        train_perplexity: perplexity of a fixed slice of the training text.
        best: true if it is the lowest perplexity so far.
        seconds: duration of the validation.
    """

    kind: ClassVar[str] = "heldout"

    known_perplexity: float | None = None
    train_perplexity: float | None = None
    best: bool
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallRecord:
    """One call of ``bilm train`` or ``bilm restart``.

    Attributes:
        command: command as it was typed.
        step: training steps of the model when the call began.
        seed: random seed.
        time: Unix time in seconds.
        versions: versions of bilm and its dependencies, by name.
        options: options as in ``options.json`` of the run.
        n_done: steps of the call before, if it resumes one; None if an earlier version wrote the record.
    """

    command: str
    step: int
    seed: int
    time: Annotated[float, json_objects.Bounds(least=0, below=1 << 40)]
    versions: Mapping[str, Any]
    options: Mapping[str, Any]
    n_done: json_objects.Count | None = None


@dataclasses.dataclass(frozen=True)
class Metrics:
    """Records of a run by kind, in order of steps; and the steps from which train and restart began."""

    train: tuple[TrainRecord, ...]
    heldout: tuple[HeldoutRecord, ...]
    begun: tuple[int, ...] = ()

    @property
    def last(self) -> TrainRecord | HeldoutRecord | None:
        """Record of the last step, or None."""
        records: list[TrainRecord | HeldoutRecord] = [*self.train, *self.heldout]
        return max(records, key=lambda record: record.step, default=None)

    @property
    def best(self) -> HeldoutRecord | None:
        """Record with the best heldout perplexity, or None."""
        return next((record for record in reversed(self.heldout) if record.best), None)


def read_metrics(path: PathLike) -> Metrics:
    """Read ``metrics.jsonl``; leaves out unknown keys and damaged lines with a warning.

    If a call continued from an earlier checkpoint, its records replace the older ones of the same steps.

    Raises:
        DataError: the file cannot be read.
    """
    by_kind: dict[type, list[Any]] = {TrainRecord: [], HeldoutRecord: []}
    read, unknown = json_objects.read_json_lines(path, _read_record)
    warn_of_unknown(path, unknown, "another version")
    for record in read:
        # A record replaces one of its kind at the same step, and all records of later steps.
        for kind, records in by_kind.items():
            while records and records[-1].step >= record.step + (kind is not type(record)):
                records.pop()
        by_kind[type(record)].append(record)
    return Metrics(*map(tuple, by_kind.values()))


def read_calls(path: PathLike) -> tuple[CallRecord, ...]:
    """Read ``calls.jsonl``, oldest first; otherwise as `read_metrics`.

    Raises:
        DataError: the file cannot be read.
    """
    calls, unknown = json_objects.read_json_lines(path, lambda line: line.read_as(CallRecord))
    versions = dict.fromkeys(f"bilm {call.versions.get('bilm')}" for call in calls)
    warn_of_unknown(path, unknown, " or ".join(versions))
    return tuple(calls)


def _read_record(line: json_objects.JsonObject) -> TrainRecord | HeldoutRecord:
    kinds: dict[str, type[TrainRecord | HeldoutRecord]] = {"train": TrainRecord, "heldout": HeldoutRecord}
    kind = line.take("kind", str)
    if kind is not None and kind not in kinds:
        line.problems.append(f"kind: expected one of {', '.join(kinds)}, got {kind}")
    return line.read_as(kinds.get(kind, TrainRecord))
