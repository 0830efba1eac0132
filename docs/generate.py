"""Write the pages that are generated from the code: ``python -m docs.generate``, or ``make docs``.

These are ``commands.md``, ``python-api.md``, and the tables of ``options.md``. Nothing imports TensorFlow.
"""

import dataclasses
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from bilm.cli import main
from bilm.io.json_objects import Bounds
from bilm.options import Options
from bilm.options.parameters import Choice, parameters
from docs import python_api
from docs.markdown import code, prose, table

DOCS = Path(__file__).resolve().parent
COMMANDS = DOCS / "commands.md"
PYTHON_API = DOCS / "python-api.md"
OPTIONS = DOCS / "options.md"
PACKAGE = DOCS.parent / "bilm"

# Each part of the package imports only from earlier parts. The last line has names of
# AllenNLP and bilm-tf, and what other libraries take.
PACKAGES = (
    *("errors", "io", "options", "vocabulary", "text", "data", "backend", "layers"),
    *("weights", "models", "training", "run_directory", "embedding", "runs", "analysis", "ray", "cli"),
    *("allennlp", "elmo", "model", "sklearn", "spacy", "flair"),
)

_HEAD = """<!-- Generated from bilm/cli by `make docs`. -->
# Commands

What `bilm COMMAND --help` says. Options may be written with underscores, as in bilm-tf: `--save_dir` is
`--save-dir`. The default of an option is in parentheses. Options after "Shared:" are explained under
[Shared options](#shared-options). [Exit statuses](files-and-faults.md#exit-status) are the same for all.
"""
_TAIL = """
## Environment variables

- `TF_CONFIG`: the machines of a [distributed training run](long-runs.md#several-gpus-and-machines).
- `TMPDIR`: directory for copies of standard input and pipes, and for decompressed tar archives of models.
- `TF_CPP_MIN_LOG_LEVEL`: log level of TensorFlow, 0 to 3 (the default).
"""

_LIKE_TRAIN = "restart"  # shares the options of `train`
_LARGE = 1 << 20  # larger bounds are not worth stating
OF_RAY = ("--ray-workers", "--cpus-per-worker", "--gpus-per-worker")  # named together, as those of ``--ray``
_SEVERAL = 3  # an option that as many commands have is explained once


def pages() -> dict[Path, str]:
    """Return the text of every generated page by its path."""
    return {COMMANDS: commands_page(), PYTHON_API: python_api.render(), OPTIONS: options_page()}


# --- the commands -------------------------------------------------------------------------------------


def commands_page() -> str:
    """Return the page of all commands."""
    everything = walk(click.Context(main, info_name="bilm", **main.context_settings))
    commands = [command for command in everything if not isinstance(command.command, click.Group)]
    counts = Counter(row for command in commands for row in option_rows_of(command))
    shared = [row for row, count in counts.most_common() if count >= _SEVERAL]
    of_train = option_rows_of(next(command for command in commands if command.info_name == "train"))
    parts = [_HEAD, *(render_command(command, shared, of_train) for command in commands)]
    return "\n".join([*parts, f"## Shared options\n\n{options_list(shared)}"]) + _TAIL


def walk(context: click.Context) -> Iterator[click.Context]:
    """Yield the commands below a group, each as the context of a call."""
    group = context.command
    for name in group.list_commands(context) if isinstance(group, click.Group) else ():
        inner = click.Context(group.get_command(context, name), context, name)
        yield inner
        yield from walk(inner)


def name_of(context: click.Context) -> str:
    """Return the name of a command within `bilm`: ``vocab build``."""
    return context.command_path.partition(" ")[2]


Row = tuple[str, str, str]


