"""The ``bilm`` command; its commands are in `bilm.cli.commands`."""

import logging

import click

from bilm import __version__
from bilm.cli.group import LazyGroup
from bilm.io.messages import printable


@click.group(
    cls=LazyGroup,
    table={
        "vocab": ("vocab", "Build and check vocabularies."),
        "train": ("training", "Train a language model from text."),
        "restart": ("training", "Continue training a model, on the same text or another."),
        "test": ("models", "Print the perplexity of a text under the full softmax."),
        "plot": ("pictures", "Draw the training curves of runs."),
        "info": ("models", "Describe a run directory or a weight file."),
        "dump-weights": ("models", "Write the weights for embedding, as HDF5."),
        "embed": ("embed", "Write a vector for each word of a text."),
        "score": ("models", "Print log-probabilities of sentences."),
        "neighbours": ("pictures", "Print the words of a text nearest to a word in its sentence."),
        "export": ("models", "Write a TensorFlow SavedModel like TF-Hub's ELMo."),
        "completion": ("completion", "Print a script that completes commands in a shell."),
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
    """Escapes control characters, since messages may quote files."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
