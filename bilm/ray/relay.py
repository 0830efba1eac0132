"""What the first worker of a training tells the driver, and hears from it."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bilm.run_directory.records import HeldoutRecord
from bilm.runs.reporter import Reporter, Schedule

if TYPE_CHECKING:
    from bilm.training.trainer import StepReport


@dataclass(frozen=True)
class Attempt:
    """A start of the workers.

    Attributes:
        number: from 0; Ray starts them again when one is lost.
        seconds: since the call began.
        resumes: whether an attempt before it has saved a checkpoint.
    """

    number: int
    seconds: float
    resumes: bool


class Relay:
    """Carries what the chief reports to the driver, and the wish to stop to the chief; an actor of Ray."""

    def __init__(self) -> None:
        self._told: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._is_stopping = False
        self._n_attempts = 0
        self._began = time.monotonic()
        self._found: object = None

    def begin(self, found: object) -> Attempt:
        """The chief begins an attempt.

        Args:
            found: what tells one newest checkpoint from another, None if there is none.
        """
        if not self._n_attempts:
            self._found = found
        self._n_attempts += 1
        resumes = found is not None and found != self._found
        return Attempt(self._n_attempts - 1, time.monotonic() - self._began, resumes)

    def tell(self, name: str, *values: object) -> None:
        """Something for the driver."""
        self._told.append((name, values))

    def take(self) -> list[tuple[str, tuple[Any, ...]]]:
        """All that was told since the last call."""
        told = list(self._told)
        self._told.clear()
        return told

    def stop(self) -> None:
        """The driver wants the training to be saved and to end."""
        self._is_stopping = True

    def is_stopping(self) -> bool:
        """Whether it does."""
        return self._is_stopping


class ChiefReporter(Reporter):
    """Reports to the driver, and hears from it whether to stop.

    Args:
        relay: the actor.
        command: see `Reporter`.
    """

    def __init__(self, relay: Any, command: str | None) -> None:  # noqa: ANN401
        self._relay = relay
        self.command = command
        self._answer = relay.is_stopping.remote()
        self._is_stopping = False

    def should_stop(self) -> bool:
        """Whether to stop, as far as the relay has answered: no step waits for it."""
        import ray

        if ray.wait([self._answer], timeout=0)[0]:
            self._is_stopping = ray.get(self._answer)
            self._answer = self._relay.is_stopping.remote()
        return self._is_stopping

    def say(self, line: str) -> None:
        """Tell it."""
        self._relay.tell.remote("say", line)

    def warn(self, line: str) -> None:
        """Tell it."""
        self._relay.tell.remote("warn", line)

    def begin(self, schedule: Schedule) -> None:
        """Tell it."""
        self._relay.tell.remote("begin", schedule)

    def step(self, report: StepReport) -> None:
        """Tell it without the text of the batch."""
        self._relay.tell.remote("step", replace(report, batch=report.batch._replace(parts=())))

    def heldout(self, record: HeldoutRecord) -> None:
        """Tell it."""
        self._relay.tell.remote("heldout", record)

    def end(self) -> None:
        """Tell it."""
        self._relay.tell.remote("end")
