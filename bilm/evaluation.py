"""Perplexity under the full softmax."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bilm.batches import Batch
from bilm.errors import CheckpointError, DataError
from bilm.language_model import LanguageModel, WindowInputs


@dataclass(frozen=True)
class Evaluation:
    """Result of a test.

    Attributes:
        direction_losses: mean negative log-likelihood in nats by direction.
        n_tokens: targets scored in each direction.
    """

    direction_losses: tuple[float, ...]
    n_tokens: int

    @property
    def perplexity(self) -> float:
        """Exp of the mean of the directions' mean losses."""
        return _exp(sum(self.direction_losses) / len(self.direction_losses))

    @property
    def direction_perplexities(self) -> tuple[float, ...]:
        """Exp of each direction's mean loss, forward first."""
        return tuple(_exp(loss) for loss in self.direction_losses)


def _exp(loss: float) -> float:
    return math.exp(loss) if loss < 700.0 else math.inf


def evaluate(
    model: LanguageModel, batches: Iterable[Batch], on_window: Callable[[int], None] | None = None
) -> Evaluation:
    """Score every target of the batches once, carrying the LSTM states from window to window.

    Args:
        model: the model.
        batches: windows of one shape, from `bilm.batches.evaluation_batches`.
        on_window: called after each window with the number of targets scored so far.

    Raises:
        DataError: there is nothing to score.
        CheckpointError: the model gives no finite losses.
    """
    total, n_tokens, states, step = np.zeros(model.options.n_directions), 0.0, None, None
    for batch in batches:
        inputs = WindowInputs.of(batch)
        if step is None:
            states = model.zero_states(batch.weights.shape[1])
            step = _compile(model, batch, states)
        window = step(inputs, states)
        states = window.states
        total += window.sums.numpy()
        n_tokens += float(window.n_targets)
        if on_window is not None:
            on_window(round(n_tokens))
    if n_tokens == 0:
        raise DataError("the text gives nothing to score: it is smaller than one batch, or empty")
    if not np.all(np.isfinite(total)):
        raise CheckpointError(
            "the model's losses are not finite: its training diverged; use an earlier checkpoint"
        )
    return Evaluation(tuple(float(loss) for loss in total / n_tokens), round(n_tokens))


def _compile(model: LanguageModel, batch: Batch, states: object) -> tf.types.experimental.PolymorphicFunction:
    n_directions, n_steps, n_rows = batch.targets.shape
    widths = [rows.shape[1] for rows in batch.type_characters]
    window = WindowInputs.signature(n_directions, n_steps, n_rows, widths)
    state = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), states)
    return tf.function(model.losses, input_signature=[window, state])
