"""``bilm train`` and ``bilm restart``: flags, execution and printed results."""

import contextlib
import functools
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import click

from bilm.backend import settings as backend_settings
from bilm.cli import echo, flags, process, with_flags
from bilm.errors import BilmError, DataError
from bilm.io import background, progress, run_files
from bilm.io.shards import can_be_read_once
from bilm.options import PRESETS, Options, recipes
from bilm.options.hyper_parameters import dotted
from bilm.options.parameters import Freeze, parameters
from bilm.options.plan import Plan
from bilm.runs import reporter, settings


class PrintingReporter(reporter.ProgressReporter):
    """Prints messages and steps to standard output, everything else to standard error.

    Args:
        stop: switched to `save_first` when training begins; None for commands that save nothing.
    """

    def __init__(self, stop: process.StopRequests | None = None) -> None:
        super().__init__()
        self.command = click.get_current_context().find_root().meta["bilm.command"]
        self._stop, self._is_stopping = stop, False

    def write(self, line: str, is_result: bool = True) -> None:
        """Print a line with flags for arguments; a stream that fails, as on a full disk, is given up."""
        try:
            echo(with_flags(line), err=not is_result)
        except OSError as error:
            if self._stop is None:
                raise
            process.drop_output(sys.stdout if is_result else sys.stderr)
            if is_result:
                self.write(f"standard output: {error.strerror}; continuing without it", is_result=False)

    def begin(self, plan: Plan) -> None:
        """Save on signals from now on."""
        if self._stop is not None:
            self._stop.save_first()
        super().begin(plan)

    def should_stop(self) -> bool:
        """Tell whether a signal was received; the first time, print which."""
        if self._stop is None or self._stop.received is None:
            return False
        if not self._is_stopping:
            self._is_stopping = True
            hint = "; Ctrl-C again exits at once" if self._stop.received == signal.SIGINT else ""
            self._line.close()
            self.write(f"{self._stop.reason}: saving{hint}", is_result=False)
        return True


def _lines(result: reporter.TrainingResult, reason: str | None) -> Iterator[str]:
    """Yield the lines that describe a result; `reason` is the signal that stopped the call, or None."""
    if result.outcome == "no gain":
        yield f"stopped early: {result.n_without_gain} validations without improvement"
    if result.best_perplexity is not None:
        yield (
            f"best: heldout perplexity {result.best_perplexity:.4f} at step {result.best_step:,}, "
            f"{result.best_checkpoint}"
        )
    if result.outcome == "stopped":
        yield f"stopped at step {result.step:,}: {reason or result.stop_reason}; continue with --resume"
    if (estimate := result.estimate) is None:
        if result.saved:
            yield f"saved: {result.saved}"
        elif result.outcome != "stopped":
            yield "nothing left to do; `bilm restart` trains further"
        return
    yield (
        f"memory: peak {estimate.peak_bytes / 1e9:.2f} GB in {estimate.n_timed} steps, of which weights and "
        f"optimizer {estimate.kept_bytes / 1e9:.2f} GB"
    )
    if estimate.gpu_bytes is not None:
        yield f"GPU memory: peak {estimate.gpu_bytes / 1e9:.2f} GB"
    is_all = estimate.n_left == estimate.n_steps
    work = "training" if is_all else f"the remaining {estimate.n_left:,} steps"
    yield f"steps: {estimate.n_steps:,}, {estimate.steps_per_epoch:,} per epoch"
    if estimate.bfloat16_seconds is not None:
        yield f"with --precision bfloat16: {estimate.bfloat16_seconds:.3f} s per step"
    yield (
        f"time: {progress.clock(estimate.seconds)} for {work}, {estimate.step_seconds:.3f} s per step, "
        f"{estimate.tokens_per_second:,.0f} tokens/s, first step {estimate.first_step_seconds:.1f} s; "
        "nothing was written"
    )


_READ_AS = {
    "eval_every": flags.Parsed("STEPS|epoch", settings.steps_or_epoch),
    "save_every": flags.Parsed("STEPS|MINUTESm", settings.steps_or_minutes),
    "max_time": flags.Parsed("TIME", settings.seconds),
}


