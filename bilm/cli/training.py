"""The flags that train and restart have in common, how they run, and how they print their results."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from bilm.cli.flags import (
    PATTERN,
    EvalInterval,
    Integer,
    Number,
    SaveInterval,
    TimeSpan,
    no_xla,
    on_ray,
    open_ray,
    option_values,
    text_files,
)
from bilm.cli.process import STOPPED_STATUS, StopRequests, go_on_without_output, import_tensorflow
from bilm.cli.refusals import with_flags
from bilm.cli.terminal import PrintingReporter, clock
from bilm.options import Decay, Optimizer, Precision

if TYPE_CHECKING:
    from bilm.ray.cluster import Cluster
    from bilm.runs.dry_run import Estimate
    from bilm.runs.results import TrainingResult


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


_POSITIVE = Integer(min=1)
_OPTIONS = "as in the options"
_HYPER_PARAMETERS = [
    click.option("--n-epochs", type=_POSITIVE, show_default=_OPTIONS, help="Passes over the text."),
    click.option("--batch-size", type=_POSITIVE, show_default=_OPTIONS, help="Rows of a batch, per GPU."),
    click.option(
        "--accumulate",
        type=_POSITIVE,
        show_default=_OPTIONS,
        help="Batches whose gradients make one update, like one larger batch.",
    ),
    click.option(
        "--n-train-tokens",
        type=_POSITIVE,
        show_default="counted in the text",
        help="Length of an epoch in tokens.",
    ),
    click.option(
        "--optimizer",
        type=click.Choice([member.value for member in Optimizer]),
        show_default=_OPTIONS,
        help="Optimizer; bilm-tf's is adagrad.",
    ),
    click.option("--learning-rate", type=Number(), show_default=_OPTIONS, help="Step size of the optimizer."),
    click.option(
        "--warmup-steps",
        type=Integer(min=0),
        show_default=_OPTIONS,
        help="Steps over which the learning rate rises from zero.",
    ),
    click.option(
        "--learning-rate-decay",
        type=click.Choice([member.value for member in Decay]),
        show_default=_OPTIONS,
        help="How the learning rate falls after the warm-up.",
    ),
    click.option("--dropout", type=Number(), show_default=_OPTIONS, help="Dropout rate."),
    click.option(
        "--type-dropout",
        type=Number(),
        show_default=_OPTIONS,
        help="Rate at which words are dropped, each everywhere in a window.",
    ),
    click.option(
        "--weight-dropout",
        type=Number(),
        show_default=_OPTIONS,
        help="Dropout rate of the recurrent weights of the LSTMs.",
    ),
    click.option(
        "--weight-decay",
        type=Number(),
        show_default=_OPTIONS,
        help="Weight decay per step, as a factor of the learning rate.",
    ),
    click.option(
        "--weight-averaging",
        type=Number(),
        show_default=_OPTIONS,
        help="Decay of the moving average of the weights, such as 0.999; 0 for none.",
    ),
    click.option(
        "--precision",
        type=click.Choice([member.value for member in Precision]),
        show_default=_OPTIONS,
        help="Data type of matrix products; weights and softmax stay float32.",
    ),
]
_FLAGS = [
    click.option(
        "--heldout-prefix",
        type=PATTERN,
        multiple=True,
        metavar="PATTERN",
        help="Text to validate on: a file, directory or glob; repeatable.",
    ),
    click.option(
        "--eval-every",
        type=EvalInterval(),
        metavar="STEPS|epoch",
        show_default="epoch",
        help="Steps between validations.",
    ),
    click.option("--patience", type=_POSITIVE, help="Stop after this many validations without improvement."),
    click.option(
        "--save-every",
        type=SaveInterval(),
        metavar="STEPS|MINUTESm",
        default="1250",
        show_default=True,
        help="Steps, or minutes such as 30m, between checkpoints.",
    ),
    click.option(
        "--keep",
        type=_POSITIVE,
        default=2,
        show_default=True,
        help="Number of recent checkpoints to keep, besides the best.",
    ),
    click.option("--max-steps", type=_POSITIVE, help="Stop after this many steps."),
    click.option(
        "--max-time",
        type=TimeSpan(),
        help="Save and exit with status 75 after this time: 90m, 2h, 1:30:00.",
    ),
    click.option(
        "--resume",
        is_flag=True,
        help="Resume an interrupted run, or start it. To continue with other text, use restart.",
    ),
    click.option("--dry-run", is_flag=True, help="Dry run: count the text, time a few steps, write nothing."),
    click.option(
        "--seed",
        type=Integer(0, 2**31 - 1),
        show_default="drawn and recorded",
        help="Random seed.",
    ),
    click.option(
        "--shuffle/--no-shuffle",
        default=True,
        show_default=True,
        help="Whether to shuffle shards and sentences.",
    ),
    click.option(
        "--shuffle-buffer",
        type=_POSITIVE,
        default=100_000,
        show_default=True,
        help="Number of sentences shuffled at a time; limits memory use.",
    ),
    click.option(
        "--n-gpus",
        type=_POSITIVE,
        default=1,
        show_default=True,
        help="Number of GPUs per machine, each with a replica of the model.",
    ),
    click.option("--jit", is_flag=True, help="Compile the whole model with XLA, not only its LSTM."),
    no_xla,
    click.option(
        "--log-every",
        type=_POSITIVE,
        default=20,
        show_default=True,
        help="Steps between lines of metrics.jsonl and points in TensorBoard.",
    ),
    click.option(
        "--histograms-every",
        type=_POSITIVE,
        show_default="no histograms",
        help="Steps between TensorBoard histograms of the weights.",
    ),
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
        arguments = _arguments(flags)
        if ray is not None:
            texts = (*arguments["train_prefix"], *arguments["heldout_prefix"])
            arguments["ray"] = open_ray(ray, *texts, part="train")
        go_on_without_output()
        with StopRequests() as stop:
            try:
                import_tensorflow()
                if arguments["max_time"] is not None:
                    arguments["max_time"] -= time.monotonic() - started
                result = train(**arguments, reporter=PrintingReporter(stop), should_stop=stop)
            except KeyboardInterrupt:
                if stop.reason is None:
                    raise
                click.echo(
                    f"stopped before the first step: {stop.reason}; nothing to save; start again with "
                    "--resume"
                )
                click.get_current_context().exit(STOPPED_STATUS)
            print_result(result, stop.reason)
        if result.outcome == "stopped":
            click.get_current_context().exit(STOPPED_STATUS)

    decorated = on_ray(command, n_workers="1")
    for option in reversed([*_HYPER_PARAMETERS, *_FLAGS]):
        decorated = option(decorated)
    return text_files("train")(decorated)


def _arguments(flags: dict[str, Any]) -> dict[str, Any]:
    """Flags as the arguments of `bilm.train`."""
    changes = option_values(flags.pop("changes"))
    train_prefix = (*flags.pop("prefixes"), *flags.pop("more"))
    return flags | {"train_prefix": train_prefix, "changes": changes}
