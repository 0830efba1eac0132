"""Calls of train and restart that run elsewhere than in this process; `bilm.ray` has such places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bilm.runs.reporter import Reporter
from bilm.runs.results import TrainingResult


class Elsewhere(Protocol):
    """Where a call may run: `bilm.ray.Cluster`."""

    def train(
        self,
        kind: str,
        arguments: Mapping[str, Any],
        reporter: Reporter,
        should_stop: Callable[[], bool] | None,
    ) -> TrainingResult:
        """Run a call there, and wait for its end.

        Args:
            kind: ``train`` or ``restart``.
            arguments: of the call, but for those below; None for what was not given.
            reporter: receives the progress here.
            should_stop: asked here, again and again.

        Raises:
            BilmError: as the call.
        """
        ...
