"""The plan of a training run, and how the run can end."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from bilm.training_loop.interval import Interval


class Outcome(str, enum.Enum):
    """How a call ended; equal to its word."""

    FINISHED = "finished"
    NO_GAIN = "no gain"
    STOPPED = "stopped"
    DRY_RUN = "dry run"

    __str__ = str.__str__


@dataclass(frozen=True)
class Plan:
    """What a call is to do.

    Attributes:
        n_steps: steps of the call.
        steps_per_epoch: steps that make an epoch.
        save_every: steps or minutes between checkpoints.
        keep: checkpoints that stay, beside the best.
        eval_every: steps between validations; the last step has one as well.
        patience: end after so many validations without a new best.
        log_every: steps in a line of the record.
        histograms_every: steps between histograms of the weights; None for none.
    """

    n_steps: int
    steps_per_epoch: int
    save_every: Interval
    keep: int = 2
    eval_every: int | None = None
    patience: int | None = None
    log_every: int = 20
    histograms_every: int | None = None
