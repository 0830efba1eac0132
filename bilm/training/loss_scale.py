"""Loss scaling, which keeps float16 gradients from vanishing.

It is halved whenever gradients overflow, and doubled after many steps without. Source: Micikevicius
et al. 2018, section 3.2; the numbers are Keras's.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Annotated

from bilm.io.json_reader import Bounds, Count

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
