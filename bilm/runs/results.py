"""The results of train, restart, test and dump_weights."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from pathlib import Path


class Outcome(str, enum.Enum):
    """How a call ended; equal to its word."""

    FINISHED = "finished"
    NO_GAIN = "no gain"
    STOPPED = "stopped"
    DRY_RUN = "dry run"

    __str__ = str.__str__


@dataclass(frozen=True)
class Estimate:
    """What a dry run found.

    Attributes:
        n_steps: steps of the schedule.
        steps_per_epoch: of these.
        n_left: those that are still to be done.
        step_seconds: median of a step.
        first_step_seconds: of the first, which compiles.
        tokens_per_second: in one direction, by the median.
        peak_bytes: most memory that the process had.
        gpu_bytes: most memory in use on the first GPU; None without one.
        kept_bytes: weights, their averages and the optimizer.
        n_timed: steps that were taken.
    """

    n_steps: int
    steps_per_epoch: int
    n_left: int
    step_seconds: float
    first_step_seconds: float
    tokens_per_second: float
    peak_bytes: int
    gpu_bytes: int | None
    kept_bytes: int
    n_timed: int

    @property
    def seconds(self) -> float:
        """That the steps left would take."""
        return self.first_step_seconds + self.step_seconds * (self.n_left - 1)


@dataclass(frozen=True)
class TrainingResult:
    """How a call of training ended.

    Attributes:
        save_dir: the run directory.
        outcome: ``"finished"``, ``"no gain"`` (`patience` ran out), ``"stopped"`` (what was learned is saved,
            and the same call with ``resume=True`` continues) or ``"dry run"``.
        step: steps behind the model.
        saved: prefix of the checkpoint that was saved last; None where nothing was left to do, and of a dry
            run.
        best_perplexity: lowest perplexity of the heldout text; None without one.
        best_step: the step that had it.
        best_checkpoint: prefix of that step's checkpoint.
        n_without_gain: validations since then.
        stop_reason: why it was stopped.
        estimate: what a dry run found; None where nothing is left to do.
    """

    save_dir: Path
    outcome: Outcome
    step: int
    saved: Path | None = None
    best_perplexity: float | None = None
    best_step: int | None = None
    best_checkpoint: Path | None = None
    n_without_gain: int = 0
    stop_reason: str | None = None
    estimate: Estimate | None = None

    def named(self, save_dir: Path) -> TrainingResult:
        """The result with its paths as the run directory was given."""
        saved, best = (path and save_dir / path.name for path in (self.saved, self.best_checkpoint))
        return replace(self, save_dir=save_dir, saved=saved, best_checkpoint=best)


@dataclass(frozen=True)
class TestResult:
    """How well a model predicts a text.

    Attributes:
        perplexity: of both directions together.
        forward_perplexity: of the forward direction.
        backward_perplexity: of the backward one; None of a model without it.
        tokens: targets that were scored in each direction.
        oov_rate: share of the words that are not in the vocabulary.
        checkpoint: prefix of the checkpoint that was read, or the file of weights.
        step: steps behind it; None of dumped weights, which do not say.
    """

    perplexity: float
    forward_perplexity: float
    backward_perplexity: float | None
    tokens: int
    oov_rate: float
    checkpoint: str
    step: int | None


@dataclass(frozen=True)
class DumpResult:
    """What was written for embedding.

    Attributes:
        weight_file: the weights, HDF5.
        options_file: the options that go with them.
        checkpoint: prefix of the checkpoint that was read, or the file of weights.
        n_arrays: arrays in the file.
        n_values: numbers in them.
        vocabulary_file: the vocabulary, where a directory was written.
    """

    weight_file: Path
    options_file: Path
    checkpoint: str
    n_arrays: int
    n_values: int
    vocabulary_file: Path | None = None
