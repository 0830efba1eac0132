"""What a checkpoint holds besides the weights, so that training resumes as if it had never stopped."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, Protocol

import tensorflow as tf

from bilm.data.position import Position
from bilm.errors import CheckpointError
from bilm.io.json_reader import JsonObject, parse_json
from bilm.models.encoder import States
from bilm.training.loss_scale import LossScale
from bilm.training.meter import Meter

_STATE = "bilm/run_state"
_LSTM = "bilm/lstm_state"


@dataclasses.dataclass(frozen=True)
class Best:
    """The step with the lowest heldout perplexity."""

    step: int
    perplexity: float


@dataclasses.dataclass
class RunState:
    """Where a call of training stands.

    Attributes:
        settings: what may not change when it is resumed, as plain JSON.
        first_step: steps behind the model when the call began.
        n_done: steps of the call.
        n_tokens: targets of the call, in one direction.
        train_perplexity: of the last step.
        positions: of the text, one a worker; none before the first step.
        must_evaluate: whether the heldout text is to be scored before the next step.
        best: so far, or None.
        n_without_gain: evaluations since the best one.
        log_bytes: length of ``metrics.jsonl``.
        meter: sums of the steps since its last line.
        loss_scale: of float16, or None.
    """

    settings: dict[str, Any]
    first_step: int = 0
    n_done: int = 0
    n_tokens: int = 0
    train_perplexity: float = 0.0
    positions: list[Position] = dataclasses.field(default_factory=list)
    must_evaluate: bool = False
    best: Best | None = None
    n_without_gain: int = 0
    log_bytes: int = 0
    meter: Meter = dataclasses.field(default_factory=Meter)
    loss_scale: LossScale | None = None

    @property
    def step(self) -> int:
        """Steps behind the model."""
        return self.first_step + self.n_done

    def tensors(self, states: tuple[States, ...]) -> dict[str, tf.Tensor]:
        """What goes into a checkpoint, with the LSTM states of every part."""
        text = self._text()
        leaves = tf.nest.flatten(states)
        return {_STATE: tf.constant(text)} | {f"{_LSTM}/{i}": leaf for i, leaf in enumerate(leaves)}

    def _text(self) -> str:
        """The state as JSON that can be read again; that is found out here, not by who resumes.

        Raises:
            CheckpointError: it cannot.
        """
        try:
            text = json.dumps(self._to_json(), allow_nan=False)
            _parsed(text)
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"step {self.step:,}: its state cannot be saved: {error}") from error
        return text

    def _to_json(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return values | {
            "positions": [position.to_json() for position in self.positions],
            "best": None if self.best is None else dataclasses.asdict(self.best),
            "meter": dataclasses.asdict(self.meter),
            "loss_scale": None if self.loss_scale is None else vars(self.loss_scale),
        }


class ExtrasFile(Protocol):
    """What is needed of `bilm.weights.files.CheckpointFile`."""

    prefix: str

    def extra(self, name: str) -> Any:  # noqa: ANN401
        """A value by its name, or None."""

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Its shape, or None."""


def is_resumable(checkpoint: ExtrasFile) -> bool:
    """Whether a checkpoint has such a state, which no other program writes."""
    return checkpoint.shape(_STATE) is not None


def read_state(checkpoint: ExtrasFile) -> RunState | None:
    """The state in a checkpoint; None if it was not written by a call of ours that can be resumed.

    Raises:
        CheckpointError: it is damaged.
    """
    text = checkpoint.extra(_STATE)
    if text is None:
        return None
    try:
        return _parsed(text)
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{checkpoint.prefix}: {_STATE} is damaged: {error}") from error


def _parsed(text: str | bytes) -> RunState:
    problems: list[str] = []
    state = _state(parse_json(text), problems)
    if problems:
        raise ValueError("; ".join(problems))
    return state


def read_lstm_states(checkpoint: ExtrasFile, like: tuple[States, ...]) -> tuple[States, ...]:
    """The LSTM states in a checkpoint.

    Args:
        checkpoint: of a run that is resumed.
        like: states of the shapes wanted.

    Raises:
        CheckpointError: they are missing, or have other shapes.
    """
    arrays = []
    for i, leaf in enumerate(tf.nest.flatten(like)):
        name = f"{_LSTM}/{i}"
        shape = checkpoint.shape(name)
        if shape != tuple(leaf.shape):
            raise CheckpointError(
                f"{checkpoint.prefix}: {name} has shape {shape}, wanted {tuple(leaf.shape)}"
            )
        array = checkpoint.extra(name)
        if array.dtype.kind != "f":
            raise CheckpointError(f"{checkpoint.prefix}: {name} has {array.dtype}, wanted float32")
        arrays.append(tf.constant(array, tf.float32))
    return tf.nest.pack_sequence_as(like, arrays)


def _state(values: object, problems: list[str]) -> RunState:
    top = JsonObject("", values, problems)
    settings = top.values.get("settings")
    positions = top.take("positions", "a list") or []

    def count(key: str) -> int:
        return top.take(key, "an integer", least=0)

    state = RunState(
        settings=dict(settings) if isinstance(settings, Mapping) else {},
        first_step=count("first_step"),
        n_done=count("n_done"),
        n_tokens=count("n_tokens"),
        train_perplexity=top.take("train_perplexity", "a number"),
        positions=[Position.from_json(position) for position in positions],
        must_evaluate=top.take("must_evaluate", "true or false"),
        best=_best(top.values.get("best"), problems),
        n_without_gain=count("n_without_gain"),
        log_bytes=count("log_bytes"),
        meter=_meter(top.values.get("meter"), problems),
        loss_scale=_loss_scale(top.values.get("loss_scale"), problems),
    )
    if not isinstance(settings, Mapping):
        problems.append("settings: missing")
    return state


def _best(values: object, problems: list[str]) -> Best | None:
    if values is None:
        return None
    section = JsonObject("best", values, problems)
    return Best(section.take("step", "an integer", least=0), section.take("perplexity", "a number"))


def _loss_scale(values: object, problems: list[str]) -> LossScale | None:
    if values is None:
        return None
    section = JsonObject("loss_scale", values, problems)
    return LossScale(
        section.take("value", "a number", least=1), section.take("n_good_steps", "an integer", least=0)
    )


def _meter(values: object, problems: list[str]) -> Meter:
    section = JsonObject("meter", values, problems)
    losses = section.take("losses", "a list") or []
    if not all(isinstance(loss, float) and math.isfinite(loss) for loss in losses):
        problems.append("meter.losses: expected numbers")
    return Meter(
        losses=losses,
        n_tokens=section.take("n_tokens", "an integer", least=0),
        n_steps=section.take("n_steps", "an integer", least=0),
        norms=section.take("norms", "a number"),
        learning_rate=section.take("learning_rate", "a number"),
        seconds=section.take("seconds", "a number"),
        wait_seconds=section.take("wait_seconds", "a number"),
    )
