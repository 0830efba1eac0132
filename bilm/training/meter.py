"""Perplexity, the report of a training step, and running sums over steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from bilm.io.json import Bounds, Count

if TYPE_CHECKING:  # NumPy, which a shell that completes flags does without
    from bilm.data.pipeline import TrainingBatch

_FIRST = 2.0**15
_STEPS_TO_DOUBLE = 2000


@dataclasses.dataclass
class LossScale:
    """A dynamic loss scale.

    Attributes:
        value: the factor, at least 1.
        n_good_steps: steps since it last changed.
    """

    value: Annotated[float, Bounds(least=1)] = _FIRST
    n_good_steps: Count = 0

    def follow(self, gradient_norm: float) -> bool:
        """Adapt to a step; whether it overflowed and was skipped, which a smaller scale may fix."""
        if not math.isfinite(gradient_norm):
            overflowed = self.value > 1.0
            self.value, self.n_good_steps = max(self.value / 2, 1.0), 0
            return overflowed
        self.n_good_steps += 1
        if self.n_good_steps == _STEPS_TO_DOUBLE:
            self.value, self.n_good_steps = self.value * 2, 0
        return False


def perplexity(loss: float) -> float:
    """Exp of a mean loss in nats, as far as floats go."""
    return math.exp(min(loss, 700.0))


def mean(direction_losses: Sequence[float]) -> float:
    """The loss of a model: the mean of those of its directions."""
    return sum(direction_losses) / len(direction_losses)


class Perplexities(NamedTuple):
    """Of a model and of each of its directions, by the names that records have.

    Attributes:
        perplexity: exp of the mean of the directions' losses.
        forward_perplexity: of the forward direction.
        backward_perplexity: of the backward one; None of a model without it.
    """

    perplexity: float
    forward_perplexity: float
    backward_perplexity: float | None

    @classmethod
    def of(cls, direction_losses: Sequence[float]) -> Perplexities:
        """From the mean loss of each direction, forward first, in nats."""
        forward, *backward = map(perplexity, direction_losses)
        return cls(perplexity(mean(direction_losses)), forward, backward[0] if backward else None)


@dataclasses.dataclass(frozen=True)
class StepReport:
    """One training step; losses are per token, in nats.

    Attributes:
        step: steps behind the model, this one included.
        n_done: steps of the schedule so far, of ``n_steps``.
        direction_losses: mean loss of each direction.
        gradient_norm: global norm before clipping.
        learning_rate: of this step.
        n_tokens: targets of this step in one direction.
        batch: what the step was given, and the position of the text after it.
        seconds: that the step took, waiting for its batch included.
        wait_seconds: of these, how many went by before the batch was there.
        is_skipped: whether float16 gradients overflowed, so that nothing was learned.
    """

    step: int
    n_done: int
    n_steps: int
    direction_losses: tuple[float, ...]
    gradient_norm: float
    learning_rate: float
    n_tokens: int
    batch: TrainingBatch
    seconds: float
    wait_seconds: float
    is_skipped: bool = False

    @property
    def loss(self) -> float:
        """Mean over the directions."""
        return mean(self.direction_losses)

    @property
    def perplexity(self) -> float:
        """exp(loss); of a sample where the softmax is sampled."""
        return perplexity(self.loss)

    @property
    def is_finite(self) -> bool:
        """Whether loss and gradient are numbers."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


@dataclasses.dataclass
class Meter:
    """Sums since the last line.

    Attributes:
        losses: negative log-likelihood of each direction, in nats.
        n_tokens: targets in one direction.
        n_steps: steps.
        norms: sum of the gradient norms.
        learning_rate: of the last step.
        seconds: that the steps took.
        wait_seconds: of these, how many were spent waiting for batches.
    """

    losses: Sequence[float] = ()
    n_tokens: Count = 0
    n_steps: Count = 0
    norms: float = 0.0
    learning_rate: float = 0.0
    seconds: float = 0.0
    wait_seconds: float = 0.0

    def add(self, step: StepReport) -> None:
        """Count a step."""
        losses = self.losses or (0.0,) * len(step.direction_losses)
        self.losses = [
            total + loss * step.n_tokens for total, loss in zip(losses, step.direction_losses, strict=True)
        ]
        self.n_tokens += step.n_tokens
        self.n_steps += 1
        self.norms += step.gradient_norm
        self.learning_rate = step.learning_rate
        self.seconds += step.seconds
        self.wait_seconds += step.wait_seconds

    @property
    def direction_losses(self) -> tuple[float, ...]:
        """Mean loss of each direction."""
        return tuple(loss / self.n_tokens for loss in self.losses)
