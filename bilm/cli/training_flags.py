"""The flags that train and restart have in common, as one object."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import click

from bilm.cli.intervals import EvalInterval, SaveInterval, TimeSpan
from bilm.cli.numbers import Integer, Number
from bilm.cli.shared import PATTERN, option_values, text_files
from bilm.cli.stopping import STOPPED_STATUS, StopRequests
from bilm.cli.streams import go_on_without_output
from bilm.options import Decay, Optimizer, Precision
from bilm.runs.interval import Every


@dataclasses.dataclass(frozen=True)
class TrainingFlags:
    """How a call goes through the text.

    Attributes:
        prefixes: patterns of the training text.
        values: changes of the hyper-parameters, for `Options.with_values`.
        heldout: patterns of the heldout text; none for no validation.
        eval_every: steps between validations, or ``epoch``.
        patience: validations without gain before an early end, or None.
        save_every: steps or minutes between checkpoints.
        keep: checkpoints that stay beside the best.
        log_every: steps in a line of ``metrics.jsonl``.
        histograms_every: steps between histograms, or None.
        max_steps: bound on the steps of this call, or None.
        max_time: seconds this call may take, or None.
        seed: of everything random; None to draw one.
        shuffle: whether shards and sentences come in random order.
        shuffle_buffer: sentences shuffled together.
        n_gpus: replicas of the model.
        jit: compile with XLA.
        resume: go on where an interrupted call stopped.
        dry_run: only say what would be done.
        started: when the command began, on the clock of `time.monotonic`.
    """

    prefixes: tuple[str, ...]
    values: dict[str, Any]
    heldout: tuple[str, ...]
    eval_every: int | str
    patience: int | None
    save_every: Every
    keep: int
    log_every: int
    histograms_every: int | None
    max_steps: int | None
    max_time: float | None
    seed: int | None
    shuffle: bool
    shuffle_buffer: int
    n_gpus: int
    jit: bool
    resume: bool
    dry_run: bool
    started: float


_POSITIVE = Integer(min=1)
_OPTIONS = "as in the options"
_HYPER_PARAMETERS = {
    "n_epochs": click.option(
        "--n-epochs", type=_POSITIVE, show_default=_OPTIONS, help="Passes over the text."
    ),
    "batch_size": click.option(
        "--batch-size", type=_POSITIVE, show_default=_OPTIONS, help="Rows of a batch, per GPU."
    ),
    "accumulate": click.option(
        "--accumulate",
        type=_POSITIVE,
        show_default=_OPTIONS,
        help="Batches whose gradients make one update, like one larger batch.",
    ),
    "n_train_tokens": click.option(
        "--n-train-tokens",
        type=_POSITIVE,
        show_default="those of the text",
        help="Length of an epoch in tokens.",
    ),
    "optimizer": click.option(
        "--optimizer",
        type=click.Choice([member.value for member in Optimizer]),
        show_default=_OPTIONS,
        help="Optimizer; bilm-tf's is adagrad.",
    ),
    "learning_rate": click.option(
        "--learning-rate", type=Number(), show_default=_OPTIONS, help="Step size of the optimizer."
    ),
    "warmup_steps": click.option(
        "--warmup-steps",
        type=Integer(min=0),
        show_default=_OPTIONS,
        help="Steps over which the learning rate rises from zero.",
    ),
    "learning_rate_decay": click.option(
        "--learning-rate-decay",
        type=click.Choice([member.value for member in Decay]),
        show_default=_OPTIONS,
        help="How the learning rate falls after the warm-up.",
    ),
    "dropout": click.option("--dropout", type=Number(), show_default=_OPTIONS, help="Dropout rate."),
    "precision": click.option(
        "--precision",
        type=click.Choice([member.value for member in Precision]),
        show_default=_OPTIONS,
        help="Data type of matrix products; weights and softmax stay float32.",
    ),
}
_FLAGS = [
    click.option(
        "--heldout-prefix",
        "heldout",
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
        help="Number of sentences shuffled at a time; limits the memory.",
    ),
    click.option(
        "--n-gpus",
        type=_POSITIVE,
        default=1,
        show_default=True,
        help="Number of GPUs per machine, each with a replica of the model.",
    ),
    click.option("--jit", is_flag=True, help="Compile the model with XLA."),
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


def _call(command: Callable[[], None], flags: TrainingFlags) -> None:
    """Train, whatever becomes of standard output; told to stop before the first step, end with status 75."""
    go_on_without_output()
    context = click.get_current_context()
    with StopRequests(None if flags.max_time is None else flags.started + flags.max_time) as stop:
        context.obj = stop
        try:
            command()
        except KeyboardInterrupt:
            if stop.reason is None:
                raise
            click.echo(
                f"stopped before the first step: {stop.reason}; nothing to save; begin again with --resume"
            )
            context.exit(STOPPED_STATUS)


def training_flags(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags; the command gets a `TrainingFlags` named ``flags`` for them."""

    @functools.wraps(command)
    def with_flags(**given: Any) -> None:  # noqa: ANN401
        started = time.monotonic()
        named = {name: given.pop(name) for name in _HYPER_PARAMETERS}
        values = option_values(given.pop("changes"), named)
        prefixes = (*given.pop("prefixes"), *given.pop("more"))
        fields = {field.name for field in dataclasses.fields(TrainingFlags)}
        own = {name: given.pop(name) for name in fields & given.keys()}
        for name in ("eval_every", "patience"):
            if own[name] is not None and not own["heldout"]:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --heldout-prefix")
        own["eval_every"] = own["eval_every"] or "epoch"
        flags = TrainingFlags(prefixes=prefixes, values=values, started=started, **own)
        _call(functools.partial(command, flags=flags, **given), flags)

    for option in reversed([*_HYPER_PARAMETERS.values(), *_FLAGS]):
        with_flags = option(with_flags)
    return text_files("train")(with_flags)
