"""The ``bilm`` command; its commands are in `bilm.cli.commands`."""

from __future__ import annotations

import logging

import click

from bilm import __version__
from bilm.cli.group import LazyGroup
from bilm.io.messages import printable

_COMMANDS = {
    "vocab": "Build and check vocabularies.",
    "train": "Train a language model from text.",
    "restart": "Continue training a model, on the same text or another.",
    "test": "Print the perplexity of a text under the full softmax.",
    "plot": "Draw the training curves of runs.",
    "info": "Describe a run directory or a weight file.",
    "dump-weights": "Write the weights for embedding, as HDF5.",
    "embed": "Write a vector for each word of a text.",
    "score": "Print log-probabilities of sentences.",
    "neighbours": "Print the words of a text nearest to a word in its sentence.",
    "export": "Write a TensorFlow SavedModel like TF-Hub's ELMo.",
    "completion": "Print a script that completes commands in a shell.",
}


@click.group(
    cls=LazyGroup,
    helps=_COMMANDS,
    # bilm-tf spells its flags with underscores; both spellings are accepted everywhere.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("_", "-"),
        "max_content_width": 100,
    },
)
@click.version_option(__version__, prog_name="bilm")
def main() -> None:
    """Train, test and use ELMo's bidirectional language models."""
    logging.basicConfig(level=logging.WARNING)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Formatter("%(levelname)s: %(message)s"))


class _Formatter(logging.Formatter):
    """Escapes control characters, since messages may quote files."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
