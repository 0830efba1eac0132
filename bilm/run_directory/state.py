"""The contents of a checkpoint: training state, weights, averages of the weights and optimizer state."""

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.backend.keras_backend import keras
from bilm.data.stream import Position
from bilm.errors import CheckpointError
from bilm.io.json import Count, JsonObject, parse_json
from bilm.models.encoder import States
from bilm.options.parameters import Weights
from bilm.training import averaging, optimizers
from bilm.training.meter import LossScale, Meter
from bilm.weights import hdf5_file, transfer
from bilm.weights.checkpoint_file import CheckpointFile
from bilm.weights.names import WeightName

Variables = Mapping[str, keras.Variable]

_LOG = logging.getLogger(__name__)
_STATE = "bilm/run_state"
_LSTM = "bilm/lstm_state"


@dataclasses.dataclass(frozen=True)
class Best:
    """The step with the lowest heldout perplexity."""

    step: Count
    perplexity: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fixed:
    """Settings that determine the numbers of a call and may not change when it is resumed.

    Attributes:
        command: ``train`` or ``restart``.
        options: options as in ``options.json``, without ``n_epochs``, which only sets the end, and with
            ``n_steps`` if the learning rate depends on it.
        train_prefix: record of the text, see `bilm.data.corpus.corpus_record`.
        heldout_prefix: record of the heldout text, or None.
        eval_every: as in the settings of the call; None without a heldout text.
        seed, shuffle, shuffle_buffer, n_gpus, jit, log_every: as in the settings of the call.
        workers: number of processes.
        xla: true if XLA compiles the LSTM, which affects the last bits of the results.
        freeze: part of the model that is not trained, or None.
    """

    command: str
    options: Mapping[str, Any]
    train_prefix: Mapping[str, Any]
    heldout_prefix: Mapping[str, Any] | None = None
    eval_every: int | str | None = None
    seed: Count
    shuffle: bool
    shuffle_buffer: Count
    n_gpus: Count
    jit: bool
    log_every: Count
    workers: Count
    xla: bool
    freeze: str | None = None


@dataclasses.dataclass
class RunState:
    """State of a training run.

    Attributes:
        settings: see `Fixed`.
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

    settings: Fixed
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

    def tensors(self, states: tuple[States, ...]) -> dict[str, tf.Tensor]:
        """Return the tensors that a checkpoint stores for this state.

        Args:
            states: LSTM states of all parts.

        Raises:
            CheckpointError: the state would not be readable when the run is resumed.
        """
        try:
            text = json.dumps(dataclasses.asdict(self), allow_nan=False)
            _parsed(text)
        except (ValueError, TypeError) as error:
            raise CheckpointError(f"step {self.step:,}: its state cannot be saved: {error}") from error
        leaves = tf.nest.flatten(states)
        return {_STATE: tf.constant(text)} | {f"{_LSTM}/{i}": leaf for i, leaf in enumerate(leaves)}


def read_state(checkpoint: CheckpointFile) -> RunState | None:
    """Read the training state of a checkpoint; None if it has none, as checkpoints of bilm-tf.

    Raises:
        CheckpointError: the state is damaged.
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


_VALUES, _COUNTS = "bilm/average/", "bilm/average_counts/"
_UPDATES, _DECAY = "bilm/average_updates", "bilm/average_decay"


def average_tensors(average: averaging.WeightAverage | None) -> dict[str, tf.Tensor]:
    """Return the tensors that a checkpoint stores for the averages; empty without averages."""
    if average is None:
        return {}
    return {**_variables(average), _DECAY: tf.constant(average.decay, tf.float64)}


def restore_average(average: averaging.WeightAverage, checkpoint: CheckpointFile) -> None:
    """Load the averages from a checkpoint of the same call.

    Raises:
        CheckpointError: the checkpoint is damaged.
        WeightsError: the averages do not fit the model.
    """
    variables = _variables(average)
    names = [name for name in variables if checkpoint.shape(name) is not None]
    transfer.set_weights(variables, {name: checkpoint.numbers(name) for name in names}, checkpoint.prefix)


