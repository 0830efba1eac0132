"""Validation: the perplexity of heldout text and of a slice of the training text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bilm.data.pipeline import Batch
from bilm.training.evaluation import Evaluation, Evaluator

Batches = Callable[[], Iterator[Batch]]


@dataclass(frozen=True)
class Validation:
    """Heldout text, and a slice of the training text, whose difference shows overfitting."""

    evaluator: Evaluator
    heldout: Batches
    train_slice: Batches

    def scores(self, on_window: Callable[[int], None]) -> tuple[Evaluation, Evaluation]:
        """The scores of the heldout text and of the slice.

        Args:
            on_window: see `Evaluator.evaluate`; what it raises ends the validation.
        """
        return (
            self.evaluator.evaluate(self.heldout(), on_window),
            self.evaluator.evaluate(self.train_slice(), on_window),
        )
