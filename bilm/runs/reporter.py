"""Progress reports and results of a call."""

import enum
import logging
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bilm.io.progress import ProgressLine, clock
from bilm.options.plan import Plan
from bilm.run_directory.records import HeldoutRecord
from bilm.training import meter

_LOG = logging.getLogger("bilm")


class Reporter:
    """Receives the progress of a call; by default it logs messages and validations, as ``bilm``.

    Attributes:
        command: command to record in ``calls.jsonl``; None to record the call in Python.

    Example:
        >>> import bilm
        >>> class Lines(bilm.Reporter):
        ...     def say(self, line):
        ...         print(line)
        >>> result = bilm.test("heldout.txt", "run", reporter=Lines())
        corpus: 1 file, 60 sentences, 747 tokens with sentence ends, 5.97% unknown words
        model: run/model.ckpt-12, step 12
    """

    command: str | None = None

    def say(self, line: str) -> None:
        """Receive a line of information."""
        _LOG.info("%s", line)

    def warn(self, line: str) -> None:
        """Receive a warning."""
        _LOG.warning("%s", line)

    def begin(self, plan: Plan) -> None:
        """Receive the plan before the first step; from now on, a stopped call saves first."""
        self.say(f"training: {plan.n_steps:,} steps, {plan.steps_per_epoch:,} per epoch")

    def step(self, report: meter.StepReport) -> None:
        """Receive the report of a training step."""

    def heldout(self, record: HeldoutRecord) -> None:
        """Receive the record of a validation."""
        parts = [f"forward {record.forward_perplexity:.4f}"]
        if record.backward_perplexity is not None:
            parts.append(f"backward {record.backward_perplexity:.4f}")
        parts.append(f"known words {record.known_perplexity:.4f}")
        self.say(
            f"step {record.step}  epoch {record.epoch:.2f}  heldout perplexity {record.perplexity:.4f} "
            f"({', '.join(parts)}), training slice {record.train_perplexity:.4f}"
            + ("  best" if record.best else "")
        )

    def end(self) -> None:
        """Receive the end of training or scoring."""

    def scored(self, n_scored: int, n_tokens: int) -> None:
        """Receive the number of tokens scored so far, out of `n_tokens`."""


class ProgressReporter(Reporter):
    """Shows messages and progress on standard error. It is the default of calls in Python.

    On a terminal, progress is one line that is updated; elsewhere, a new line is written at intervals.
    """

    def __init__(self) -> None:
        self._line = ProgressLine()
        self._scoring_began = 0.0

    def write(self, line: str, is_result: bool = True) -> None:  # noqa: ARG002
        """Write a line.

        Args:
            line: text without the newline.
            is_result: true for output of a command, false for diagnostics.
        """
        with suppress(OSError, ValueError, AttributeError):  # a closed stream ends no training
            sys.stderr.write(f"{line}\n")

    def say(self, line: str) -> None:
        """Write a line of information."""
        self._line.close()
        self.write(line)

    def warn(self, line: str) -> None:
        """Write a warning."""
        self._line.close()
        self.write(f"warning: {line}", is_result=False)

    def begin(self, plan: Plan) -> None:
        """Write the number of steps."""
        super().begin(plan)
        self._plan = plan
        self._steps = meter.Meter()  # since the last line
        self._began: tuple[float, int] | None = None
        self._heldout: list[str] = []

    def step(self, report: meter.StepReport) -> None:
        """Show a line about the steps since the last line, if one is due; always shows the last step."""
        if not (report.is_skipped and self._steps.n_steps):  # as in the records, but never of no step
            self._steps.add(report)
        now, is_last = time.monotonic(), report.n_done == report.n_steps
        is_first, self._began = self._began is None, self._began or (now, report.n_done)
        if not (is_first or is_last or self._line.is_due()):
            return
        started, done = self._began
        left = "?"
        if report.n_done > done:  # leaves out the first step, which is mostly compilation
            left = clock((now - started) / (report.n_done - done) * (report.n_steps - report.n_done))
        steps, self._steps = self._steps, meter.Meter()
        loss = meter.mean(steps.direction_losses)
        sampled = "sampled " if self._plan.options.use_sampling else ""
        fields = [
            f"step {report.step}",
            f"{left} left",
            f"{sampled}perplexity {meter.perplexity(loss):.4g}",
            *self._heldout,
            f"epoch {report.n_done / self._plan.steps_per_epoch:.2f}",
            f"{steps.n_tokens / max(steps.seconds, 1e-9):,.0f} tokens/s",
            f"{report.n_done / report.n_steps:.1%}",
            f"{sampled}loss {loss:.4f}",
        ]
        if is_last:
            self.say("  ".join(fields))
        else:
            self._line.show(fields, self.write)

    def heldout(self, record: HeldoutRecord) -> None:
        """Write the perplexity; the following lines about steps repeat it."""
        self._heldout = [f"heldout {record.perplexity:.4g}"]
        super().heldout(record)

    def end(self) -> None:
        """Remove the progress line."""
        self._line.close()

    def scored(self, n_scored: int, n_tokens: int) -> None:
        """Show a progress line if one is due."""
        if not n_scored:
            self._scoring_began = time.monotonic()
        elif self._line.is_due():
            rate = n_scored / max(time.monotonic() - self._scoring_began, 1e-9)
            left = clock((n_tokens - n_scored) / rate)
            done = f"scored {n_scored:,} of {n_tokens:,} tokens", f"{n_scored / n_tokens:.1%}"
            fields = [*done, f"{left} left", f"{rate:,.0f} tokens/s"]
            self._line.show(fields, lambda line: self.write(line, is_result=False))


