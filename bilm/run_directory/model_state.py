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

from bilm.backend.keras_backend import keras
from bilm.run_directory.averages import read_weights
from bilm.training.adam import Adam
from bilm.training.optimizer import Adagrad
from bilm.weights.assign import named_weights, set_weights
from bilm.weights.checkpoint_file import CheckpointFile, write_checkpoint
from bilm.weights.names import WeightName
from bilm.weights.vocabulary_transfer import WORD_ARRAYS, Remapping

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
