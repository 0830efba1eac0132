"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click
from click.shell_completion import CompletionItem

from bilm.backend.settings import without_xla
from bilm.errors import OptionsError
from bilm.io import STDIN, is_url, lines, messages, shards
from bilm.io.json import parse_json
from bilm.options.parameters import Choice, Parameter, Weights

if TYPE_CHECKING:
    from bilm.ray.cluster import Cluster
    from bilm.run_directory.model_source import ModelArguments as ModelArguments  # for the commands

MOST_ROWS = 1 << 20  # of a batch, as in the options
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_CLOCK = re.compile(r"(?:(?P<d>[0-9]{1,9})-)?(?P<h>[0-9]{1,9}):(?P<m>[0-5]?[0-9])(?::(?P<s>[0-5]?[0-9]))?")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


# --- types --------------------------------------------------------------------------------------------


class Parsed(click.ParamType):
    """A word that a function reads, whose `OptionsError` says what is wrong with it; other values stay.

    Args:
        name: what stands for the word in the help.
        read: the function.
    """

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Read it."""
        try:
            return self.read(value) if isinstance(value, str) else value
        except OptionsError as error:
            self.fail(str(error), param, ctx)


def seconds(text: str) -> float:
    """``90m``, ``2h``, ``1:30:00`` (hours first) or ``1-12:00:00`` (days), in seconds.

    Raises:
        OptionsError: it is none of these.
    """
    total = 0.0
    if match := re.fullmatch(r"(?P<number>[0-9]{1,9}(?:\.[0-9]+)?)(?P<unit>[smhd])", text):
        total = float(match["number"]) * _SECONDS[match["unit"]]
    elif match := _CLOCK.fullmatch(text):
        total = sum(float(number or 0) * _SECONDS[unit] for unit, number in match.groupdict().items())
    if not total:
        raise OptionsError(f"{messages.quoted(text)} is not a time such as 90m, 2h, 1:30:00 or 1-12:00:00")
    return total


def key_and_value(text: str) -> tuple[str, Any]:
    """``lstm.dim=512`` as a key and a value for `Options.with_values`.

    Raises:
        OptionsError: there is no key or no value.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise OptionsError(f"{messages.quoted(text)} is not KEY=VALUE")
    try:
        return key, parse_json(value)
    except ValueError:
        return key, value


