"""The ``bilm`` command: one module a verb."""

from __future__ import annotations

import logging
import shlex
from typing import Any

import click

from bilm import __version__
from bilm.cli.dump_weights import dump_weights
from bilm.cli.embed import embed
from bilm.cli.export import export
from bilm.cli.neighbours import neighbours
from bilm.cli.restart import restart
from bilm.cli.score import score
from bilm.cli.test import test
from bilm.cli.train import train
from bilm.cli.vocab import vocab
from bilm.errors import BilmError


class _Group(click.Group):
    """Turns a `BilmError` into ``Error: ...`` and exit status 1, and keeps the words of the command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["bilm.command"] = shlex.join([ctx.info_name or "bilm", *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        try:
            return super().invoke(ctx)
        except BilmError as error:
            raise click.ClickException(str(error)) from error


@click.group(
    cls=_Group,
    # bilm-tf spells its flags with underscores; both spellings are understood everywhere.
    context_settings={
        "help_option_names": ["-h", "--help"],
        "token_normalize_func": lambda name: name.replace("_", "-"),
        "max_content_width": 100,
    },
)
@click.version_option(__version__, prog_name="bilm")
def main() -> None:
    """Train, test and use ELMo's bidirectional language models."""
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)


for command in (vocab, train, restart, test, dump_weights, embed, export, score, neighbours):
    main.add_command(command)
