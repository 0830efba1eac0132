"""Shared options of the commands, and the types of their values."""

import dataclasses
import functools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.backend.settings import without_xla
from bilm.cli import echo, with_flags
from bilm.errors import DataError, OptionsError
from bilm.io import STDIN, is_url, json_objects, lines, shards
from bilm.io.run_files import own_output
from bilm.options.parameters import Choice, Parameter, UnicodeForm

if TYPE_CHECKING:
    from bilm.embedding.model_text import ModelText
    from bilm.ray.cluster import Cluster
    from bilm.run_directory.model_source import ModelArguments as ModelArguments  # for the commands

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


# --- types --------------------------------------------------------------------------------------------


class Parsed(click.ParamType):
    """A type whose values are parsed by a function; values that are not strings are kept.

    Args:
        name: placeholder of the value in the help.
        read: parses a string; its `OptionsError` becomes the message.
    """

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """Parse the value."""
        try:
            return self.read(value) if isinstance(value, str) else value
        except OptionsError as error:
            self.fail(str(error), param, ctx)


def key_and_value(text: str) -> tuple[str, Any]:
    """Parse ``lstm.dim=512`` to a key and a value for `Options.with_values`.

    Raises:
        OptionsError: the key or the equals sign is missing.
    """
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise OptionsError(f"{text!r:.80} is not KEY=VALUE")
    try:
        return key, json_objects.parse_json(value)
    except ValueError:
        return key, value


_FORMS = [*UnicodeForm.values(), "none"]


def _unicode_form(text: str) -> UnicodeForm | None:
    """Parse the name of a normal form.

    Raises:
        OptionsError: there is no such form.
    """
    form = text.upper()
    if form not in map(str.upper, _FORMS):
        raise OptionsError(f"{text!r:.80} is not one of {', '.join(_FORMS)}")
    return None if form == "NONE" else UnicodeForm(form)


UNICODE_FORM = Parsed("|".join(_FORMS), _unicode_form)


class Integer(click.IntRange):
    """An integer within bounds."""

    name = "integer"  # in the help; click's own is INTEGER RANGE


class Number(click.FloatRange):
    """A number within bounds."""

    name = "number"


