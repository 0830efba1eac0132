"""The flags that train and restart have in common, how they run, and how they print their results."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from bilm.cli.flags import (
    EVAL_INTERVAL,
    SAVE_INTERVAL,
    TIME,
    flag_of,
    no_xla,
    on_ray,
    open_ray,
    option_values,
    text_files,
)
from bilm.cli.process import STOPPED_STATUS, StopRequests, go_on_without_output, import_tensorflow
from bilm.cli.refusals import with_flags
from bilm.cli.terminal import PrintingReporter, clock
from bilm.options import Options
from bilm.options.parameters import parameters
from bilm.runs.settings import TrainingSettings

if TYPE_CHECKING:
    from bilm.ray.cluster import Cluster
    from bilm.runs.dry_run import Estimate
    from bilm.runs.results import TrainingResult


def _lines(result: TrainingResult, reason: str | None) -> Iterator[str]:
    """The result; `reason` is the signal that stopped the call, or None."""
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


_READ_AS = {"eval_every": EVAL_INTERVAL, "save_every": SAVE_INTERVAL, "max_time": TIME}
_FLAGS = [
    *(
        flag_of(one._replace(shown=one.shown or "as in the options"))
        for one in parameters(Options).values()
        if one.flag
    ),
    text_files("heldout", required=False, text="Text to validate on"),
    *(
        flag_of(one, _READ_AS.get(one.name))
        for one in parameters(TrainingSettings).values()
        if one.name != "heldout_prefix"
    ),
    no_xla,
    click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change a value of options.json, such as lstm.dim=512; repeatable.",
    ),
]


def training_command(train: Callable[..., TrainingResult]) -> Callable[..., None]:
    """Add the flags to a command that takes them as keyword arguments of `bilm.train`, and print its result.

    Training continues if standard output fails. When it is stopped, the command exits with status 75.
    """

    @functools.wraps(train)
    def command(ray: Cluster | None, **flags: Any) -> None:  # noqa: ANN401
        started = time.monotonic()
        arguments = flags | {"changes": option_values(flags["changes"])}
        if ray is not None:
            texts = (*arguments["train_prefix"], *arguments["heldout_prefix"])
            arguments["ray"] = open_ray(ray, *texts)
        go_on_without_output()
        with StopRequests() as stop:
            try:
                import_tensorflow()
                if arguments["max_time"] is not None:
                    left = arguments["max_time"] - (time.monotonic() - started)
                    arguments["max_time"] = max(left, 1e-3)
                result = train(**arguments, reporter=PrintingReporter(stop), should_stop=stop)
            except KeyboardInterrupt:
                if stop.reason is None:
                    raise
                click.echo(
                    f"stopped before the first step: {stop.reason}; nothing to save; start again with "
                    "--resume"
                )
                click.get_current_context().exit(STOPPED_STATUS)
            for line in _lines(result, stop.reason):
                click.echo(line)
        if result.outcome == "stopped":
            click.get_current_context().exit(STOPPED_STATUS)

    decorated = on_ray(command, n_workers="1")
    for option in reversed(_FLAGS):
        decorated = option(decorated)
    return text_files("train")(decorated)
