"""What calls of train, restart, test and dump_weights give back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bilm.runs.loop import Outcome


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
            and the same call with ``resume=True`` goes on) or ``"dry run"``.
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


@dataclass(frozen=True)
class TestResult:
    """How well a model predicts a text.

    Attributes:
        perplexity: of both directions together.
        forward_perplexity: of the forward direction.
        backward_perplexity: of the backward one; None of a model without it.
        tokens: targets that were scored in each direction.
        oov_rate: share of the words that are not in the vocabulary.
        checkpoint: prefix of the checkpoint that was read.
        step: steps behind it.
    """

    perplexity: float
    forward_perplexity: float
    backward_perplexity: float | None
    tokens: int
    oov_rate: float
    checkpoint: str
    step: int


@dataclass(frozen=True)
class DumpResult:
    """What was written for embedding.

    Attributes:
        weight_file: the weights, HDF5.
        options_file: the options that go with them.
        checkpoint: prefix of the checkpoint that was read.
        n_arrays: arrays in the file.
        n_values: numbers in them.
    """

    weight_file: Path
    options_file: Path
    checkpoint: str
    n_arrays: int
    n_values: int