class TrainingFlags(flags.TextCommand):
    """A training command with its options in groups.

    Attributes:
        groups: names of options by their heading in the help; the rest comes under "Other options".
    """

    groups: ClassVar[Mapping[str, str]] = {
        "Text": "corpus train_prefix vocab_file heldout_prefix shuffle shuffle_buffer n_train_tokens",
        "Run": "save_dir save_to config resume dry_run max_steps max_time overwrite seed log_every",
        "Model": "preset options model checkpoint remap_vocab old_vocab_file changes",
        "Training": "recipe n_epochs batch_size accumulate learning_rate warmup_steps learning_rate_decay "
        "weight_decay dropout optimizer precision freeze",
        "Validation and checkpoints": "eval_every patience save_every keep histograms_every",
        "Machine": "n_gpus threads no_xla jit ray ray_workers cpus_per_worker gpus_per_worker",
    }

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help of the options under their headings."""
        left = {option.name: option for option in self.get_params(ctx) if isinstance(option, click.Option)}
        by_heading = {
            heading: [left.pop(name) for name in names.split() if name in left]
            for heading, names in self.groups.items()
        }
        for heading, options in {**by_heading, "Other options": [*left.values()]}.items():
            if records := [record for option in options if (record := option.get_help_record(ctx))]:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the file of --config in errors about its values."""
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            name = (error.param and error.param.name) or ""
            if ctx.get_parameter_source(name) is click.core.ParameterSource.DEFAULT_MAP:
                error.param_hint = f"{name} in {ctx.params['config']}"
            raise


class _OptionsFile(flags.PathName):
    """The name of a file of options, or the table of options in a file of arguments."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Check the file name; keep a table."""
        return value if isinstance(value, Mapping) else super().convert(value, param, ctx)


def _read_config(context: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    """Use the arguments in a file as defaults of the flags."""
    if path is not None and not context.resilient_parsing:
        values = settings.read_arguments(path)
        numbers = [name for name, value in values.items() if isinstance(value, int | float)]
        typed = {name: str(values[name]) for name in numbers if name != "max_time"}  # in seconds
        changes = [*values.get("changes", {}).items()]
        context.default_map = values | typed | {"changes": changes} | dict(context.default_map or {})
    return path


def _prefer_flags(context: click.Context, arguments: dict[str, Any]) -> None:
    """Drop values of a file of arguments that the command line sets under another name."""
    file = context.default_map or {}
    typed = flags.typed_names(context)
    rivals = {"preset": {"options"}, "options": {"preset"}, "corpus": {"train_prefix", "vocab_file"}}
    rivals |= dict.fromkeys(("train_prefix", "heldout_prefix", "vocab_file"), {"corpus"})
    changed = dict(arguments["changes"]) if "changes" in typed else {}
    for name in file.keys() - typed:
        if rivals.get(name, set()) & typed or name in changed:
            arguments[name] = None
    of_file = {key: value for key, value in dotted(dict(file.get("changes", ()))) if key not in typed}
    arguments["changes"] = of_file | dict(dotted(changed))


_training_flags = flags.together(
    flags.text_files("--train-prefix", required=False),
    flags.path(
        "--corpus",
        "Corpus of bilm prepare: text, vocabulary and, without --heldout-prefix, heldout text. A restart "
        "uses its vocabulary only with --remap-vocab or for a new softmax.",
    ),
    *(
        flags.flag_of(parameter._replace(shown=parameter.shown or ""))
        for parameter in parameters(Options).values()
        if parameter.flag
    ),
    flags.text_files("--heldout-prefix", required=False, text="Text to validate on"),
    *(
        flags.flag_of(parameter, _READ_AS.get(parameter.name))
        for parameter in parameters(settings.TrainingSettings).values()
        if parameter.name != "heldout_prefix"
    ),
    flags.no_xla,
    click.option(
        "--set",
        "changes",
        type=flags.Parsed("KEY=VALUE", flags.key_and_value),
        multiple=True,
        metavar="KEY=VALUE",
        help="Set any key of options.json, such as word_dropout=0.1; repeatable.",
    ),
)


def _training_command(train: Callable[..., reporter.TrainingResult]) -> Callable[..., None]:
    """Make a command of a function with the keyword arguments of `bilm.train`: add flags, print the result.

    Training continues if standard output fails. A stopped command exits with status 75, but a dry run, which
    saves nothing, is ended by the signal.
    """

    @functools.wraps(train)
    def command(**arguments: Any) -> None:  # noqa: ANN401
        _prefer_flags(click.get_current_context(), arguments)
        process.choose_tensorflow()
        with contextlib.nullcontext() if arguments["dry_run"] else process.StopRequests() as stop:
            printer = PrintingReporter(stop)
            try:
                result = train(**arguments, reporter=printer, should_stop=printer.should_stop)
            except KeyboardInterrupt:
                if stop is None or stop.reason is None:
                    raise
                printer.write(
                    f"stopped before the first step: {stop.reason}; nothing to save; the same command starts "
                    "again"
                )
                click.get_current_context().exit(process.STOPPED_STATUS)
            for line in _lines(result, None if stop is None else stop.reason):
                printer.write(line)
            is_alone = not (arguments["ray"] or os.environ.get("TF_CONFIG"))
            is_free = is_alone and not (arguments["threads"] or arguments["resume"])
            # A GPU's memory is for one process.
            if (estimate := result.estimate) is not None and estimate.gpu_bytes is None and is_free:
                printer.write(_fastest_threads(train.__name__, arguments, estimate))
        if result.outcome == "stopped":
            click.get_current_context().exit(process.STOPPED_STATUS)

    return _training_flags(flags.on_ray(command))


def _fastest_threads(kind: str, arguments: Mapping[str, Any], estimate: reporter.Estimate) -> str:
    """Time a dry run with other threads too, each in a process of its own, since they are fixed at its start.

    Args:
        kind: name of the function, ``train`` or ``restart``.
        arguments: its arguments.
        estimate: estimate of this process.
    """
    rates = {estimate.threads: estimate.tokens_per_second}
    texts = (*(arguments["train_prefix"] or ()), *(arguments["heldout_prefix"] or ()))
    if any(map(can_be_read_once, texts)):
        return f"threads: {estimate.threads}; others are not timed, since a pipe cannot be read again"
    n_cores = background.n_cores()
    for threads in sorted({1, backend_settings.cores_of_an_operation(n_cores), n_cores} - rates.keys()):
        own = {name: value for name, value in arguments.items() if name != "config"} | {"threads": threads}
        alone = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, alone) as processes, contextlib.suppress(BilmError, BrokenExecutor):
            rate = processes.submit(_tokens_per_second, kind, own, backend_settings.xla_is_on)
            rates[threads] = rate.result()
    times = ", ".join(f"{threads}: {rate:,.0f} tokens/s" for threads, rate in sorted(rates.items()))
    return f"speed by number of threads: {times}; fastest: --threads {max(rates, key=rates.__getitem__)}"


