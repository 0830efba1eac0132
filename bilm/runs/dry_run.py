"""A dry run: time a few steps and write nothing."""

from __future__ import annotations

import os
import resource
import statistics
from collections.abc import Iterator

import tensorflow as tf

from bilm.data.pipeline import TrainingBatch
from bilm.runs.reporter import Schedule
from bilm.runs.results import Estimate
from bilm.training.trainer import Trainer, training_steps

_TIMED_STEPS = 5


def dry_run(trainer: Trainer, batches: Iterator[TrainingBatch], schedule: Schedule) -> Estimate | None:
    """Time a few steps, to tell what those that are left would take; None where none is."""
    n_left = schedule.n_steps - schedule.n_done
    if n_left <= 0:
        return None
    steps = training_steps(trainer, batches, _TIMED_STEPS + 1)
    first, *others = [report.seconds for report in steps]
    step_seconds = statistics.median(others)
    n_tokens = trainer.options.batch_size * trainer.options.unroll_steps * trainer.n_parts
    variables = [one.value for one in (*trainer.model.weights, *trainer.optimizer.variables)]
    if trainer.average is not None:
        variables += [one for average in trainer.average.averages.values() for one in average]
    return Estimate(
        n_steps=schedule.n_steps,
        steps_per_epoch=schedule.steps_per_epoch,
        n_left=n_left,
        step_seconds=step_seconds,
        first_step_seconds=first,
        tokens_per_second=n_tokens / step_seconds,
        peak_bytes=_peak_bytes(),
        gpu_bytes=_gpu_bytes(),
        kept_bytes=sum(one.dtype.size * int(one.shape.num_elements()) for one in variables),
        n_timed=1 + len(others),
    )


def _gpu_bytes() -> int | None:
    if not tf.config.list_logical_devices("GPU"):
        return None
    return tf.config.experimental.get_memory_info("GPU:0")["peak"]


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if os.uname().sysname == "Darwin" else peak * 1024