class Outcome(enum.StrEnum):
    """Outcome of a training call; a member equals its string."""

    FINISHED = "finished"
    NO_GAIN = "no gain"
    STOPPED = "stopped"
    DRY_RUN = "dry run"


@dataclass(frozen=True)
class Estimate:
    """Estimate by a dry run.

    Attributes:
        n_steps: steps of the schedule.
        steps_per_epoch: steps in one epoch.
        n_left: remaining steps.
        step_seconds: median duration of a step.
        first_step_seconds: duration of the first step, which includes compilation.
        tokens_per_second: targets in one direction per second, at the median.
        peak_bytes: peak memory of the process.
        gpu_bytes: peak memory of the first GPU; None without a GPU.
        kept_bytes: memory of weights and optimizer state.
        n_timed: number of steps taken.
        threads: threads of one operation.
        bfloat16_seconds: median duration of a step in bfloat16; None where it was not timed.
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
    threads: int
    bfloat16_seconds: float | None = None

    @property
    def seconds(self) -> float:
        """Duration of the remaining steps."""
        return self.first_step_seconds + self.step_seconds * (self.n_left - 1)


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training call.

    Attributes:
        save_dir: run directory.
        outcome: ``"finished"``, ``"no gain"`` (`patience` ran out), ``"stopped"`` (the run is saved, and the
            same call with ``resume=True`` continues it) or ``"dry run"``.
        step: training steps of the model.
        saved: prefix of the last checkpoint saved; None if no steps were left, and for a dry run.
        best_perplexity, best_step, best_checkpoint: lowest perplexity of the heldout text in this and earlier
            calls, its step, and the prefix of its checkpoint; None without validations.
        n_without_gain: validations of the call since then.
        stop_reason: reason for the stop, or None.
        estimate: estimate by a dry run; None if no steps were left.
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
    """Result of a test.

    Attributes:
        perplexity, forward_perplexity, backward_perplexity: perplexity of both directions together, and of
            each; None for a model without the backward direction.
        known_perplexity: perplexity of the words in the vocabulary and the ends of sentences.
        bits_per_character: loss in bits per Unicode character of the text, counting the space or line end
            after each word. An unknown word costs only its ``<UNK>``.
        tokens: targets scored in each direction.
        oov_rate: fraction of the words that are not in the vocabulary.
        checkpoint: prefix of the checkpoint, or the weight file.
        step: training steps of the model; None for dumped weights.
    """

    perplexity: float
    forward_perplexity: float
    backward_perplexity: float | None
    known_perplexity: float
    bits_per_character: float
    tokens: int
    oov_rate: float
    checkpoint: str
    step: int | None
