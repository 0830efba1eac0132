"""What a training needs before it begins: memory, disk and time."""

import dataclasses
import os
import resource
import shutil
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import tensorflow as tf

from bilm.backend.on_tensorflow import threads_of_an_operation
from bilm.backend.settings import memory_bytes, multiplies_bfloat16
from bilm.data import pipeline
from bilm.io import messages, run_files
from bilm.models.language_model import LanguageModel
from bilm.options import Precision
from bilm.options.plan import Plan
from bilm.runs.reporter import Estimate, Reporter
from bilm.runs.settings import TrainingSettings
from bilm.training.trainer import Trainer, training_steps

_TIMED_STEPS = 5  # of a dry run


def tell_size(trainer: Trainer, path: Path, settings: TrainingSettings, reporter: Reporter) -> None:
    """Report memory and disk needed by the model; warn if there is too little."""
    memory, n_bytes = memory_bytes(), trainer.n_bytes
    free = shutil.disk_usage(next(place for place in (path, *path.parents) if place.exists())).free
    # The layers' activations come on top, and TensorFlow itself.
    needed = n_bytes + 4 * trainer.model.count_params()
    reporter.say(
        f"size: {messages.size_of(needed)} of {messages.size_of(memory)} memory for weights, gradients and "
        f"optimizer; {messages.size_of(n_bytes)} of {messages.size_of(free)} free disk for each checkpoint"
    )
    if needed > 0.8 * memory:
        reporter.warn("training needs more memory than is safe here; a smaller model needs less")
    if settings.resume:  # those of the run are replaced
        free += sum(file.lstat().st_size for file in path.glob(f"{run_files.CHECKPOINT}*"))
    n_kept = settings.keep + 2  # plus the best one, and the one being written
    if n_kept * n_bytes > free and not settings.dry_run:
        reporter.warn(f"{n_kept} checkpoints do not fit on the disk; make room, or `keep` fewer")


def estimate(
    trainer: Trainer,
    plan: Plan,
    n_done: int,
    batches: Callable[[], Iterator[pipeline.TrainingBatch]],
    reporter: Reporter,
) -> Estimate | None:
    """Time a few steps and estimate the rest of the schedule; None if no steps are left.

    Where the processor multiplies bfloat16, its steps are timed too.

    Args:
        trainer: model in training.
        plan: plan of the call.
        n_done: steps of the call so far.
        batches: reads batches of the training text.
        reporter: receives the number of steps before they are taken.
    """
    n_left = plan.n_steps - n_done
    if n_left <= 0:
        return None

    def times(trainer: Trainer) -> list[float]:
        return [report.seconds for report in training_steps(trainer, batches(), _TIMED_STEPS + 1)]

    reporter.say(f"timing: {_TIMED_STEPS + 1} steps, the first of which compiles the model")
    first, *others = times(trainer)
    step_seconds = statistics.median(others)
    options, n_replicas = trainer.options, trainer.strategy.num_replicas_in_sync
    has_gpu = bool(tf.config.list_logical_devices("GPU"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    in_bfloat16 = None
    is_float32, is_alone = options.precision is Precision.FLOAT32, n_replicas == 1
    has_room = 4 * trainer.n_bytes < memory_bytes()  # for another model
    if is_float32 and is_alone and has_room and not has_gpu and multiplies_bfloat16():
        options = dataclasses.replace(options, precision=Precision.BFLOAT16)
        model = LanguageModel(options, options.precision)
        twin = Trainer(model, trainer.seed, freeze=plan.freeze, jit=trainer.jit)
        in_bfloat16 = statistics.median(times(twin)[1:])
    return Estimate(
        n_steps=plan.n_steps,
        steps_per_epoch=plan.steps_per_epoch,
        n_left=n_left,
        step_seconds=step_seconds,
        first_step_seconds=first,
        tokens_per_second=trainer.options.step_tokens * n_replicas / step_seconds,
        peak_bytes=peak if os.uname().sysname == "Darwin" else peak * 1024,
        gpu_bytes=tf.config.experimental.get_memory_info("GPU:0")["peak"] if has_gpu else None,
        kept_bytes=trainer.n_bytes,
        n_timed=1 + len(others),
        threads=threads_of_an_operation(),
        bfloat16_seconds=in_bfloat16,
    )
