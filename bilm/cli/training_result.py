"""How train and restart print their results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from bilm.cli.progress import clock
from bilm.cli.refusals import with_flags

if TYPE_CHECKING:
    from bilm.runs.results import TrainingResult
    from bilm.training_loop.dry_run import Estimate


def print_result(result: TrainingResult, reason: str | None) -> None:
    """Print it.

    Args:
        result: of the call.
        reason: the signal that stopped it, or None.
    """
    for line in _lines(result, reason):
        click.echo(line)


def _lines(result: TrainingResult, reason: str | None) -> Iterator[str]:
    if result.outcome == "no gain":
        yield f"stopped early: {result.n_without_gain} validations without improvement"
    if result.best_perplexity is not None:
        yield (
            f"best: heldout perplexity {result.best_perplexity:.4f} at step {result.best_step:,}, "
            f"{result.best_checkpoint}"
        )
    if result.outcome == "stopped":
        reason = reason or with_flags(result.stop_reason or "")
        yield f"stopped at step {result.step:,}: {reason}; continue with --resume"
    if result.estimate is not None:
        yield from _estimate(result.estimate)
    else:
        yield f"saved: {result.saved}" if result.saved else "nothing left to do"


def _estimate(found: Estimate) -> Iterator[str]:
    yield (
        f"memory: peak {found.peak_bytes / 1e9:.2f} GB in {found.n_timed} steps, of which weights and "
        f"optimizer {found.kept_bytes / 1e9:.2f} GB"
    )
    if found.gpu_bytes is not None:
        yield f"GPU memory: peak {found.gpu_bytes / 1e9:.2f} GB"
    what = "training" if found.n_left == found.n_steps else f"the remaining {found.n_left:,} steps"
    yield f"steps: {found.n_steps:,}, {found.steps_per_epoch:,} per epoch"
    yield (
        f"time: {clock(found.seconds)} for {what}, {found.step_seconds:.3f} s per step, "
        f"{found.tokens_per_second:,.0f} tokens/s, first step {found.first_step_seconds:.1f} s; nothing was "
        "written"
    )
