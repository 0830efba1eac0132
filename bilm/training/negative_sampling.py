"""Negative classes for the sampled softmax, drawn from the log-uniform (Zipf) distribution.

They are drawn outside the graph. The generator is seeded with (run, step, direction), so the sample of a step
depends on nothing else.
"""

import math
from typing import NamedTuple

import numpy as np


class Negatives(NamedTuple):
    """Distinct negative classes of one step.

    Attributes:
        ids: int32 (n,), classes, ascending.
        n_draws: float32 scalar, draws with replacement until ``n`` distinct classes were seen.
    """

    ids: np.ndarray
    n_draws: np.ndarray


class LogUniformSampler:
    """Draws distinct classes k of ``0 .. n_classes-1`` with P(k) = log((k+2)/(k+1)) / log(n_classes+1).

    It draws until ``n_samples`` distinct classes were seen and counts the draws, like
    ``tf.random.log_uniform_candidate_sampler(unique=True)``.

    Args:
        n_samples: distinct classes in a sample, at most `n_classes`.
        n_classes: number of classes.
        seed: seed of the run.
    """

    def __init__(self, n_samples: int, n_classes: int, seed: int) -> None:
        self.n_samples = n_samples
        self.n_classes = n_classes
        self.seed = seed
        self._chunk = 2 * n_samples
        self._first_draw = np.zeros(n_classes, np.int64)

    def sample(self, step: int, stream: int) -> Negatives:
        """Draw the sample of a step and stream (a direction of a replica), determined by these numbers."""
        generator = np.random.default_rng([self.seed, step, stream])
        draws = firsts = np.zeros(0, np.int64)
        while len(firsts) < self.n_samples:
            logarithms = generator.random(self._chunk) * math.log(self.n_classes + 1)
            classes = np.exp(logarithms).astype(np.int64) - 1
            draws = np.concatenate([draws, np.minimum(classes, self.n_classes - 1)])
            positions = np.arange(len(draws))
            self._first_draw[draws[::-1]] = positions[::-1]
            firsts = np.flatnonzero(self._first_draw[draws] == positions)
        firsts = firsts[: self.n_samples]
        n_draws = firsts[-1] + 1
        self._chunk = max(self._chunk, n_draws + n_draws // 8)
        return Negatives(np.sort(draws[firsts]).astype(np.int32), np.asarray(n_draws, np.float32))
