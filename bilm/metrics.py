"""temporary"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True)
class TrainRecord:
    step: int
    epoch: float
    tokens: int
    loss: float
    perplexity: float
    forward_perplexity: float
    backward_perplexity: float | None
    sampled: bool
    gradient_norm: float
    learning_rate: float
    tokens_per_second: float
    data_wait: float
    time: float

    def to_json(self):
        return {"kind": "train", **{k: v for k, v in dataclasses.asdict(self).items() if v is not None}}


@dataclass(frozen=True)
class HeldoutRecord:
    step: int
    epoch: float
    tokens: int
    perplexity: float
    forward_perplexity: float
    backward_perplexity: float | None
    train_perplexity: float
    best: bool
    seconds: float
    time: float

    def to_json(self):
        return {"kind": "heldout", **{k: v for k, v in dataclasses.asdict(self).items() if v is not None}}
