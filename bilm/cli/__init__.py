"""The ``bilm`` command, a group that imports commands on use; its commands are in `bilm.cli.commands`.

Errors of the user and the system exit with status 1 or 2 and one line; bugs keep their traceback.
"""

import contextlib
import errno
import importlib
import io
import logging
import os
import platform
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import click
from click.shell_completion import CompletionItem

from bilm import __version__
from bilm.errors import ArgumentError, BilmError
from bilm.io.messages import is_out_of_memory, message_lines, reason

TRACEBACK = "BILM_TRACEBACK"
"""Environment variable that shows the traceback instead of one line."""

_SWITCH = re.compile(r"\b(overwrite|resume|jit)=True\b")
_ARGUMENT = re.compile(r"`([a-z]+(?:_[a-z]+)*)`")


class LazyGroup(click.Group):
    """A group that imports a command from `bilm.cli.commands` on use, to keep help and completion quick.

    It also writes UTF-8 except to a terminal, escapes what cannot be encoded, such as in file names, and
    stores the command line as ``ctx.meta["bilm.command"]``.

    Args:
        table: module of each command, by its name.
        settings: further arguments of `click.Group`.
    """

    def __init__(self, table: Mapping[str, str], **settings: Any) -> None:
        super().__init__(**settings)
        self.table = table
        self.commands = dict.fromkeys(table, self)  # the names that click suggests

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Store the command line, and handle ``--help`` and ``--version``."""
        ctx.meta["bilm.command"] = shlex.join(["bilm", *args])
        with _short_errors():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run the command."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            encoding = None if sys.stdout.isatty() else "utf-8"  # as texts are read, whatever the locale
            sys.stdout.reconfigure(encoding=encoding, errors="backslashreplace")  # as standard error is
        with _short_errors():
            return super().invoke(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command, which may be another package's."""
        if cmd_name not in self.table:
            other = self.plug_ins.get(cmd_name)
            return None if other is None else other.load()
        module = importlib.import_module(f"bilm.cli.commands.{self.table[cmd_name]}")
        return getattr(module, cmd_name.replace("-", "_"))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands in the order of the table, not sorted."""
        return list(self.table)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of all commands; those of other packages are not imported."""
        others = [CompletionItem(name) for name in self.plug_ins if name.startswith(incomplete)]
        return [*super().shell_complete(ctx, incomplete), *others]

    @property
    def plug_ins(self) -> dict[str, metadata.EntryPoint]:
        """Commands of other packages: entry points of the group ``bilm.commands``, by name."""
        points = metadata.entry_points(group="bilm.commands")
        return {point.name: point for point in points if point.name not in self.table}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands, and names and modules of those of other packages, which are not imported."""
        super().format_commands(ctx, formatter)
        if others := self.plug_ins:
            with formatter.section("Commands of other packages"):
                formatter.write_dl([(name, f"from {point.module}") for name, point in others.items()])


def with_flags(message: str) -> str:
    """Rewrite arguments in a message of the library, such as ``resume=True`` or `seed`, as flags."""
    message = _SWITCH.sub(r"--\1", message)
    return _ARGUMENT.sub(lambda match: "--" + match[1].replace("_", "-"), message)


def echo(line: str, err: bool = False, indent: int = 2) -> None:
    """Print a line, to standard error if `err`; for a terminal it is wrapped between words, then indented."""
    click.echo(wrapped(line, sys.stderr if err else sys.stdout, indent), err=err)


def wrapped(text: str, stream: TextIO, indent: int = 2) -> str:
    """Return text with line breaks between words where a line is too long for the terminal `stream`."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    settings: Any = {"subsequent_indent": " " * indent, "break_long_words": False, "break_on_hyphens": False}
    return "\n".join(textwrap.fill(part, width, **settings) for part in text.split("\n"))


@contextlib.contextmanager
def _short_errors() -> Iterator[None]:
    """Convert all errors but bugs to a short `click.ClickException`."""
    try:
        yield
    except click.ClickException as error:
        error.message = message_lines(error.message)  # type: ignore[misc]
        raise
    except Exception as error:
        message = _message(error)
        if message is None or os.environ.get(TRACEBACK):
            raise
        if isinstance(error, ArgumentError):
            raise click.UsageError(message_lines(message)) from error
        raise click.ClickException(message_lines(message)) from error


def _message(error: Exception) -> str | None:
    """Return the message for an error, or None for a bug."""
    if isinstance(error, BilmError):
        return with_flags(str(error))
    if is_out_of_memory(error):
        return (
            "not enough memory: train with a smaller batch, preset or vocabulary (`bilm train --dry-run` "
            f"shows the need), or give `bilm embed` a smaller --batch-tokens ({reason(error)})"
        )
    if isinstance(error, OSError) and error.errno not in (errno.EPIPE, errno.EBADF):
        # EPIPE is a closed pipe, handled by click; EBADF is a bug.
        if error.filename is not None:
            return f"{os.fsdecode(error.filename)}: {reason(error)}"
        # Without a file name and in the system's words: the current directory.
        is_lost = error.errno == errno.ENOENT and error.strerror == os.strerror(errno.ENOENT)
        return "the current directory no longer exists; change to another one" if is_lost else reason(error)
    if isinstance(error, UnicodeEncodeError) and error.reason == "surrogates not allowed":
        return f"{error.object!r:.80}: is not UTF-8; TensorFlow needs file names in UTF-8"
    return None


def _show_versions(context: click.Context, parameter: click.Parameter, is_wanted: bool) -> None:  # noqa: ARG001
    if not is_wanted or context.resilient_parsing:
        return
    versions = [f"Python {platform.python_version()}"]
    for library in ("tensorflow", "keras", "numpy", "torch", "jax"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{library} {metadata.version(library)}")
    click.echo(f"bilm, version {__version__}\n{', '.join(versions)}\n{Path(__file__).parents[1]}")
    context.exit()


@click.group(
    cls=LazyGroup,
    table={
        "prepare": "prepare",
        "vocab": "vocab",
        "train": "training",
        "restart": "training",
        "test": "models",
        "plot": "pictures",
        "info": "models",
        "dump-weights": "models",
        "embed": "embed",
        "score": "models",
        "predict": "models",
        "neighbours": "pictures",
        "export": "models",
        "completion": "completion",
    },
    # bilm-tf spells its flags with underscores; both spellings are accepted everywhere.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("_", "-"),
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_versions,
    help="Show versions and exit.",
)
def main() -> None:
    """Train, test and use ELMo's bidirectional language models."""
    logging.basicConfig(level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Formatter())


class _Formatter(logging.Formatter):
    """Escapes, shortens and wraps, because messages may quote files."""

    def format(self, record: logging.LogRecord) -> str:
        message = f"{record.levelname.lower()}: {super().format(record)}"
        if record.name.startswith("bilm."):  # other libraries have no such flags
            message = with_flags(message)
        return wrapped(message_lines(message), sys.stderr)
