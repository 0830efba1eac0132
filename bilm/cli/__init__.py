"""The ``bilm`` command; its commands are in `bilm.cli.commands`."""

import contextlib
import logging
import platform
import sys
from pathlib import Path

import click

from bilm import __version__
from bilm.cli.group import LazyGroup, with_flags, wrapped
from bilm.io.messages import message_lines


def _show_versions(context: click.Context, parameter: click.Parameter, is_wanted: bool) -> None:  # noqa: ARG001
    if not is_wanted or context.resilient_parsing:
        return
    from importlib import metadata

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
