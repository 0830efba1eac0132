"""A dry run: a few steps are timed, and nothing is written."""

from __future__ import annotations

import os
import resource
import statistics

from bilm.runs.jobs import Job
from bilm.runs.results import Estimate
from bilm.training.trainer import Trainer, training_steps

_TIMED_STEPS = 5


def dry_run(job: Job, trainer: Trainer, n_done: int = 0) -> Estimate | None:
    """Time a few steps, to tell what those that are left would take; None where none is."""
    n_left = job.n_steps - n_done
    if n_left <= 0:
        return None
    steps = training_steps(trainer, job.batches(trainer, 0, None), _TIMED_STEPS + 1)
    first, *others = [report.seconds for report in steps]
    step_seconds = statistics.median(others)
    n_tokens = job.options.batch_size * job.options.unroll_steps * trainer.n_parts
    variables = [one.value for one in (*trainer.model.weights, *trainer.optimizer.variables)]
    if trainer.average is not None:
        variables += [one for average in trainer.average.averages.values() for one in average]
    return Estimate(
        n_steps=job.n_steps,
        steps_per_epoch=job.steps_per_epoch,
        n_left=n_left,
        step_seconds=step_seconds,
        first_step_seconds=first,
        tokens_per_second=n_tokens / step_seconds,
        peak_bytes=_peak_bytes(),
        kept_bytes=sum(one.dtype.size * int(one.shape.num_elements()) for one in variables),
        n_timed=1 + len(others),
    )


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if os.uname().sysname == "Darwin" else peak * 1024
