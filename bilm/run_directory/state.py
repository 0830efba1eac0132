"""The training state in a checkpoint, with which a resumed run repeats an uninterrupted one."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import tensorflow as tf

from bilm.data.position import Position
from bilm.errors import CheckpointError
from bilm.io.json_reader import Count, JsonObject, parse_json
from bilm.models.encoder import States
from bilm.training.loss_scale import LossScale
from bilm.training.meter import Meter
from bilm.weights.checkpoint_file import CheckpointFile

_STATE = "bilm/run_state"
_LSTM = "bilm/lstm_state"


@dataclasses.dataclass(frozen=True)
class Best:
    """The step with the lowest heldout perplexity."""

    step: Count
    perplexity: float


@dataclasses.dataclass
class RunState:
    """State of a training run.

    Attributes:
        settings: what may not change when it is resumed, as plain JSON.
        first_step: steps behind the model when the call began.
        n_done: steps of the call.
        n_tokens: targets of the call, in one direction.
        train_perplexity: of the last step.
        positions: of the text, one per worker; none before the first step.
        must_evaluate: whether the heldout text is to be scored before the next step.
        best: so far, or None.
        n_without_gain: evaluations since the best one.
        log_bytes: length of ``metrics.jsonl``.
        meter: sums of the steps since its last line.
        loss_scale: of float16, or None.
    """

    settings: dict[str, Any]
    first_step: Count = 0
    n_done: Count = 0
    n_tokens: Count = 0
    train_perplexity: float = 0.0
    positions: list[Position] = dataclasses.field(default_factory=list)
    must_evaluate: bool = False
    best: Best | None = None
    n_without_gain: Count = 0
    log_bytes: Count = 0
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
            text = json.dumps(dataclasses.asdict(self), allow_nan=False)
            _parsed(text)
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"step {self.step:,}: its state cannot be saved: {error}") from error
        return text


def is_resumable(checkpoint: CheckpointFile) -> bool:
    """Whether a checkpoint has such a state, which no other program writes."""
    return checkpoint.shape(_STATE) is not None


def read_state(checkpoint: CheckpointFile) -> RunState | None:
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
    top = JsonObject("", parse_json(text))
    state = top.read_as(RunState, is_complete=True)
    if top.problems:
        raise ValueError("; ".join(top.problems))
    return state


def read_lstm_states(checkpoint: CheckpointFile, like: tuple[States, ...]) -> tuple[States, ...]:
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
                f"{checkpoint.prefix}: {name} has shape {shape}, expected {tuple(leaf.shape)}"
            )
        array = checkpoint.extra(name)
        if array.dtype.kind != "f":
            raise CheckpointError(f"{checkpoint.prefix}: {name} has {array.dtype}, expected float32")
        arrays.append(tf.constant(array, tf.float32))
    return tf.nest.pack_sequence_as(like, arrays)