def uses_averages(checkpoint: CheckpointFile, weights: str | None) -> bool:
    """Return true if `weights` selects the averages of a checkpoint.

    Args:
        checkpoint: checkpoint of a run.
        weights: ``"raw"`` or ``"averaged"``; None for the averages if there are any.

    Raises:
        CheckpointError: averages are requested and the checkpoint has none.
        OptionsError: `weights` has another value.
    """
    if weights is not None:
        weights = Weights(weights)
    has_averages = checkpoint.shape(_UPDATES) is not None
    if weights == "averaged" and not has_averages:
        raise CheckpointError(
            f"{checkpoint.prefix}: has no averages of its weights, because the run was trained without "
            "weight_averaging; use `weights` raw"
        )
    return has_averages and weights != "raw"


def read_weights(
    checkpoint: CheckpointFile, names: Sequence[WeightName], weights: str | None
) -> hdf5_file.Arrays:
    """Read the weights of a checkpoint or their averages, by bilm's names.

    Args:
        checkpoint: checkpoint of a run.
        names: names of the model's weights.
        weights: see `uses_averages`.

    Raises:
        CheckpointError: as `uses_averages`; or the checkpoint is damaged.
        WeightsError: the checkpoint does not fit the model.
    """
    arrays, source = checkpoint.weights(names), checkpoint.prefix
    if not uses_averages(checkpoint, weights):
        return arrays
    n_updates, decay = (np.asarray(checkpoint.extra(name)) for name in (_UPDATES, _DECAY))
    are_scalars = n_updates.shape == decay.shape == () and n_updates.dtype.kind + decay.dtype.kind == "if"
    if not (are_scalars and n_updates >= 0 and 0 < decay < 1):
        raise CheckpointError(f"{source}: {_UPDATES} or {_DECAY} is damaged")
    for name, weight in arrays.items():
        if checkpoint.shape(_VALUES + name) is None:  # a frozen weight
            continue
        rows = weight.shape[:1] if name in transfer.WORD_ARRAYS else ()
        wanted = {_VALUES + name: weight.shape, _COUNTS + name: rows}
        shapes = {key: shape for key in wanted if (shape := checkpoint.shape(key)) is not None}
        hdf5_file.check_shapes(shapes, wanted, source)
        values, counts = map(checkpoint.numbers, wanted)
        if counts.dtype.kind != "i" or np.any(counts < -1) or np.any(counts > n_updates):
            raise CheckpointError(f"{source}: {_COUNTS}{name} is damaged")
        new = averaging.averaged(values, counts, weight, int(n_updates), float(decay)).numpy()
        arrays[name] = hdf5_file.as_weights(new, f"{source}: {_VALUES}{name}", CheckpointError)
    return arrays


def _variables(average: averaging.WeightAverage) -> dict[str, Any]:
    values = {_VALUES + name: tensors.values for name, tensors in average.averages.items()}
    counts = {_COUNTS + name: tensors.n_counted for name, tensors in average.averages.items()}
    return values | counts | {_UPDATES: average.n_updates}


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
        remapping: maps the words to the model's vocabulary, if it is not the checkpoint's. For Adagrad,
            Adam and Muon, the state of each word moves to its new row; the moments of new words are zero.

    Raises:
        CheckpointError: the checkpoint is damaged.
        WeightsError: the state does not fit the model.
    """
    state, arrays = accumulators(optimizer, variables) or slots(optimizer), {}
    if isinstance(optimizer, optimizers.Adagrad):
        arrays = checkpoint.accumulators(names)
        if remapping is not None:
            arrays = remapping.accumulators(arrays)
    elif remapping is None or isinstance(optimizer, (optimizers.Adam, optimizers.Muon)):
        if all(checkpoint.shape(name) is not None for name in state):
            arrays = {name: checkpoint.numbers(name) for name in state}
        if arrays and remapping is not None:
            keys = {id(variable): name for name, variable in state.items()}
            for word_array in variables.keys() & set(transfer.WORD_ARRAYS):
                for key in (keys[id(moment)] for moment in optimizer.moments(variables[word_array])):
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
