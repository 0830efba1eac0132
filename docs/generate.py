"""Write the pages that follow from the code: ``python -m docs.generate``, or ``make docs``.

These are the reference of the commands, a page each, ``python-api.md``, and the tables of ``options.md``.
Nothing here imports TensorFlow.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from bilm.cli import main
from bilm.io.json import Bounds
from bilm.options import PRESETS, Options
from bilm.options.parameters import Choice, parameters
from docs import python_api
from docs.markdown import code, prose, table

DOCS = Path(__file__).resolve().parent
REFERENCE = DOCS / "reference"
PYTHON_API = DOCS / "python-api.md"
OPTIONS = DOCS / "options.md"
PACKAGE = DOCS.parent / "bilm"

# Each part of the package imports only from those before it. The last two are bilm-tf's names over ours.
PACKAGES = (
    *("errors", "installation", "io", "options", "vocabulary", "data", "backend", "layers"),
    *("weights", "models", "training", "run_directory", "runs", "embedding", "analysis", "ray", "cli"),
    *("elmo", "model"),
)

_NOTE = "<!-- Written by `make docs` from bilm/cli. Change the text there. -->\n"

_INDEX = f"""{_NOTE}# Commands

{{commands}}
Every command has `-h` and `--help`. Options may be spelt with underscores, as in bilm-tf:
`--save_dir` is `--save-dir`. `python -m bilm` is the same as `bilm`.
[Files, faults and signals](../files-and-faults.md#exit-status) has the exit statuses.

## Environment

- `TF_CONFIG`: the machines of a training run on several, see
  [Long runs](../long-runs.md#several-gpus-and-machines).
- `TMPDIR`: where training text from standard input is kept until the command ends.
- `TF_CPP_MIN_LOG_LEVEL`: TensorFlow's own, 0 to 3. If it is set below 3, what TensorFlow's libraries print
  while they are loaded is shown; otherwise it is suppressed.
"""

# Options of several commands: a title, a command that has them, and their flags.
_SHARED = {
    "Options that name a model": (
        "embed",
        "--model --checkpoint --weights",
    ),
    "Options of Ray": ("embed", "--ray --ray-workers --cpus-per-worker --gpus-per-worker"),
}
_LIKE_TRAIN = "restart"  # has the options of `train`
_REQUIRED_OPTION = "**required**"
_HEADED = 12  # options; more of them are shown under the headings of the help


def pages() -> dict[Path, str]:
    """Return the text of every generated page by its path."""
    context = click.Context(main, info_name="bilm", **main.context_settings)
    texts = {page_of(command): render_command(command) for command in walk(context)}
    texts[REFERENCE / "README.md"] = reference_index(context)
    texts[PYTHON_API] = python_api.render()
    texts[OPTIONS] = options_page()
    return texts


# --- the reference ------------------------------------------------------------------------------------


def reference_index(context: click.Context) -> str:
    """Return the page that lists the commands and explains the options that several have."""
    rows = [(f"[`{one.command_path}`]({page_of(one).name})", summary(one)) for one in walk(context)]
    parts = [_INDEX.format(commands=table(("command", ""), rows))]
    for title, (name, options) in _SHARED.items():
        rows_of_command = option_rows_of(subcommand(context, name))
        parts.append(f"## {title}\n\n{options_table(rows_of_command[flag] for flag in options.split())}")
    return "\n".join(parts)


def subcommand(context: click.Context, name: str) -> click.Context:
    """Return the context of a command of `bilm`."""
    return next(one for one in walk(context.find_root()) if one.command_path == f"bilm {name}")


def walk(context: click.Context) -> Iterator[click.Context]:
    """The commands below a group, each as the context it would be called in."""
    group = context.command
    for name in group.list_commands(context) if isinstance(group, click.Group) else ():
        one = click.Context(group.get_command(context, name), context, name)
        yield one
        yield from walk(one)


def page_of(context: click.Context) -> Path:
    """``reference/vocab-build.md`` for ``bilm vocab build``."""
    return REFERENCE / ("-".join(context.command_path.split()[1:]) + ".md")


def summary(context: click.Context) -> str:
    """What the help of its group says of a command."""
    return prose(context.command.short_help or "") or next(paragraphs(context.command))


def render_command(context: click.Context) -> str:
    """Return the page of a command."""
    command = context.command
    arguments = [one for one in command.params if isinstance(one, click.Argument) and one.metavar != ""]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    parts = [f"{_NOTE}# {context.command_path}\n", usage(context, arguments, options)]
    parts += [f"{paragraph}\n" for paragraph in paragraphs(command)]
    parts += [
        f"{code(argument_name(one))} is one of {words}.\n" for one in arguments if (words := choices(one))
    ]
    inner = [(f"[`{one.command_path}`]({page_of(one).name})", summary(one)) for one in walk(context)]
    if inner:
        parts.append(table(("command", ""), inner))
    rows = option_rows_of(context)
    shared = {
        link: [
            flag for flag in explained if rows.get(flag) == explained[flag] and not is_required(rows[flag])
        ]
        for link, explained in explained_elsewhere(context).items()
    }
    lines = [f"{link}: {', '.join(map(code, flags))}.\n" for link, flags in shared.items() if flags]
    left = [one for one in options if not any(one.opts[0] in flags for flags in shared.values())]
    groups = getattr(command, "groups", {}) if len(left) > _HEADED else {}
    for heading, names in groups.items():
        if chosen := [one for one in left if one.name in names.split()]:
            left = [one for one in left if one not in chosen]
            parts.append(f"## {heading}\n\n{options_table(rows[one.opts[0]] for one in chosen)}")
    if left:
        heading = "## Other options\n\n" if groups else ""
        parts.append(heading + options_table(rows[one.opts[0]] for one in left))
    return "\n".join([*parts, *lines])


Row = tuple[str, str, str]


def option_rows_of(context: click.Context) -> dict[str, Row]:
    """Return all spellings, default and meaning of the options of a command, by their first flag."""
    return {
        option.opts[0]: (flags(option, context), default(option), meaning(option))
        for option in context.command.params
        if isinstance(option, click.Option) and not option.hidden
    }


def is_required(row: Row) -> bool:
    """Tell whether a command needs an option."""
    return row[1] == _REQUIRED_OPTION


def explained_elsewhere(context: click.Context) -> dict[str, dict[str, Row]]:
    """Return the options that another page explains, by a link to it; each once."""
    explained, seen = {}, set()
    for title, (name, options) in _SHARED.items():
        rows = option_rows_of(subcommand(context, name))
        explained[f"[{title}](README.md#{python_api.anchor(title)})"] = {
            flag: rows[flag] for flag in options.split()
        }
        seen.update(options.split())
    if context.info_name == _LIKE_TRAIN:
        train = subcommand(context, "train")
        explained[f"As for [`bilm train`]({page_of(train).name})"] = {
            flag: row for flag, row in option_rows_of(train).items() if flag not in seen
        }
    return explained


def options_table(rows: Iterable[Row]) -> str:
    """Return a table of options."""
    return table(("option", "default", ""), rows)


def usage(
    context: click.Context, arguments: Sequence[click.Argument], options: Sequence[click.Option]
) -> str:
    """The call, with the flags that it cannot do without."""
    words = [context.command_path, *map(argument_name, arguments)]
    words += [f"{one.opts[0]} {value(one, context)}" for one in options if one.required]
    words += ["[OPTIONS]"] if any(not one.required for one in options) else []
    words += ["COMMAND ..."] if isinstance(context.command, click.Group) else []
    return f"```\n{' '.join(words)}\n```\n"


def paragraphs(command: click.Command) -> Iterator[str]:
    """The help of a command as Markdown; what follows a line of backspace stays as it is."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            yield f"```\n{inspect.cleandoc(paragraph[1:])}\n```"
        else:
            yield prose(" ".join(paragraph.split()))


def argument_name(argument: click.Argument) -> str:
    """As the help has it: ``OUT.HDF5``."""
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.required else f"[{name}]"


def flags(option: click.Option, context: click.Context) -> str:
    """All spellings of an option, and what stands for its value."""
    spellings = ", ".join(option.opts)
    if option.secondary_opts:
        spellings += " / " + ", ".join(option.secondary_opts)
    return code(spellings if option.is_flag else f"{spellings} {value(option, context)}")


def value(parameter: click.Parameter, context: click.Context) -> str:
    """What stands for a value; its own words, as those of click change with its version."""
    of = parameter.type
    if parameter.metavar is not None:
        return parameter.metavar
    if isinstance(of, click.Choice):
        return "|".join(str(choice) for choice in of.choices)
    if isinstance(of, click.Path):
        return "PATH"
    return of.name.upper().removesuffix(" RANGE").replace("FLOAT", "NUMBER")


def choices(argument: click.Argument) -> str:
    """Return the words that an argument may be; none if it may be any."""
    kind = argument.type
    return ", ".join(code(str(choice)) for choice in kind.choices) if isinstance(kind, click.Choice) else ""


def default(option: click.Option) -> str:
    """What holds when an option is not given."""
    if option.required:
        return _REQUIRED_OPTION
    if isinstance(option.show_default, str):
        return (prose if " " in option.show_default else code)(option.show_default)
    chosen = option.to_info_dict()["default"]
    if chosen is False or chosen in (None, ()):
        return ""
    if option.is_flag:
        return code((option.opts if chosen else option.secondary_opts)[0])
    return code(str(chosen))


def meaning(option: click.Option) -> str:
    """The help of an option, the bounds of its value, and its environment variable."""
    parts = [prose(option.help or "")]
    kind = option.type
    if isinstance(kind, click.IntRange | click.FloatRange):
        above, least = (kind.min, None) if kind.min_open else (None, kind.min)
        below, most = (kind.max, None) if kind.max_open else (None, kind.max)
        parts += in_words(Bounds(least, above, below, most))
    if option.envvar:
        parts.append(f"Environment: {code(str(option.envvar))}.")
    return " ".join(parts)


def in_words(bounds: Bounds) -> list[str]:
    """A sentence, if there are bounds that anybody meets."""
    least, above, below, most = dataclasses.astuple(bounds)
    if most is not None and most > 1 << 31:
        most = None
    if least is not None and most is not None:
        return [f"{least} to {most}."]
    names = {"at least": least, "above": above, "below": below, "at most": most}
    text = ", ".join(f"{name} {bound}" for name, bound in names.items() if bound is not None)
    return [f"{text.capitalize()}."] if text else []


# --- the options --------------------------------------------------------------------------------------

# Each table of the page begins with this key.
_TABLES = {"The network": "lstm.dim", "Training, as in bilm-tf": "n_epochs", "Ours": "accumulate"}
_REQUIRED = ("char_cnn.filters", "char_cnn.embedding.dim")
_CHARACTERS = (
    *("`char_cnn.n_characters`", "`261`", "`261`"),
    "261 for training, 262 with dumped weights, where 0 becomes padding; either is accepted everywhere",
)


def options_page() -> str:
    """The page as it is, with its tables made of the parameters; for the table of each heading."""
    rows = list(option_rows(Options, PRESETS["original"]))
    begins = [next(k for k, row in enumerate(rows) if row[0] == code(key)) for key in _TABLES.values()]
    page = OPTIONS.read_text(encoding="utf-8")
    for title, begin, end in zip(_TABLES, begins, [*begins[1:], None], strict=True):
        lines = table(("key", "default", "`original`", "meaning"), rows[begin:end])
        page = re.sub(
            rf"(?<=^## {title}\n\n)(\|.*\n)+", lambda _, lines=lines: lines, page, flags=re.MULTILINE
        )
    return page


def option_rows(record: type, original: object, section: str = "") -> Iterator[tuple[str, str, str, str]]:
    """The keys of a section of the options: name, default, value of a preset, meaning."""
    for one in parameters(record).values():
        key = section + (one.key or one.name)
        value = getattr(original, one.name)
        sentences = [one.meaning, *in_words(one.bounds)]
        if dataclasses.is_dataclass(one.kind):
            if one.default is None:
                yield code(key), "`null`", "a section", one.meaning
            yield from option_rows(one.kind, value, f"{key}.")
            continue
        if issubclass(one.kind, Choice):
            sentences.append(f"One of {', '.join(code(json.dumps(choice)) for choice in one.kind.values())}.")
        is_required = one.default is dataclasses.MISSING or key in _REQUIRED
        yield (
            code(key),
            "required" if is_required else code(json.dumps(one.default)),
            "the seven above" if one.name == "filters" else code(json.dumps(value)),
            ". ".join(sentences).replace(".. ", ". ").removesuffix("."),
        )
        if key == "char_cnn.max_characters_per_token":
            yield _CHARACTERS


# --- the modules ----------------------------------------------------------------------------


def modules() -> dict[str, Path]:
    """The modules of the package by name: ``weights.names``, and ``weights`` for its ``__init__``."""
    found = {}
    for path in sorted(PACKAGE.glob("**/*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name.strip("_") and not name.startswith("__"):
            found[name] = path
    return found


if __name__ == "__main__":
    REFERENCE.mkdir(exist_ok=True)
    wanted = pages()
    for stale in set(REFERENCE.glob("*.md")) - wanted.keys():
        stale.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
