"""What a call tells its caller: its progress, and its results."""

import enum
import functools
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bilm.io.progress import ProgressLine, clock
from bilm.run_directory.records import HeldoutRecord
from bilm.training import meter

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
    """Receives the progress of a call and tells the logger ``bilm``; override methods to show it elsewhere.

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

    def step(self, report: meter.StepReport) -> None:
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


class ProgressReporter(Reporter):
    """Shows messages and the progress on standard error: on a terminal as one line, elsewhere now and then.

    Calls in Python use it if no reporter is given.
    """

    def __init__(self) -> None:
        self._line = ProgressLine()
        self._steps = meter.Meter()  # since the last line
        self._began: tuple[float, int] | None = None
        self._heldout: list[str] = []
        self._scoring_began = 0.0

    def write(self, line: str, is_result: bool = True) -> None:  # noqa: ARG002
        """Write a line.

        Args:
            line: without its end.
            is_result: whether it belongs to the output of a command, and not to its diagnostics.
        """
        sys.stderr.write(f"{line}\n")

    def say(self, line: str) -> None:
        """Write it."""
        self._line.end()
        self.write(line)

    def warn(self, line: str) -> None:
        """Write it as a warning."""
        self._line.end()
        self.write(f"warning: {line}", is_result=False)

    def begin(self, schedule: Schedule) -> None:
        """Training begins."""
        super().begin(schedule)
        self._schedule = schedule

    def step(self, report: meter.StepReport) -> None:
        """Show a line on the steps since the last one, when it is time; the last step is always told."""
        self._steps.add(report)
        now, is_last = time.monotonic(), report.n_done == report.n_steps
        is_first, self._began = self._began is None, self._began or (now, report.n_done)
        if not (is_first or is_last or self._line.is_due()):
            return
        started, done = self._began
        left = "?"
        if report.n_done > done:  # the first step is mostly compilation
            left = clock((now - started) / (report.n_done - done) * (report.n_steps - report.n_done))
        steps, self._steps = self._steps, meter.Meter()
        loss = meter.mean(steps.direction_losses)
        sampled = "sampled " if self._schedule.sampled else ""
        fields = [
            f"step {report.step}",
            f"{report.n_done / report.n_steps:.1%}",
            f"{left} left",
            f"{sampled}perplexity {meter.perplexity(loss):.4g}",
            *self._heldout,
            f"epoch {report.n_done / self._schedule.steps_per_epoch:.2f}",
            f"{steps.n_tokens / max(steps.seconds, 1e-9):,.0f} tokens/s",
            f"{sampled}loss {loss:.4f}",
        ]
        if is_last:
            self.say("  ".join(fields))
        else:
            self._line.show(fields, self.write)

    def heldout(self, record: HeldoutRecord) -> None:
        """Tell the perplexity, which the following lines on steps repeat."""
        self._heldout = [f"heldout {record.perplexity:.4g}"]
        super().heldout(record)

    def end(self) -> None:
        """Remove the line on the progress."""
        self._line.end()

    def scored(self, n_scored: int, n_tokens: int) -> None:
        """Show a line when it is time."""
        if not n_scored:
            self._scoring_began = time.monotonic()
        elif self._line.is_due():
            rate = n_scored / max(time.monotonic() - self._scoring_began, 1e-9)
            left = clock((n_tokens - n_scored) / rate)
            done = f"scored {n_scored:,} of {n_tokens:,} tokens", f"{n_scored / n_tokens:.1%}"
            fields = [*done, f"{left} left", f"{rate:,.0f} tokens/s"]
            self._line.show(fields, functools.partial(self.write, is_result=False))


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
        card_file: the card, likewise.
    """

    weight_file: Path
    options_file: Path
    checkpoint: str
    n_arrays: int
    n_values: int
    vocabulary_file: Path | None = None
    card_file: Path | None = None
