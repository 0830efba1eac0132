"""The state in a checkpoint: of the training, of the averages of the weights, of model and optimizer."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.data.position import Position
from bilm.errors import CheckpointError
from bilm.io.json import Count, JsonObject, parse_json
from bilm.models.encoder import States
from bilm.options import Weights
from bilm.training.averaging import WeightAverage, averaged
from bilm.training.meter import LossScale, Meter
from bilm.training.optimizers import Adagrad, Adam
from bilm.weights.checkpoint_file import CheckpointFile, write_checkpoint
from bilm.weights.hdf5_file import Arrays, as_weights, check_shapes
from bilm.weights.names import WeightName
from bilm.weights.transfer import WORD_ARRAYS, Remapping, named_weights, set_weights

TEXT, HELDOUT = "--train-prefix", "--heldout-prefix"
"""The texts of a call among the settings of its state."""

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


_VALUES, _COUNTS = "bilm/average/", "bilm/average_counts/"
_UPDATES, _DECAY = "bilm/average_updates", "bilm/average_decay"


def average_tensors(average: WeightAverage | None) -> dict[str, tf.Tensor]:
    """What goes into a checkpoint; nothing where the weights are not averaged."""
    if average is None:
        return {}
    return {**_variables(average), _DECAY: tf.constant(average.decay, tf.float64)}


def restore_average(average: WeightAverage, checkpoint: CheckpointFile) -> None:
    """Set the averages from a checkpoint of the same call.

    Raises:
        CheckpointError: the checkpoint is damaged.
        WeightsError: they do not fit the model.
    """
    variables = _variables(average)
    names = [name for name in variables if checkpoint.shape(name) is not None]
    set_weights(variables, {name: checkpoint.numbers(name) for name in names}, checkpoint.prefix)


def uses_averages(checkpoint: CheckpointFile, weights: str | None) -> bool:
    """Whether the averages are meant.

    Args:
        checkpoint: of a run.
        weights: ``"raw"`` or ``"averaged"``; None for the averages where there are some.

    Raises:
        CheckpointError: the averages are asked for, and there are none.
        OptionsError: `weights` is none of these.
    """
    if weights is not None:
        weights = Weights(weights)
    has_averages = checkpoint.shape(_UPDATES) is not None
    if weights == "averaged" and not has_averages:
        raise CheckpointError(
            f"{checkpoint.prefix}: has no averages of its weights, which weight_averaging would have kept; "
            "its weights are those of `weights` raw"
        )
    return has_averages and weights != "raw"


def read_weights(checkpoint: CheckpointFile, names: Sequence[WeightName], weights: str | None) -> Arrays:
    """The weights of a checkpoint or their averages, by our own names.

    Args:
        checkpoint: of a run.
        names: of the model's weights.
        weights: see `uses_averages`.

    Raises:
        CheckpointError: as `uses_averages`, or the checkpoint is damaged.
        WeightsError: it is that of another model.
    """
    arrays = checkpoint.weights(names)
    if uses_averages(checkpoint, weights):
        n_updates, decay = _updates_and_decay(checkpoint)
        for name, weight in arrays.items():
            if checkpoint.shape(_VALUES + name) is not None:  # not of what was frozen
                arrays[name] = _average(checkpoint, name, weight, n_updates, decay)
    return arrays


def _variables(average: WeightAverage) -> dict[str, Any]:
    values = {_VALUES + name: one.values for name, one in average.averages.items()}
    counts = {_COUNTS + name: one.n_counted for name, one in average.averages.items()}
    return values | counts | {_UPDATES: average.n_updates}


def _updates_and_decay(checkpoint: CheckpointFile) -> tuple[int, float]:
    n_updates, decay = (np.asarray(checkpoint.extra(name)) for name in (_UPDATES, _DECAY))
    are_scalars = n_updates.shape == decay.shape == () and (n_updates.dtype.kind, decay.dtype.kind) == (
        "i",
        "f",
    )
    if not are_scalars or n_updates < 0 or not 0 < decay < 1:
        raise CheckpointError(f"{checkpoint.prefix}: {_UPDATES} or {_DECAY} is damaged")
    return int(n_updates), float(decay)


def _average(
    checkpoint: CheckpointFile, name: str, weight: np.ndarray, n_updates: int, decay: float
) -> np.ndarray:
    wanted = {_VALUES + name: weight.shape}
    if checkpoint.shape(_COUNTS + name) != ():
        wanted[_COUNTS + name] = weight.shape[:1]
    found = {name: shape for name in wanted if (shape := checkpoint.shape(name)) is not None}
    check_shapes(found, wanted, checkpoint.prefix)
    values, counts = (checkpoint.numbers(prefix + name) for prefix in (_VALUES, _COUNTS))
    if counts.dtype.kind != "i" or np.any(counts < -1) or np.any(counts > n_updates):
        raise CheckpointError(f"{checkpoint.prefix}: {_COUNTS}{name} is damaged")
    new = averaged(values, counts, weight, n_updates, decay).numpy()
    return as_weights(new, f"{checkpoint.prefix}: {_VALUES}{name}", CheckpointError)


_LOG = logging.getLogger(__name__)

Variables = Mapping[str, keras.Variable]


def save_model(
    prefix: Path,
    names: Sequence[WeightName],
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer,
    step: int,
    train_perplexity: float,
    extras: Mapping[str, tf.Tensor],
) -> None:
    """Write a checkpoint; the arguments are those of `RunDirectory.save` and `write_checkpoint`.

    Raises:
        CheckpointError: it could not be written; nothing is left of it.
    """
    variables = named_weights(model)
    extras = {**extras, **slots(optimizer)}
    sums = accumulators(optimizer, variables)
    write_checkpoint(prefix, names, variables, sums, step, train_perplexity, extras)


def restore_model(
    model: keras.Model,
    optimizer: keras.optimizers.Optimizer | None,
    checkpoint: CheckpointFile,
    names: Sequence[WeightName],
    remapping: Remapping | None,
    weights: str | None,
) -> None:
    """Set model and optimizer from a checkpoint; the arguments are those of `RunDirectory.restore`.

    Raises:
        CheckpointError: it is damaged, or averages are asked for, and there are none.
        OptionsError: `weights` is neither raw nor averaged.
        WeightsError: its arrays do not fit the model.
    """
    variables = named_weights(model)
    arrays = read_weights(checkpoint, names, weights)
    set_weights(variables, arrays if remapping is None else remapping.weights(arrays), checkpoint.prefix)
    del arrays
    if optimizer is not None:
        restore_optimizer(optimizer, variables, checkpoint, names, remapping)


def restore_optimizer(
    optimizer: keras.optimizers.Optimizer,
    variables: Variables,
    checkpoint: CheckpointFile,
    names: Sequence[WeightName],
    remapping: Remapping | None,
) -> None:
    """Set an optimizer from a checkpoint; warns if that has no state that fits, see `restore_state`."""
    if not restore_state(optimizer, variables, checkpoint, names, remapping):
        _LOG.warning(
            "%s: no state of the optimizer %s%s; it starts from scratch",
            checkpoint.prefix,
            optimizer.name,
            "" if remapping is None else " that fits another vocabulary",
        )


def accumulators(optimizer: keras.optimizers.Optimizer, variables: Variables) -> dict[str, keras.Variable]:
    """Adagrad's accumulators by the names of their variables; none of another optimizer."""
    if not isinstance(optimizer, Adagrad):
        return {}
    return {name: optimizer.accumulator(variable) for name, variable in variables.items()}


