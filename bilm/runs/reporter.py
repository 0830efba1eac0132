"""What a call tells its caller: its progress, and its results."""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.run_directory.records import HeldoutRecord

if TYPE_CHECKING:
    from bilm.training.meter import StepReport

_LOG = logging.getLogger("bilm")


@dataclass(frozen=True)
class Schedule:
    """The steps of a call.

    Attributes:
        n_steps: all of them.
        steps_per_epoch: of these.
        sampled: whether the losses are those of a sampled softmax, so not perplexities of the text.
    """

    n_steps: int
    steps_per_epoch: int
    sampled: bool


class Reporter:
    """Receives the progress of a call; override methods to show it elsewhere than in the logger ``bilm``.

    Attributes:
        command: the command recorded in ``calls.jsonl``; None for the call in Python.

    Example:
        >>> import bilm
        >>> class Lines(bilm.Reporter):
        ...     def say(self, line):
        ...         print(line)
        >>> result = bilm.test("heldout.txt", "run", reporter=Lines())
        corpus: 1 file, 60 sentences, 747 tokens with sentence ends, OOV 5.97%
        model: run/model.ckpt-12, step 12
    """

    command: str | None = None

    def say(self, line: str) -> None:
        """A line of information."""
        _LOG.info("%s", line)

    def warn(self, line: str) -> None:
        """A warning."""
        _LOG.warning("%s", line)

    def begin(self, schedule: Schedule) -> None:
        """Training begins; from now on a call that is stopped saves first."""
        self.say(f"training: {schedule.n_steps:,} steps, {schedule.steps_per_epoch:,} per epoch")

    def step(self, report: StepReport) -> None:
        """A training step was taken."""

    def heldout(self, record: HeldoutRecord) -> None:
        """The heldout text was scored."""
        parts = [f"forward {record.forward_perplexity:.4f}"]
        if record.backward_perplexity is not None:
            parts.append(f"backward {record.backward_perplexity:.4f}")
        self.say(
            f"step {record.step}  epoch {record.epoch:.2f}  heldout perplexity {record.perplexity:.4f} "
            f"({', '.join(parts)}), training slice {record.train_perplexity:.4f}"
            + ("  best" if record.best else "")
        )

    def end(self) -> None:
        """No more steps are taken, or tokens scored."""

    def scored(self, n_scored: int, n_tokens: int) -> None:
        """This number of tokens of a tested text has been scored."""


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
