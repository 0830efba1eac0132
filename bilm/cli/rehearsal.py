"""A few steps of a training that is not to be done yet."""

from __future__ import annotations

import os
import resource
import statistics
from typing import TYPE_CHECKING

import click

from bilm.cli.progress import clock

if TYPE_CHECKING:
    from bilm.cli.jobs import Job
    from bilm.training.trainer import Trainer

_TIMED_STEPS = 5


def rehearse(job: Job, trainer: Trainer, n_done: int = 0) -> None:
    """Time a few steps and say what those that are left would take."""
    from bilm.training.trainer import training_steps

    n_left = job.n_steps - n_done
    if n_left <= 0:
        click.echo("nothing left to do")
        return

    steps = training_steps(trainer, job.batches(trainer, 0, None), _TIMED_STEPS + 1)
    seconds = [report.seconds for report in steps]
    step = statistics.median(seconds[1:])
    n_tokens = job.options.batch_size * job.options.unroll_steps * trainer.n_parts
    variables = [*trainer.model.weights, *trainer.optimizer.variables]
    kept = sum(variable.value.dtype.size * int(variable.shape.num_elements()) for variable in variables)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if os.uname().sysname == "Darwin" else 1024
    )
    click.echo(
        f"memory: {peak / 1e9:.2f} GB at most in {len(seconds)} steps, of which weights and optimizer "
        f"{kept / 1e9:.2f} GB"
    )
    what = "training" if n_left == job.n_steps else f"the {n_left:,} steps that are left"
    click.echo(f"steps: {job.n_steps:,}, {job.steps_per_epoch:,} an epoch")
    click.echo(
        f"time: {clock(seconds[0] + step * (n_left - 1))} for {what}, {step:.3f} s a step, "
        f"{n_tokens / step:,.0f} tokens/s, first step {seconds[0]:.1f} s; nothing was written"
    )
