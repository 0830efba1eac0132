"""The contents of a checkpoint: training state and optimizer state."""

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.data.stream import Position
from bilm.errors import CheckpointError
from bilm.io.json import Count, JsonObject, parse_json
from bilm.models.encoder import States
from bilm.options.plan import Plan
from bilm.run_directory.records import WRITER, warn_of_unknown
from bilm.training import optimizers
from bilm.training.meter import LossScale, Meter, StepReport
from bilm.weights import transfer
from bilm.weights.checkpoint_file import CheckpointFile
from bilm.weights.names import WeightName

Variables = Mapping[str, keras.Variable]

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
        values = {**dataclasses.asdict(self), "settings": self.plan.to_json(), "written_by": WRITER}
        del values["plan"]
        return values

    def tensors(self, states: tuple[States, ...]) -> dict[str, tf.Tensor]:
        """Return the tensors that a checkpoint stores for this state.

        Args:
            states: LSTM states of all parts.

        Raises:
            CheckpointError: the state would not be readable when the run is resumed.
        """
        try:
            text = json.dumps(self.to_json(), allow_nan=False)
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"step {self.step:,}: its state cannot be saved: {error}") from error
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
    record = recorded(checkpoint)
    return None if record is None else record.section("best").take("step", Count, None)


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
        raise CheckpointError(
            f"{checkpoint.prefix}: its training state was written by {writer} and cannot be read by {WRITER} "
            f"({'; '.join(problems)}); resume the run with the version that wrote it, or continue with "
            "`bilm restart`"
        )
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


def accumulators(optimizer: keras.optimizers.Optimizer, variables: Variables) -> dict[str, keras.Variable]:
    """Return Adagrad's accumulators by the names of their variables; empty for other optimizers."""
    if not isinstance(optimizer, optimizers.Adagrad):
        return {}
    return {name: optimizer.accumulator(variable) for name, variable in variables.items()}


def slots(optimizer: keras.optimizers.Optimizer) -> dict[str, keras.Variable]:
    """Return the state of an optimizer by its names in a checkpoint; empty for Adagrad."""
    if isinstance(optimizer, optimizers.Adagrad):
        return {}
    return {  # by the end of the path, since a scope may surround the optimizer, and a number, to be unique
        f"bilm/optimizer/{i}/{'/'.join(variable.path.split('/')[-2:])}": variable
        for i, variable in enumerate(optimizer.variables)
        if variable is not optimizer._learning_rate
    }


def restore_optimizer(
    optimizer: keras.optimizers.Optimizer,
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
        remapping: maps the words to the model's vocabulary, if it is not the checkpoint's. For Adagrad
            and Muon, the state of each word moves to its new row; the moments of new words are zero.

    Raises:
        CheckpointError: the checkpoint is damaged.
        WeightsError: the state does not fit the model.
    """
    state, arrays = accumulators(optimizer, variables) or slots(optimizer), {}
    if isinstance(optimizer, optimizers.Adagrad):
        arrays = checkpoint.accumulators(names)
        if remapping is not None:
            arrays = remapping.accumulators(arrays)
    elif remapping is None or isinstance(optimizer, optimizers.Muon):
        if all(checkpoint.shape(name) is not None for name in state):
            arrays = {name: checkpoint.numbers(name) for name in state}
        if arrays and remapping is not None:
            keys = {id(variable): name for name, variable in state.items()}
            for word_array in variables.keys() & set(transfer.WORD_ARRAYS):
                key = keys[id(optimizer.moment(variables[word_array]))]
                arrays[key] = remapping.rows(arrays[key], 0.0)
    if arrays:
        transfer.set_weights(state, arrays, checkpoint.prefix)
        return
    _LOG.warning(
        "%s: no state of the optimizer %s%s; it starts from scratch",
        checkpoint.prefix,
        optimizer.name,
        "" if remapping is None else " that fits another vocabulary",
    )
