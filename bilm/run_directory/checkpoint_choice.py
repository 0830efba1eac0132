"""Choosing the checkpoint to read: the newest that is complete, the best, or that of a step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from bilm.errors import BilmError, CheckpointError, OptionsError, WeightsError
from bilm.io.shown import quoted
from bilm.run_directory.checkpoints import CheckpointIndex
from bilm.run_directory.state import read_state
from bilm.weights.checkpoint_file import CheckpointFile
from bilm.weights.names import WeightName

_LOG = logging.getLogger(__name__)
_TRIES = 20  # to read beside a training that removes what is read

Found: TypeAlias = tuple[CheckpointFile, BilmError | None]
"""A checkpoint, and why it is not the one that should be the newest."""

_LONGEST_STEP = 18  # digits


class CheckpointChoice:
    """The checkpoints of a run, each checked before it is handed out.

    Args:
        index: of the directory.
        names: of the model's weights.
    """

    def __init__(self, index: CheckpointIndex, names: Sequence[WeightName]) -> None:
        self.index = index
        self.names = names

    def latest(self, read: bool = True) -> CheckpointFile:
        """As `bilm.run_directory.directory.RunDirectory.latest`."""
        checkpoint, problem = self._settled(lambda: self._newest_whole(read))
        if problem is not None:
            _LOG.warning("%s; using %s instead", problem, checkpoint.prefix)
        return checkpoint

    def choose(self, which: str) -> CheckpointFile:
        """As `bilm.run_directory.directory.RunDirectory.choose`."""
        if which == "latest":
            return self.latest()
        if which == "best":
            return self._settled(lambda: (self._best(), None))[0]
        if not (which.isascii() and which.isdecimal() and len(which) <= _LONGEST_STEP):
            raise OptionsError(f"checkpoint {quoted(which)}: must be latest, best or the number of a step")
        return self._settled(lambda: (self._of_step(int(which)), None))[0]

    def _settled(self, find: Callable[[], Found]) -> Found:
        """What is found when no training has saved and removed checkpoints meanwhile."""
        for _ in range(_TRIES):
            state = self.index.state()
            try:
                found = find()
            except CheckpointError:
                if self.index.state() == state:
                    raise
                continue
            if found[1] is None or self.index.state() == state:
                return found
        return find()

    def _newest_whole(self, read: bool) -> Found:
        problem: BilmError | None = None
        named: Path | None = None
        try:
            named = self.index.newest()
        except CheckpointError as error:
            problem = error
        others = [
            prefix for prefix in map(self.index.prefix, reversed(self.index.steps())) if prefix != named
        ]
        for prefix in [*([named] if named else []), *others]:
            try:
                return self._checked(prefix, read), problem
            except WeightsError as error:
                if prefix == named:  # it is the options that do not fit
                    raise
                problem = problem or error
            except CheckpointError as error:
                problem = problem or error
        raise problem or CheckpointError(f"{self.index.path}: no checkpoint yet")

    def _best(self) -> CheckpointFile:
        state = read_state(self.latest())
        if state is None or state.best is None:
            raise CheckpointError(
                f"{self.index.path}: no best checkpoint: the run was trained without heldout text"
            )
        return self._checked(self.index.prefix(state.best.step))

    def _of_step(self, step: int) -> CheckpointFile:
        prefix, steps = self.index.prefix(step), self.index.steps()
        if step not in steps:
            have = ", ".join(map(str, steps)) or "none"
            raise CheckpointError(f"{prefix}: no such checkpoint; there are those of steps: {have}")
        return self._checked(prefix)

    def _checked(self, prefix: Path, read: bool = True) -> CheckpointFile:
        checkpoint = CheckpointFile(prefix)
        checkpoint.check(self.names)
        if read:
            checkpoint.verify()
        return checkpoint