def _tokens_per_second(kind: str, arguments: Mapping[str, Any], uses_xla: bool) -> float:
    """Return the speed of a dry run in this process."""
    process.import_tensorflow()
    from bilm.runs import train

    logging.disable()  # of what the first process has said
    backend_settings.use_xla(uses_xla)
    result = getattr(train, kind)(**arguments, reporter=reporter.Reporter())
    return float(result.estimate.tokens_per_second)


def _recipe(default: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the option ``--recipe``; `default` says what applies without it."""
    return flags.choice(
        "--recipe",
        "Named optimizer, schedule and regularisation; auto chooses by text size and number of passes.",
        recipes.RECIPES,
        show_default=default,
    )


@click.command(cls=TrainingFlags)
@flags.vocab_file(shown=False)
@flags.path("--save-dir", "Run directory to write.", required=True)
@flags.choice("--preset", "Named set of hyper-parameters.", PRESETS, show_default="laptop")
@click.option(
    "--options",
    type=_OptionsFile(path_type=Path),
    help="File of hyper-parameters: an options.json, or the same keys in TOML.",
)
@flags.path(
    "--config",
    "TOML file of arguments, such as the run.toml of a run to repeat. Flags override it.",
    is_eager=True,
    callback=_read_config,
)
@_recipe(default="auto with a preset")
@_training_command
@flags.overwrite
def train(config: Path | None, **arguments: Any) -> reporter.TrainingResult:  # noqa: ANN401
    """Train a language model from text.

    The hyper-parameters come from --preset or --options; other flags and --set change them. The default
    preset suits a few cores; `original`, the published model, needs a GPU and a large corpus.

    When interrupted (Ctrl-C, SIGTERM, SIGUSR1, SIGHUP), the command finishes the step, saves and exits with
    status 75; the same command with --resume continues from there.
    """
    from bilm.run_directory.files import CheckpointIndex
    from bilm.runs import train

    is_resumed = arguments["resume"] and CheckpointIndex(arguments["save_dir"]).exists()
    replaces = [] if is_resumed or arguments["dry_run"] else run_files.run_files(arguments["save_dir"])
    if config is not None and any(map(config.samefile, replaces)):
        raise DataError(f"{config}: it is an input and would be lost; give another name")
    return train.train(**arguments)


@click.command(cls=TrainingFlags)
@flags.vocab_file()
@flags.any_model
@flags.path("--save-to", "New run directory; the old one is not changed.")
@flags.switch("--remap-vocab", "Adapt the model to the words of --vocab-file.")
@flags.path(
    "--old-vocab-file",
    "With --remap-vocab: the vocabulary the model was trained with.",
    show_default="the run's copy",
)
@_recipe(default="the options of the model")
@flags.choice("--freeze", "Part of the model to freeze.", Freeze, default="none")
@_training_command
@flags.overwrite
def restart(**arguments: Any) -> reporter.TrainingResult:  # noqa: ANN401
    """Continue training a model, on the same text or another.

    Starts from a checkpoint of a bilm or bilm-tf run, whose options apply unless a flag changes them, or from
    dumped weights; without a softmax in them, a new one is learned.

    If the text needs another vocabulary, --remap-vocab adapts the model to it, in the new run directory
    --save-to. Words in both vocabularies keep their weights.
    """
    from bilm.runs import train

    return train.restart(**arguments)