def slots(optimizer: keras.optimizers.Optimizer) -> dict[str, keras.Variable]:
    """The state of an optimizer other than Adagrad by the names it has in a checkpoint."""
    if isinstance(optimizer, Adagrad):
        return {}
    return {
        f"bilm/optimizer/{i}/{variable.path}": variable  # paths alone are not always different
        for i, variable in enumerate(optimizer.variables)
        if variable is not optimizer._learning_rate
    }


def restore_state(
    optimizer: keras.optimizers.Optimizer,
    variables: Variables,
    checkpoint: CheckpointFile,
    names: Sequence[WeightName],
    remapping: Remapping | None = None,
) -> bool:
    """Set an optimizer from a checkpoint; whether that has the state of such a one.

    Args:
        optimizer: built with the variables.
        variables: of the model, by our own names.
        checkpoint: of the same model.
        names: of its weights.
        remapping: to the vocabulary of the model, if that is not the checkpoint's. It carries the state
            of Adagrad and Adam.

    Raises:
        CheckpointError: the checkpoint is damaged.
        WeightsError: the state does not fit the model.
    """
    if isinstance(optimizer, Adagrad):
        arrays = checkpoint.accumulators(names)
        state = accumulators(optimizer, variables)
        if remapping is not None:
            arrays = remapping.accumulators(arrays)
    elif remapping is None or isinstance(optimizer, Adam):
        state = slots(optimizer)
        arrays = {name: checkpoint.numbers(name) for name in state if checkpoint.shape(name) is not None}
        if arrays and remapping is not None:
            arrays = _remapped(optimizer, variables, state, arrays, remapping)
    else:
        return False
    if arrays:
        set_weights(state, arrays, checkpoint.prefix)
    return bool(arrays)


def _remapped(
    optimizer: Adam,
    variables: Variables,
    state: Variables,
    arrays: dict[str, np.ndarray],
    remapping: Remapping,
) -> dict[str, np.ndarray]:
    """Adam's state with the moments of each word in its new row, and zeros for new words."""
    names = {id(variable): name for name, variable in state.items()}
    for word_array in variables.keys() & set(WORD_ARRAYS):
        for moment in optimizer.moments(variables[word_array]):
            arrays[names[id(moment)]] = remapping.rows(arrays[names[id(moment)]], 0.0)
    return arrays
