"""Reporting the progress of a long call."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bilm.run_directory.records import HeldoutRecord

if TYPE_CHECKING:
    from bilm.training.trainer import StepReport

_LOG = logging.getLogger("bilm")


@dataclass(frozen=True)
class Schedule:
    """The steps of a call.

    Attributes:
        n_steps: all of them.
        steps_per_epoch: of these.
        n_done: those that were done before, where a call is resumed.
        sampled: whether the losses are those of a sampled softmax, so not perplexities of the text.
    """

    n_steps: int
    steps_per_epoch: int
    n_done: int
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
        """No more steps are taken."""

    def scored(self, n_scored: int, n_tokens: int) -> None:
        """This number of tokens of a tested text has been scored."""
