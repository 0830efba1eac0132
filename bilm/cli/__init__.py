"""The ``bilm`` command; its commands are in `bilm.cli.commands`."""

import logging

import click

from bilm import __version__
from bilm.cli.group import LazyGroup
from bilm.io.messages import printable


@click.group(
    cls=LazyGroup,
    table={
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
@click.version_option(__version__, prog_name="bilm")
def main() -> None:
    """Train, test and use ELMo's bidirectional language models."""
    logging.basicConfig(level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Formatter("%(levelname)s: %(message)s"))


class _Formatter(logging.Formatter):
    """Escapes control characters, because messages may quote files."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