def render_command(context: click.Context, shared: Sequence[Row], of_train: Sequence[Row]) -> str:
    """Return the section of a command; it only names what other sections or pages explain.

    These are `shared` options, for ``restart`` those `of_train`, and keys of ``options.json``.
    """
    command = context.command
    arguments = [
        param for param in command.params if isinstance(param, click.Argument) and param.metavar != ""
    ]
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    parts = [f"## {name_of(context)}\n", usage(context, arguments, options)]
    parts += [f"{paragraph}\n" for paragraph in paragraphs(command)]
    parts += [
        f"{code(argument_name(argument))} is one of {words}.\n"
        for argument in arguments
        if (words := choices(argument))
    ]
    rows = option_rows_of(context)
    elsewhere = [row for row in rows if row in shared]
    as_train = [
        row for row in rows if row in of_train and row not in shared and context.info_name == _LIKE_TRAIN
    ]
    keys = [row for row in rows if row not in elsewhere and row not in as_train and is_key(row)]
    if left := [row for row in rows if row not in [*elsewhere, *as_train, *keys]]:
        parts.append(options_list(left))
    for title, explained in (
        ("As for [train](#train)", as_train),
        ("Keys of [options.json](options.md)", keys),
        ("Shared", elsewhere),
    ):
        names = [row[0].split()[0].strip("`") for row in explained]
        names = [code(name) + " and its options" * (name == "--ray") for name in names if name not in OF_RAY]
        parts += [f"{title}: {', '.join(names)}.\n"] if names else []
    return "\n".join(parts)


def is_key(row: Row) -> bool:
    """Return whether an option sets the key of its name, with the meaning of the key."""
    key = parameters(Options).get(row[0].split()[0].strip("`-").replace("-", "_"))
    return key is not None and row[2].startswith(
        prose(key.meaning[:1].upper() + key.meaning[1:]).split(". ")[0]
    )


def option_rows_of(context: click.Context) -> list[Row]:
    """Return spellings, default and meaning of the options of a command, in the order of its help."""
    groups = " ".join(getattr(context.command, "groups", {}).values())
    options = [
        option for option in context.command.params if isinstance(option, click.Option) and not option.hidden
    ]
    if groups:
        options.sort(key=lambda option: groups.split().index(option.name or ""))
    return [(flags(option), default(option), meaning(option)) for option in options]


def options_list(rows: Iterable[Row]) -> str:
    """Return a list of options."""
    return (
        python_api.listed(
            (f"{flags} ({default})" if default else flags, meaning) for flags, default, meaning in rows
        )
        + "\n"
    )


def usage(
    context: click.Context, arguments: Sequence[click.Argument], options: Sequence[click.Option]
) -> str:
    """Return the usage line, with the required flags."""
    words = [context.command_path, *map(argument_name, arguments)]
    words += [f"{option.opts[0]} {value(option)}" for option in options if option.required]
    words += ["[OPTIONS]"] if any(not option.required for option in options) else []
    return f"{code(' '.join(words))}\n"


def paragraphs(command: click.Command) -> Iterator[str]:
    """Yield the help of a command as Markdown; a paragraph after a backspace becomes a code block."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```\n{inspect.cleandoc(paragraph[1:])}\n```"
        else:
            yield prose(" ".join(paragraph.split()))


def argument_name(argument: click.Argument) -> str:
    """Return the name of an argument as in the help: ``OUT.HDF5``."""
    return argument.metavar or (argument.name or "").upper()


def flags(option: click.Option) -> str:
    """Return all spellings of an option, with the placeholder of its value."""
    spellings = ", ".join(option.opts)
    if option.secondary_opts:
        spellings += " / " + ", ".join(option.secondary_opts)
    return code(spellings if option.is_flag else f"{spellings} {value(option)}")


def value(option: click.Option) -> str:
    """Return the placeholder of a value; click's own words change with its version."""
    kind = option.type
    if option.metavar is not None:
        return option.metavar
    if isinstance(kind, click.Choice):
        return "|".join(str(choice) for choice in kind.choices)
    if isinstance(kind, click.Path):
        return "PATH"
    return kind.name.upper().removesuffix(" RANGE").replace("FLOAT", "NUMBER")


