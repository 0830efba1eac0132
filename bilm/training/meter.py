"""Perplexity, the report of a training step, and running sums of steps."""

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

from bilm.io.json_objects import Bounds, Count

if TYPE_CHECKING:  # imports NumPy, which shell completion must not wait for
    from bilm.data.pipeline import TrainingBatch

_STEPS_TO_DOUBLE = 2000


@dataclasses.dataclass
class LossScale:
    """Dynamic loss scale for float16.

    Attributes:
        value: factor of the loss, at least 1.
        n_good_steps: steps since the last change.
    """

    value: Annotated[float, Bounds(least=1)] = 2.0**15
    n_good_steps: Count = 0

    def follow(self, gradient_norm: float) -> bool:
        """Adapt to a step; return true if it overflowed and a smaller scale may help."""
        if not math.isfinite(gradient_norm):
            overflowed = self.value > 1.0
            self.value, self.n_good_steps = max(self.value / 2, 1.0), 0
            return overflowed
        self.n_good_steps += 1
        if self.n_good_steps == _STEPS_TO_DOUBLE:
            self.value, self.n_good_steps = self.value * 2, 0
        return False


def perplexity(loss: float) -> float:
    """Return exp of a mean loss in nats; a loss above 25, after training that diverged, counts as 25."""
    return math.exp(min(loss, 25.0))


def mean(direction_losses: Sequence[float]) -> float:
    """Return the loss of a model, the mean over its directions."""
    return sum(direction_losses) / len(direction_losses)


class Perplexities(NamedTuple):
    """Perplexities of a model and of each direction, named as in the records.

    Attributes:
        perplexity: exp of the mean loss of the directions.
        forward_perplexity: perplexity of the forward direction.
        backward_perplexity: perplexity of the backward direction; None for a model without it.
    """

    perplexity: float
    forward_perplexity: float
    backward_perplexity: float | None

    @classmethod
    def from_losses(cls, direction_losses: Sequence[float]) -> "Perplexities":
        """Compute the perplexities from the mean loss of each direction in nats, forward first."""
        forward, *backward = map(perplexity, direction_losses)
        return cls(perplexity(mean(direction_losses)), forward, backward[0] if backward else None)


@dataclasses.dataclass(frozen=True)
class StepReport:
    """Report of one training step; losses are per token, in nats.

    Attributes:
        step: training steps of the model, including this one.
        n_done: steps of the schedule so far.
        n_steps: steps of the whole schedule.
        direction_losses: mean loss of each direction.
        gradient_norm: global norm before clipping.
        learning_rate: learning rate of this step.
        n_tokens: targets of this step in one direction.
        batch: batch of this step, and the position in the text after it.
        seconds: duration of the step, including the wait for its batch.
        wait_seconds: wait for the batch.
        is_skipped: true if float16 gradients overflowed; no weight changed.
    """

    step: int
    n_done: int
    n_steps: int
    direction_losses: tuple[float, ...]
    gradient_norm: float
    learning_rate: float
    n_tokens: int
    batch: "TrainingBatch"
    seconds: float
    wait_seconds: float
    is_skipped: bool = False

    @property
    def loss(self) -> float:
        """Mean loss of the directions."""
        return mean(self.direction_losses)

    @property
    def perplexity(self) -> float:
        """exp(loss); with a sampled softmax, over the sampled classes."""
        return perplexity(self.loss)

    @property
    def is_finite(self) -> bool:
        """True if loss and gradient norm are finite."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


@dataclasses.dataclass
class Meter:
    """Sums over the steps since the last record.

    Attributes:
        losses: negative log-likelihood of each direction, in nats.
        n_tokens: targets in one direction.
        n_steps: number of steps.
        norms: sum of the gradient norms.
        learning_rate: learning rate of the last step.
        seconds: duration of the steps.
        wait_seconds: part of it spent waiting for batches.
    """

    losses: Sequence[float] = ()
    n_tokens: Count = 0
    n_steps: Count = 0
    norms: float = 0.0
    learning_rate: float = 0.0
    seconds: float = 0.0
    wait_seconds: float = 0.0

    def add(self, step: StepReport) -> None:
        """Add a step."""
        losses = self.losses or (0.0,) * len(step.direction_losses)
        pairs = zip(losses, step.direction_losses, strict=True)
        self.losses = [total + loss * step.n_tokens for total, loss in pairs]
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
