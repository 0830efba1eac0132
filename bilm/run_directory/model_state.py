"""A model and its optimizer, to and from a checkpoint.

Adagrad's accumulators have bilm-tf's names, so that its checkpoints and ours serve both; what any other
optimizer keeps goes beside them under names of ours.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from bilm.layers.keras_backend import keras
from bilm.run_directory.averages import read_weights
from bilm.training.adam import Adam
from bilm.training.optimizer import Adagrad
from bilm.weights.assign import named_weights, set_weights
from bilm.weights.files import CheckpointFile, write_checkpoint
from bilm.weights.names import WeightName
from bilm.weights.vocabulary_transfer import Remapping

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
    if optimizer is not None and not restore_state(optimizer, variables, checkpoint, names, remapping):
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
        if arrays and isinstance(optimizer, Adam):
            arrays = _adam(optimizer, state, arrays, remapping)
    else:
        return False
    if arrays:
        set_weights(state, arrays, checkpoint.prefix)
    return bool(arrays)


def _adam(
    optimizer: Adam, state: Variables, arrays: Mapping[str, np.ndarray], remapping: Remapping | None
) -> dict[str, np.ndarray]:
    """Adam's state as it is now kept, for the words of now.

    Keras's Adam, which wrote the state of older checkpoints, updated all rows in each step.
    """
    names = {id(variable): name for name, variable in state.items()}
    step = arrays[names[id(optimizer.iterations)]]
    new = dict(arrays)
    for *_, last_step in optimizer.row_states:
        new.setdefault(names[id(last_step)], np.full(last_step.shape, step, np.int32))
    if remapping is not None:
        for row_state in optimizer.row_states:
            for variable in row_state:
                name = names[id(variable)]
                new[name] = remapping.rows(new[name], 0)
    return new