class PathName(click.Path):
    """The name of a file or directory; rejects empty names and options (unset variables) and URLs.

    Otherwise an empty name would mean the current directory, and an option or a URL a local path.

    Args:
        url: accept URLs, for Ray; see `check_texts`.
        settings: further arguments of `click.Path`.
    """

    def __init__(self, url: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self.url = url

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Check the name."""
        name = os.fsdecode(value)
        if not name:
            self.fail("is empty, expected the name of a file or directory; is a variable unset?", param, ctx)
        if "\0" in name:
            self.fail("has a NUL character", param, ctx)
        if name.startswith("--"):
            self.fail(f"{name} is an option; is a variable unset? Give ./{name} for a file", param, ctx)
        if is_url(name):
            if self.url:
                return name
            self.fail(f"{name} is a URL; give a local path", param, ctx)
        if self.exists and not os.path.exists(name) and (what := own_output(name)):  # part of a run
            self.fail(with_flags(f"{name} is {what}"), param, ctx)
        return super().convert(value, param, ctx)


FILE = PathName(path_type=Path)
MODEL = PathName(path_type=Path, exists=True)
TEXT = PathName(allow_dash=True)  # see `input_text`; a `Path` would make - of ./-
TEXT_OR_URL = PathName(url=True, allow_dash=True)
ROWS = Integer(1, 1 << 20)  # of a batch, as in the options


# --- options ------------------------------------------------------------------------------------------


def together(*options: Decorator) -> Decorator:
    """Combine options into one decorator; the help shows them in this order."""
    return lambda command: functools.reduce(lambda call, option: option(call), reversed(options), command)


def switch(name: str, text: str, *names: str) -> Decorator:
    """Return an option without a value; the arguments are those of `path`."""
    return click.option(name, *names, is_flag=True, help=text)


def path(name: str, text: str, *names: str, **settings: Any) -> Decorator:
    """Return an option that takes the name of a file or directory.

    Args:
        name: name of the option, such as ``--outfile``.
        text: description in the help.
        *names: further names, such as that of the command's argument.
        **settings: further arguments of `click.option`.
    """
    return click.option(name, *names, type=FILE, help=text, **settings)


def choice(name: str, text: str, values: Iterable[str], *names: str, **settings: Any) -> Decorator:
    """Return an option that takes one of several values; the other arguments are those of `path`."""
    return click.option(name, *names, type=click.Choice([*map(str, values)]), help=text, **settings)


def number(name: str, text: str, *names: str, least: int = 1, **settings: Any) -> Decorator:
    """Return an option that takes an integer of at least `least`; the other arguments are those of `path`."""
    return click.option(name, *names, type=Integer(min=least), help=text, **settings)


def typed_names(context: click.Context) -> set[str]:
    """Return the names of the parameters that the command line sets."""
    typed = click.core.ParameterSource.COMMANDLINE
    return {name for name in context.params if context.get_parameter_source(name) is typed}


def flag_of(parameter: Parameter, kind: click.ParamType | None = None) -> Decorator:
    """Return the flag of a parameter, with its help, bounds, choices and default.

    Args:
        parameter: see `bilm.options.parameters`.
        kind: type of the value; by default the type of the parameter.
    """
    flag, default = "--" + parameter.name.replace("_", "-"), parameter.default
    if parameter.kind is bool:
        names = f"{flag}/--no-{flag[2:]}" if default else flag
        return click.option(names, is_flag=True, default=default, help=parameter.help)
    # Choices are shown as options.json spells them, which click would not do.
    choices = "|".join(parameter.kind.values()) if issubclass(parameter.kind, Choice) else None
    return click.option(
        flag,
        type=kind or _kind_of(parameter),
        metavar=kind.name if kind else choices,
        default=default if parameter.shown is None else None,
        show_default=parameter.shown or parameter.shown is None,
        help=parameter.help,
    )


def _kind_of(parameter: Parameter) -> click.ParamType:
    if issubclass(parameter.kind, Choice):
        return click.Choice(parameter.kind.values())
    least, above, below, most = dataclasses.astuple(parameter.bounds)
    if most is not None and most > 1 << 31:  # too large to show; the settings check it
        most = None
    if parameter.kind is int:
        return Integer(least, most)
    low, high = above if least is None else least, below if most is None else most
    return Number(low, high, min_open=least is None, max_open=most is None)


def no_xla(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--no-xla``, which disables XLA while the command runs."""

    @functools.wraps(command)
    def call(no_xla: bool, **flags: Any) -> None:  # noqa: ANN401
        with without_xla() if no_xla else nullcontext():
            command(**flags)

    return switch("--no-xla", "Disable XLA compilation; slower, for systems where XLA fails.")(call)


precision = choice(
    "--precision",
    "Data type of matrix products; on CPUs bfloat16 is faster only with bfloat16 instructions.",
    ["float32", "bfloat16"],
    default="float32",
)

overwrite = switch("--overwrite", "Replace existing output.")


def vocab_file(shown: str | bool = "the run's copy") -> Decorator:
    """Return ``--vocab-file``; `shown` is the vocabulary used without it, False if there is none."""
    return path("--vocab-file", "Vocabulary, one word per line.", show_default=shown)


_model = click.option(
    "--model",
    type=MODEL,
    help="Model: a run directory, a weight file, or a folder or archive with options.json and weights.",
)
_of_a_run = (
    path("--save-dir", "Run directory; bilm-tf's name of --model.", hidden=True),
    click.option(
        "--checkpoint", show_default="latest", metavar="latest|best|STEP|NAME", help="Checkpoint of the run."
    ),
)
whole_model = together(_model, *_of_a_run)
"""The flags that select a model with its softmax."""

any_model = together(
    _model,
    path("--options-file", "The options.json of --weight-file.", hidden=True),
    path("--weight-file", "HDF5 weights, or AllenNLP's model.tar.gz.", hidden=True),
    *_of_a_run,
)
"""The flags that select any model: a path, dumped weights or a run directory."""


def _model_arguments(options: Decorator) -> Decorator:
    """Add ``--vocab-file`` to the flags that select a model; the command takes `model` and `vocab_file`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def call(**flags: Any) -> None:  # noqa: ANN401
            from bilm.run_directory.model_source import ModelArguments

            names = {field.name for field in dataclasses.fields(ModelArguments)} & flags.keys()
            command(model=ModelArguments(**{name: flags.pop(name) for name in names}), **flags)

        return options(vocab_file()(call))

    return decorate


embedding_model, predicting_model = _model_arguments(any_model), _model_arguments(whole_model)


# --- text ---------------------------------------------------------------------------------------------


def text_files(*names: str, required: bool = True, url: bool = False, text: str = "Text") -> Decorator:
    """Return an option that takes several files; for a `TextCommand`.

    Args:
        *names: names of the option, such as ``--train-prefix``.
        required: whether the flag is required.
        url: accept URLs, see `check_texts`.
        text: description in the help.
    """
    return click.option(
        *names,
        type=PathName(url=url),
        multiple=True,
        required=required,
        metavar="PATTERN...",
        help=f"{text}, one sentence per line: files, directories or globs; - for standard input.",
    )


class TextCommand(click.Command):
    """A command whose options for files take all words up to the next option.

    ``--heldout-prefix a.txt b.txt``, the result of ``--heldout-prefix held/*`` in a shell, is the same as
    ``--heldout-prefix=a.txt --heldout-prefix=b.txt``. Other words are arguments of the command, or an error
    if it takes no arguments.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat an option before each of its words, then parse as usual."""
        normalize = ctx.token_normalize_func or str
        options = (option for option in self.params if isinstance(option, click.Option) and option.multiple)
        with_files = {name for option in options if isinstance(option.type, PathName) for name in option.opts}
        words, rest = [], deque(args)
        while rest and rest[0] != "--":
            word = rest.popleft()
            name, equals, value = word.partition("=")
            if normalize(name) not in with_files:
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
        """Put the arguments before the options, which would take them as values otherwise."""
        options, *arguments = super().collect_usage_pieces(ctx)
        return [*arguments, options]


def input_files(patterns: Sequence[str]) -> tuple[Path, ...]:
    """List the files of text patterns; input that can be read only once is stored until the command ends."""
    return click.get_current_context().with_resource(shards.input_files(patterns))


def input_text(path: Path | str) -> Iterable[str] | Path:
    """Return a file, for a `bilm.embedding.model_text.ModelText`, or the lines of standard input for ``-``.

    Raises:
        DataError: there is no such file, or it is a folder; the message says how to give a sentence if the
            path looks like one.
    """
    if str(path) == STDIN:
        return lines.read_stream_lines(sys.stdin.buffer, "standard input")
    if what := own_output(path):
        raise DataError(f"{path}: is {what}")
    try:
        os.stat(path)
    except OSError as error:
        is_sentence = len(str(path).split()) > 1
        hint = "; to give a sentence itself, give - and write it to standard input" if is_sentence else ""
        raise DataError(f"{path}: {error.strerror}{hint}") from error
    if os.path.isdir(path):
        raise DataError(f"{path}: is a folder; give a file in it")
    return Path(path)


raw = switch(
    "--raw", "The text is raw: split it like the training text. Results then number its sentences, not lines."
)
"""The flag of commands that read a `bilm.embedding.model_text.ModelText`."""

embedding_text = together(embedding_model, raw, no_xla)
predicting_text = together(predicting_model, raw, no_xla)
"""The flags that select a model and how it reads a text."""


def say_end(text: "ModelText") -> None:
    """Print the share of unknown words to standard error at the end of a text, and what to doubt."""
    text.warn()
    if text.share:
        echo(f"{text.n_words:,} words, {text.share}", err=True)


# --- Ray ----------------------------------------------------------------------------------------------


def check_texts(ray: "Cluster | None", *paths: Path | str) -> None:
    """Reject texts that the command cannot read: URLs without Ray, standard input with Ray or twice.

    Raises:
        click.UsageError: a text cannot be read; names it.
    """
    if ray is None and (urls := [*filter(is_url, paths)]):
        raise click.UsageError(f"{urls[0]} is a URL, which needs --ray; give the path of a file")
    if [*map(str, paths)].count(STDIN) > 1:
        raise click.UsageError("-: standard input can be read only once")
    if ray is not None and STDIN in map(str, paths):
        raise click.UsageError("-: Ray's workers cannot read standard input; give a file")


def on_ray(command: Callable[..., None]) -> Callable[..., None]:
    """Add the flags of Ray; the command takes `ray`, a `Cluster` or None."""

    @functools.wraps(command)
    def call(ray: str | None, **flags: Any) -> None:  # noqa: ANN401
        cluster = None
        resources = [flags.pop(name) for name in ("ray_workers", "cpus_per_worker", "gpus_per_worker")]
        if ray is not None:
            from bilm.ray.cluster import Cluster

            cluster = Cluster(ray, *resources)
        elif any(number is not None for number in resources):
            raise click.UsageError("--ray-workers, --cpus-per-worker and --gpus-per-worker need --ray")
        command(ray=cluster, **flags)

    return together(
        click.option(
            "--ray",
            metavar="local|HOST:PORT|auto",
            help="Run on Ray: `local` for this machine, HOST:PORT of a cluster, or `auto` for the cluster of "
            "RAY_ADDRESS or of this machine.",
        ),
        number("--ray-workers", "Number of worker processes.", show_default="as many as fit; 1 in training"),
        number(
            "--cpus-per-worker",
            "CPUs, and threads, of each worker.",
            show_default="2; 1 with a GPU, in vocab build, or if 2 do not fit",
        ),
        click.option(
            "--gpus-per-worker",
            type=Number(min=0),
            show_default="1 if the cluster has GPUs; 0 in vocab build",
            help="GPUs of each worker; a fraction lets several share one.",
        ),
    )(call)