class PathName(click.Path):
    """The name of a file or directory: neither empty, as from an unset variable, nor a URL.

    The system would take the one as the current directory, and the other as a path.

    Args:
        utf8: whether TensorFlow reads or writes it, which needs names in UTF-8.
        url: whether it may be a URL all the same, for Ray; see `check_texts`.
        settings: of `click.Path`.
    """

    def __init__(self, utf8: bool = False, url: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self.utf8, self.url = utf8, url

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Check the name."""
        name = os.fsdecode(value)
        if not name:
            self.fail("is empty, expected the name of a file or directory; is a variable unset?", param, ctx)
        if is_url(name):
            if self.url:
                return name
            self.fail(f"{name} is a URL; download it and give the path of the file", param, ctx)
        if self.utf8 and re.search("[\ud800-\udfff]", name):
            problem = f"{messages.quoted(name)} is not UTF-8; TensorFlow needs file names in UTF-8"
            self.fail(problem, param, ctx)
        return super().convert(value, param, ctx)


FILE = PathName(path_type=Path)
DIRECTORY = PathName(utf8=True, path_type=Path)
TEXT = PathName(path_type=Path, allow_dash=True)  # see `input_lines`
TEXT_OR_URL = PathName(url=True, allow_dash=True)
FILE_OR_URL = PathName(url=True)


# --- options ------------------------------------------------------------------------------------------


def together(*options: Decorator) -> Decorator:
    """Several options as one, in the order in which the help shows them."""
    return lambda command: functools.reduce(lambda made, option: option(made), reversed(options), command)


def flag_of(parameter: Parameter, kind: click.ParamType | None = None, is_hidden: bool = False) -> Decorator:
    """The flag of a parameter, with its help, bounds, choices and default.

    Args:
        parameter: see `bilm.options.parameters`.
        kind: how it is read, if its type does not say so.
        is_hidden: whether the help leaves it out.
    """
    flag, default = "--" + parameter.name.replace("_", "-"), parameter.default
    if parameter.kind is bool:
        names = f"{flag}/--no-{flag[2:]}" if default else flag
        return click.option(names, is_flag=True, default=default, help=parameter.help, hidden=is_hidden)
    return click.option(
        flag,
        type=kind or _kind_of(parameter),
        metavar=kind.name if kind else None,
        default=default if parameter.shown is None else None,
        show_default=parameter.shown or parameter.shown is None,
        help=parameter.help,
        hidden=is_hidden,
    )


def _kind_of(parameter: Parameter) -> click.ParamType:
    if issubclass(parameter.kind, Choice):
        return click.Choice(parameter.kind.values())
    least, above, below, most = dataclasses.astuple(parameter.bounds)
    if most is not None and most > 1 << 31:  # no bound that anybody meets; the settings have it
        most = None
    kind: click.ParamType
    if parameter.kind is int:
        kind = click.IntRange(least, most)
        kind.name = "integer"
    else:
        kind = click.FloatRange(
            above if least is None else least,
            below if most is None else most,
            min_open=least is None,
            max_open=most is None,
        )
        kind.name = "number"
    return kind


def no_xla(command: Callable[..., None]) -> Callable[..., None]:
    """``--no-xla``, which holds while the command runs."""

    @functools.wraps(command)
    def call(no_xla: bool, **flags: Any) -> None:  # noqa: ANN401
        with without_xla() if no_xla else nullcontext():
            command(**flags)

    text = "Run without XLA: slower, for where it does not work."
    return click.option("--no-xla", is_flag=True, help=text)(call)


overwrite = click.option("--overwrite", is_flag=True, help="Replace existing output.")


def vocab_file(required: bool = False, text: str = "Vocabulary, one word per line.") -> Decorator:
    """``--vocab-file``; optional where the run directory has a copy."""
    default = None if required else "the run's copy"
    return click.option("--vocab-file", type=FILE, required=required, show_default=default, help=text)


_model = click.option(
    "--model",
    type=FILE,
    help="A model: run directory, folder or ZIP with options.json and HDF5 weights, or weight file.",
)
_of_a_run = (
    click.option("--save-dir", type=DIRECTORY, hidden=True, help="Run directory, as bilm-tf has it."),
    click.option(
        "--checkpoint", show_default="latest", metavar="latest|best|STEP", help="Which checkpoint of a run."
    ),
    click.option(
        "--weights",
        type=click.Choice(Weights.values()),
        show_default="averaged where the run has averages",
        help="Weights of the run as the last step left them, or their moving averages.",
    ),
)
whole_model = together(_model, *_of_a_run)
"""The flags that name a model with its softmax, by its path or by its run directory."""

any_model = together(
    _model,
    click.option("--options-file", type=FILE, hidden=True, help="The options.json of --weight-file."),
    click.option("--weight-file", type=FILE, hidden=True, help="HDF5 weights, as AllenNLP has them."),
    *_of_a_run,
)
"""The flags that name a model by its path, by its dumped weights or by its run directory."""


def model_path(name: str, several: bool = False) -> Decorator:
    """An argument that names a model, or ``--model`` in its place; for a `TextCommand`.

    Args:
        name: of the argument, in the help.
        several: whether there may be several.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(model: Any, word: Any, **flags: Any) -> None:  # noqa: ANN401
            if bool(model) == bool(word):
                raise click.UsageError(f"give {name} once, also as --model")
            command(model=model or word, **flags)

        help_text = f"{name} under the name it has in other commands" + ("; repeatable." if several else ".")
        option = click.option("--model", type=FILE, multiple=several, hidden=True, help=help_text)
        n_words = -1 if several else 1
        return click.argument("word", type=FILE, nargs=n_words, required=False, metavar=name)(option(call))

    return decorate


def embedding_model(command: Callable[..., None]) -> Callable[..., None]:
    """The flags that name a model to embed with, which a command takes as `model` and `vocab_file`."""

    @functools.wraps(command)
    def call(**flags: Any) -> None:  # noqa: ANN401
        from bilm.run_directory.model_source import ModelArguments

        names = [field.name for field in dataclasses.fields(ModelArguments)]
        command(model=ModelArguments(**{name: flags.pop(name) for name in names}), **flags)

    return any_model(vocab_file(text="Vocabulary of a word-level model.")(call))


# --- text ---------------------------------------------------------------------------------------------


def text_files(name: str, required: bool = True, url: bool = False, text: str = "Text") -> Decorator:
    """``--{name}-prefix``, which takes several files; for a `TextCommand`.

    Args:
        name: of the text.
        required: whether there must be one.
        url: whether it may be a URL, see `check_texts`.
        text: what it is, in the help.
    """
    return click.option(
        f"--{name}-prefix",
        type=PathName(url=url),
        multiple=True,
        required=required,
        metavar="PATTERN...",
        help=f"{text}, one sentence per line: files, directories or globs; - for standard input.",
    )


class TextCommand(click.Command):
    """A command in which each option of several files owns the words that follow it, until the next option.

    Attributes:
        groups: names of its options by the headings of its help; all others come under "Other options".

    ``--heldout-prefix a.txt b.txt``, which is what a shell makes of ``--heldout-prefix held/*``, is the same
    as ``--heldout-prefix=a.txt --heldout-prefix=b.txt``. Other words are arguments of the command, and an
    error where it takes none.
    """

    groups: ClassVar[Mapping[str, str]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        left = {option.name: option for option in self.get_params(ctx) if isinstance(option, click.Option)}
        by_heading = {
            heading: [left.pop(name) for name in names.split() if name in left]
            for heading, names in self.groups.items()
        }
        by_heading["Other options" if by_heading else "Options"] = [*left.values()]
        for heading, options in by_heading.items():
            if records := [record for option in options if (record := option.get_help_record(ctx))]:
                with formatter.section(heading):
                    formatter.write_dl(records)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Write the option before each of its words."""
        normalize = ctx.token_normalize_func or str
        options = {name: option for option in self.params if _takes_files(option) for name in option.opts}
        words, rest = [], deque(args)
        ctx.meta[_OPEN] = None
        while rest and rest[0] != "--":
            word = rest.popleft()
            name, equals, value = word.partition("=")
            ctx.meta[_OPEN] = option = options.get(normalize(name))
            if option is None:
                words.append(word)
                continue
            values = [value] if equals else []
            while rest and (rest[0] == "-" or not rest[0].startswith("-")):
                values.append(rest.popleft())
            if not values and not ctx.resilient_parsing:
                raise click.BadOptionUsage(name, f"Option '{name}' requires an argument.", ctx)
            words += [f"{name}={value}" for value in values]
        return super().parse_args(ctx, [*words, *rest])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The arguments before the options, whose words they would be otherwise."""
        options, *arguments = super().collect_usage_pieces(ctx)
        return [*arguments, options]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Complete a further file of an option."""
        option: click.Option | None = ctx.meta[_OPEN]
        if option is not None and not incomplete.startswith("-"):
            return option.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)


_OPEN = "bilm.open_option"  # the one that owns the word that would come next


def _takes_files(option: click.Parameter) -> bool:
    return isinstance(option, click.Option) and option.multiple and isinstance(option.type, PathName)


def input_files(patterns: Sequence[str]) -> tuple[Path, ...]:
    """The files of text patterns; what can be read only once is kept until the command ends."""
    from bilm.data.corpus import find_files

    resources = click.get_current_context()
    return find_files(resources.with_resource(shards.spooled(patterns, sys.stdin.buffer)))


def input_lines(path: Path | str) -> Iterator[str]:
    """The lines of a file argument, ``-`` for standard input."""
    if str(path) == STDIN:
        return lines.read_stream_lines(sys.stdin.buffer, "standard input")
    return lines.read_lines(path)


# --- Ray ----------------------------------------------------------------------------------------------


def check_texts(ray: Cluster | None, *paths: Path | str) -> None:
    """Refuse texts that cannot be read where a command runs: URLs here, standard input on Ray.

    Raises:
        click.UsageError: names the text.
    """
    if ray is None and (urls := [*filter(is_url, paths)]):
        raise click.UsageError(f"{urls[0]} is a URL, which --ray reads; else give the path of a file")
    if ray is not None and STDIN in map(str, paths):
        raise click.UsageError("-: Ray's workers cannot read standard input; give a file")


def on_ray(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of Ray, which a command takes as `ray`: a `Cluster`, or None without ``--ray``."""

    @functools.wraps(command)
    def call(ray: str | None, **flags: Any) -> None:  # noqa: ANN401
        cluster: Cluster | None = None
        of_workers = [flags.pop(name) for name in ("ray_workers", "cpus_per_worker", "gpus_per_worker")]
        if ray is not None:
            from bilm.ray.cluster import Cluster

            cluster = Cluster(ray, *of_workers)
        elif any(number is not None for number in of_workers):
            raise click.UsageError("--ray-workers, --cpus-per-worker and --gpus-per-worker go with --ray")
        command(ray=cluster, **flags)

    options = together(
        click.option(
            "--ray",
            metavar="local|HOST:PORT|auto",
            help="Run on Ray: on this machine alone, on the cluster at HOST:PORT, or with auto on the one of "
            "RAY_ADDRESS or of this machine.",
        ),
        click.option(
            "--ray-workers",
            type=click.IntRange(min=1),
            show_default="as many as there is room for; 1 in training",
            help="Processes with a model each.",
        ),
        click.option(
            "--cpus-per-worker",
            type=click.IntRange(min=1),
            show_default="2; 1 beside a GPU, or so that --ray-workers have room",
            help="CPUs of a worker, which are its threads.",
        ),
        click.option(
            "--gpus-per-worker",
            type=click.FloatRange(min=0),
            show_default="1 if there are any",
            help="GPUs of a worker; a fraction if several share one.",
        ),
    )
    return options(call)
