"""Negative classes for the sampled softmax, drawn from the log-uniform (Zipf) distribution.

Drawn outside the graph: they do not depend on the model, so a background thread can draw them, and
a seed of (run, step, direction) makes every step's sample repeatable from the step alone.
"""

import math
from typing import NamedTuple

import numpy as np

from bilm.errors import OptionsError


class Negatives(NamedTuple):
    """Distinct classes of one step.

    Attributes:
        ids: int32 (n,), ascending.
        n_draws: float32 scalar, how many draws with replacement it took to see ``n`` distinct ones.
    """

    ids: np.ndarray
    n_draws: np.ndarray


class LogUniformSampler:
    """Draws distinct classes k of ``0 .. n_classes-1`` with P(k) = log((k+2)/(k+1)) / log(n_classes+1).

    The distribution and the rule (draw until ``n_samples`` distinct ones were seen, count the draws)
    are those of ``tf.random.log_uniform_candidate_sampler(unique=True)``.

    Raises:
        OptionsError: more samples than classes.
    """

    def __init__(self, n_samples: int, n_classes: int, seed: int) -> None:
        if n_samples > n_classes:
            raise OptionsError(f"cannot draw {n_samples} distinct classes out of {n_classes}")
        self.n_samples = n_samples
        self.n_classes = n_classes
        self.seed = seed
        self._chunk = 2 * n_samples
        self._first_draw = np.zeros(n_classes, np.int64)

    def sample(self, step: int, stream: int) -> Negatives:
        """The sample of one step and stream (a direction of a replica); the same for the same numbers."""
        generator = np.random.default_rng([self.seed, step, stream])
        draws = self._draw(generator)
        while True:
            firsts = self._first_occurrences(draws)
            if len(firsts) >= self.n_samples:
                break
            draws = np.concatenate([draws, self._draw(generator)])
        firsts = firsts[: self.n_samples]
        n_draws = firsts[-1] + 1
        self._chunk = max(self._chunk, n_draws + n_draws // 8)
        return Negatives(np.sort(draws[firsts]).astype(np.int32), np.asarray(n_draws, np.float32))

    def _draw(self, generator: np.random.Generator) -> np.ndarray:
        classes = np.exp(generator.random(self._chunk) * math.log(self.n_classes + 1)).astype(np.int64) - 1
        return np.minimum(classes, self.n_classes - 1)

    def _first_occurrences(self, draws: np.ndarray) -> np.ndarray:
        """Positions at which a class is drawn for the first time, ascending."""
        positions = np.arange(len(draws))
        self._first_draw[draws[::-1]] = positions[::-1]
        return np.flatnonzero(self._first_draw[draws] == positions)
