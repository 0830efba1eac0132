"""Perplexity under the full softmax."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bilm.data.pipeline import Batch
from bilm.errors import CheckpointError, DataError
from bilm.models.encoder import States
from bilm.models.language_model import LanguageModel, batch_signature
from bilm.training.meter import Perplexities


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
    def perplexities(self) -> Perplexities:
        """Of the model and of each direction."""
        return Perplexities.of(self.direction_losses)


class Evaluator:
    """Scores texts with one model; windows of a shape are compiled once."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self._compiled: dict[tuple[int, ...], tf.types.experimental.PolymorphicFunction] = {}

    def evaluate(
        self, batches: Iterable[Batch], on_window: Callable[[int], None] | None = None
    ) -> Evaluation:
        """Score every target of the batches once, carrying the LSTM states from window to window.

        Args:
            batches: windows of one shape, from `bilm.data.pipeline.evaluation_batches`.
            on_window: called after each window with the number of targets scored so far.

        Raises:
            DataError: there is nothing to score.
            CheckpointError: the model's losses are not finite.
        """
        total, n_tokens, states = np.zeros(self.model.options.n_directions), 0.0, None
        for batch in batches:
            states = states or self.model.zero_states(batch.weights.shape[1])
            window = self._step(batch, states)(batch, states)
            states = window.states
            total += window.sums.numpy()
            n_tokens += float(window.n_targets)
            if on_window is not None:
                on_window(round(n_tokens))
        if n_tokens == 0:
            raise DataError("there is nothing to score: the text is smaller than one batch, or empty")
        if not np.all(np.isfinite(total)):
            raise CheckpointError(
                "the model's losses are not finite: its training diverged; use an earlier checkpoint"
            )
        return Evaluation(tuple(float(loss) for loss in total / n_tokens), round(n_tokens))

    def _step(self, batch: Batch, states: States) -> tf.types.experimental.PolymorphicFunction:
        shape = batch.targets.shape
        if shape not in self._compiled:
            widths = [rows.shape[1] for rows in batch.type_characters]
            n_directions, n_steps, n_rows = shape
            window = batch_signature(n_directions, n_steps, n_rows, widths)
            state = tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), states)
            self._compiled[shape] = tf.function(
                self.model.losses, input_signature=[window, state], autograph=False
            )
        return self._compiled[shape]
