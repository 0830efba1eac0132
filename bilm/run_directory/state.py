"""The contents of a checkpoint: training state and optimizer state."""

import dataclasses
import json
import logging
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from bilm.data.stream import Position
from bilm.errors import CheckpointError
from bilm.io.json_objects import Count, JsonObject, parse_json
from bilm.models.encoder import States
from bilm.options.plan import Plan
from bilm.run_directory.records import WRITER, warn_of_unknown
from bilm.training.meter import LossScale, Meter, StepReport
from bilm.training.optimizers import TrainingOptimizer, Variables
from bilm.weights import transfer
from bilm.weights.checkpoint_file import CheckpointFile
from bilm.weights.names import WeightName

_LOG = logging.getLogger(__name__)
_STATE = "bilm/run_state"
_REQUIRED = ("settings", "first_step", "n_done", "positions", "log_bytes")
"""Keys that cannot have their defaults in a call that is resumed; a version may add others."""
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
        plan: plan of the call; under the key ``settings`` in a checkpoint.
        first_step: training steps of the model when the call began.
        n_done: steps of the call so far.
        n_tokens: targets of the call so far, in one direction.
        train_perplexity: perplexity of the last step.
        positions: position in the text of each worker; empty before the first step.
        must_evaluate: true if the heldout text must be scored before the next step.
        best: best validation so far, or None.
        n_without_gain: validations since the best one.
        log_bytes: length of ``metrics.jsonl`` in bytes.
        meter: sums over the steps since its last line.
        loss_scale: loss scale of float16, or None.
    """

    plan: Plan
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
        """Training steps of the model."""
        return self.first_step + self.n_done

    def add(self, report: StepReport, loss_scale: LossScale | None) -> None:
        """Count a step.

        Args:
            report: report of the step; the numbers of a skipped step are meaningless and left out.
            loss_scale: loss scale after the step, or None.
        """
        self.n_done, self.n_tokens = report.n_done, self.n_tokens + report.n_tokens
        self.loss_scale = loss_scale
        if not report.is_skipped:
            self.train_perplexity = report.perplexity
            self.meter.add(report)

    def to_json(self) -> dict[str, Any]:
        """Return the object that a checkpoint stores, see `read_state`."""
        values = dataclasses.asdict(dataclasses.replace(self, plan=None))  # type: ignore[arg-type]
        del values["plan"]
        return {**values, "settings": self.plan.to_json(), "written_by": WRITER}

    def tensors(self, states: tuple[States, ...]) -> dict[str, tf.Tensor]:
        """Return the tensors that a checkpoint stores for this state.

        Args:
            states: LSTM states of all parts.

        Raises:
            ValueError: a number is not finite; the state would not be readable when the run is resumed.
        """
        text = json.dumps(self.to_json(), allow_nan=False)
        leaves = tf.nest.flatten(states)
        return {_STATE: tf.constant(text)} | {f"{_LSTM}/{i}": leaf for i, leaf in enumerate(leaves)}


def recorded(checkpoint: CheckpointFile) -> JsonObject | None:
    """Return the training state of a checkpoint as JSON, for calls that need single keys of any version's.

    Returns:
        The state, empty if it is not readable; None if there is none, as in checkpoints of bilm-tf.
    """
    text = checkpoint.extra(_STATE)
    try:
        return None if text is None else JsonObject("", parse_json(text))
    except (ValueError, TypeError):
        return JsonObject("", None)


def best_step(checkpoint: CheckpointFile) -> int | None:
    """Return the step with the lowest heldout perplexity at the time of a checkpoint, or None."""
    return (recorded(checkpoint) or JsonObject("", {})).section("best").take("step", Count, None)


def read_state(checkpoint: CheckpointFile) -> RunState:
    """Read the training state of a checkpoint; missing keys have their defaults, unknown keys are told.

    Raises:
        CheckpointError: the state cannot be read; the message says which version wrote it.
    """
    top = recorded(checkpoint) or JsonObject("", None)
    writer = top.take("written_by", str, "an earlier version")
    plan = Plan.read(top.section("settings")) if "settings" in top.values else None
    state = top.read_as(RunState, plan=plan)
    if problems := top.problems + [f"{key}: missing" for key in _REQUIRED if key not in top.values]:
        problem = f"its training state was written by {writer} and cannot be read by {WRITER}"
        remedy = "resume the run with the version that wrote it, or continue with `bilm restart`"
        raise CheckpointError(f"{checkpoint.prefix}: {problem} ({'; '.join(problems)}); {remedy}")
    warn_of_unknown(checkpoint.prefix, top.unknown, writer)
    return state


def read_lstm_states(checkpoint: CheckpointFile, like: tuple[States, ...]) -> tuple[States, ...]:
    """Read the LSTM states in a checkpoint.

    Args:
        checkpoint: checkpoint of the run to resume.
        like: states with the expected structure and shapes.

    Raises:
        CheckpointError: the states are missing, or have other shapes.
    """
    arrays = []
    for i, leaf in enumerate(tf.nest.flatten(like)):
        name, shape = f"{_LSTM}/{i}", tuple(leaf.shape)
        array = checkpoint.extra(name) if checkpoint.shape(name) == shape else None
        if array is None or array.dtype.kind != "f":
            raise CheckpointError(f"{checkpoint.prefix}: {name} is missing or damaged, expected {shape}")
        arrays.append(tf.constant(array, tf.float32))
    return tf.nest.pack_sequence_as(like, arrays)


def restore_optimizer(
    optimizer: TrainingOptimizer,
    variables: Variables,
    checkpoint: CheckpointFile,
    names: Sequence[WeightName],
    remapping: transfer.Remapping | None = None,
) -> None:
    """Load the state of an optimizer from a checkpoint; warns if the checkpoint has no fitting state.

    Args:
        optimizer: optimizer, built with `variables`.
        variables: variables of the model, by bilm's names.
        checkpoint: checkpoint of the same model.
        names: names of the model's weights.
        remapping: maps the words to the model's vocabulary, if it is not the checkpoint's. The
            moments of each word move to its new row; an optimizer with other state starts from scratch.

    Raises:
        CheckpointError: the checkpoint is damaged.
        WeightsError: the state does not fit the model.
    """
    accumulators = optimizer.accumulators(variables)
    state, arrays = accumulators or optimizer.slots(), {}
    moments = {} if remapping is None else optimizer.moments(variables)
    if accumulators:
        arrays = checkpoint.accumulators(names)
    elif (remapping is None or moments) and all(checkpoint.shape(name) is not None for name in state):
        arrays = {name: checkpoint.numbers(name) for name in state}
    if arrays and remapping is not None:
        keys = {id(variable): key for key, variable in state.items()}
        for name in moments.keys() & set(transfer.WORD_ARRAYS):
            key = keys[id(moments[name])]
            arrays[key] = remapping.rows(arrays[key], optimizer.first_moment)
    if arrays:
        transfer.set_weights(state, arrays, checkpoint.prefix)
        return
    name = optimizer.name if remapping is None else f"{optimizer.name} that fits another vocabulary"
    _LOG.warning("%s: no state of the optimizer %s; it starts from scratch", checkpoint.prefix, name)
