"""The averages of the weights, to and from a checkpoint, and the choice between them and the weights.

They stand beside bilm-tf's variables under names of ours: ``bilm/average/NAME`` and the updates that are
in it, ``bilm/average_counts/NAME``; ``bilm/average_updates``, all updates; ``bilm/average_decay``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.errors import CheckpointError, OptionsError
from bilm.training.averaging import WeightAverage, averaged
from bilm.weights.assign import set_weights
from bilm.weights.checkpoint_file import CheckpointFile
from bilm.weights.names import WeightName
from bilm.weights.shapes import Arrays, as_weights, check_shapes

WEIGHTS = ("raw", "averaged")
"""What of a checkpoint may be asked for."""

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
    if weights is not None and weights not in WEIGHTS:
        raise OptionsError(f"`weights` is {weights!r}, not one of {', '.join(WEIGHTS)}")
    has_averages = checkpoint.shape(_UPDATES) is not None
    if weights == "averaged" and not has_averages:
        raise CheckpointError(
            f"{checkpoint.prefix}: has no averages of its weights, which weight_averaging would have kept; "
            "its weights are those of `weights` raw"
        )
    return has_averages and weights != "raw"


def averages_note(checkpoint: CheckpointFile, weights: str | None) -> str:
    """What a line on a checkpoint ends with where its averages are meant, see `uses_averages`."""
    return ", averaged weights" if uses_averages(checkpoint, weights) else ""


def read_weights(checkpoint: CheckpointFile, names: Iterable[WeightName], weights: str | None) -> Arrays:
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