def choices(argument: click.Argument) -> str:
    """Return the choices of an argument, or nothing without a closed choice."""
    kind = argument.type
    return ", ".join(code(str(choice)) for choice in kind.choices) if isinstance(kind, click.Choice) else ""


def default(option: click.Option) -> str:
    """Return the default of an option."""
    if isinstance(option.show_default, str) and option.show_default:
        return (prose if " " in option.show_default else code)(option.show_default)
    chosen = option.to_info_dict()["default"]
    if chosen is False or chosen in (None, ()):
        return ""
    if option.is_flag:
        return code((option.opts if chosen else option.secondary_opts)[0])
    return code(str(chosen))


def meaning(option: click.Option) -> str:
    """Return the help of an option, with the bounds of its value."""
    parts = [prose(option.help or "")]
    kind = option.type
    if isinstance(kind, click.IntRange | click.FloatRange):
        above, least = (kind.min, None) if kind.min_open else (None, kind.min)
        below, most = (kind.max, None) if kind.max_open else (None, kind.max)
        parts += in_words(Bounds(least, above, below, most))
    return " ".join(parts)


def in_words(bounds: Bounds) -> list[str]:
    """Return bounds as a sentence, or nothing without bounds worth stating."""
    least, above, below, most = dataclasses.astuple(bounds)
    least = None if least is not None and least <= 1 else least
    most = None if most is not None and most >= _LARGE else most
    names = {"at least": least, "above": above, "below": below, "at most": most}
    text = ", ".join(f"{name} {bound}" for name, bound in names.items() if bound is not None)
    return [f"{text.capitalize()}."] if text else []


# --- the options --------------------------------------------------------------------------------------

# First key of each table.
_TABLES = {
    "The network": "lstm.dim",
    "Training, as in bilm-tf": "n_epochs",
    "Training, bilm only": "accumulate",
}
_REQUIRED = ("char_cnn.filters", "char_cnn.embedding.dim")
_CHARACTERS = (
    *("`char_cnn.n_characters`", "`261`"),
    "261, or 262 with dumped weights; [either works](faq.md#training)",
)


def options_page() -> str:
    """Return the existing page with new tables, each below its heading."""
    rows = list(option_rows(Options))
    begins = [next(k for k, row in enumerate(rows) if row[0] == code(key)) for key in _TABLES.values()]
    page = OPTIONS.read_text(encoding="utf-8")
    for title, begin, end in zip(_TABLES, begins, [*begins[1:], None], strict=True):
        lines = table(("key", "default", "meaning"), rows[begin:end])
        page = re.sub(
            rf"(?<=^## {title}\n\n)(\|.*\n)+", lambda _, lines=lines: lines, page, flags=re.MULTILINE
        )
    return page


def option_rows(record: type, section: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield the keys of a section of the options: name, default, meaning."""
    for parameter in parameters(record).values():
        key = section + (parameter.key or parameter.name)
        sentences = [parameter.meaning, *in_words(parameter.bounds)]
        if dataclasses.is_dataclass(parameter.kind):
            if parameter.default is None:
                yield code(key), "`null`", parameter.meaning
            yield from option_rows(parameter.kind, f"{key}.")
            continue
        if issubclass(parameter.kind, Choice):
            sentences.append(
                f"One of {', '.join(code(json.dumps(choice)) for choice in parameter.kind.values())}."
            )
        is_required = parameter.default is dataclasses.MISSING or key in _REQUIRED
        yield (
            code(key),
            "required" if is_required else code(json.dumps(parameter.default)),
            ". ".join(sentences).replace(".. ", ". ").removesuffix("."),
        )
        if key == "char_cnn.max_characters_per_token":
            yield _CHARACTERS


# --- the modules ----------------------------------------------------------------------------


def modules() -> dict[str, Path]:
    """Return the modules of the package by name: ``weights.names``, and ``weights`` for its ``__init__``."""
    paths = {}
    for path in sorted(PACKAGE.glob("**/*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name.strip("_") and not name.startswith("__"):
            paths[name] = path
    return paths


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
