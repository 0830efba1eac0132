"""Perplexity, and running sums over training steps."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Annotated, NamedTuple, Protocol

from bilm.io.json import Bounds, Count

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


class Step(Protocol):
    """What is summed of `bilm.training.trainer.StepReport`."""

    @property
    def direction_losses(self) -> tuple[float, ...]:
        """Mean loss of each direction."""

    @property
    def n_tokens(self) -> int:
        """Targets in one direction."""

    @property
    def gradient_norm(self) -> float:
        """Before clipping."""

    @property
    def learning_rate(self) -> float:
        """Of this step."""

    @property
    def seconds(self) -> float:
        """That it took."""

    @property
    def wait_seconds(self) -> float:
        """Waiting for the batch."""


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

    def add(self, step: Step) -> None:
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
