"""The learning rate of a step: a linear warm-up, then constant or falling.

.. code-block:: text

    warm-up       rate * s / w                      for steps s = 1 .. w
    none          rate
    linear        rate * (n - s) / (n - w)          towards 0 after the last of n steps
    cosine        rate * (1 + cos(pi * (s - w) / (n - w))) / 2
    inverse_sqrt  rate * sqrt(max(w, 1) / s)

Source of the last: Vaswani et al. 2017, section 5.3.
"""

from __future__ import annotations

import math

from bilm.options import Decay, Options


def learning_rate(options: Options, step: int, n_steps: int) -> float:
    """The rate of one step.

    Args:
        options: ``learning_rate``, ``warmup_steps`` and ``learning_rate_decay``.
        step: from 1, counted from the beginning of the schedule.
        n_steps: steps of the whole schedule.
    """
    rate, warmup = options.learning_rate, options.warmup_steps
    if step < warmup:
        return rate * step / warmup
    if options.learning_rate_decay is Decay.INVERSE_SQRT:
        return rate * math.sqrt(max(warmup, 1) / step)
    # The first step has the whole rate and the last a little of it.
    done = (step - max(warmup, 1)) / max(n_steps + 1 - max(warmup, 1), 1)
    if options.learning_rate_decay is Decay.LINEAR:
        return rate * max(1.0 - done, 0.0)
    if options.learning_rate_decay is Decay.COSINE:
        return rate * (1.0 + math.cos(math.pi * min(done, 1.0))) / 2
    return rate
