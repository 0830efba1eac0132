"""A group of commands, each imported when it is used, so that help and completion are quick."""

from __future__ import annotations

import importlib
import io
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from bilm.cli.refusals import refusals


class LazyGroup(click.Group):
    """A group whose commands are each in a module of the same name, in `bilm.cli.commands`.

    It also turns errors of the user and the system into ``Error: ...`` and exit status 1 (see
    `bilm.cli.refusals`), prints what UTF-8 cannot encode, as in file names, with backslashes, and
    keeps the command line as ``ctx.meta["bilm.command"]``.

    Args:
        helps: the line on each command in the group's own help, by name.
        settings: of `click.Group`.
    """

    def __init__(self, helps: Mapping[str, str], **settings: Any) -> None:
        super().__init__(**settings)
        self.helps = helps
        self.commands = _Commands(helps)  # type: ignore[assignment]  # nothing is added to it

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401
    ) -> click.Context:
        """Parse the command line, and answer ``--help`` and ``--version``."""
        with refusals():
            return super().make_context(info_name, args, parent, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the command line."""
        ctx.meta["bilm.command"] = shlex.join([ctx.info_name or "bilm", *args])
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run the command."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # as standard error is
        with refusals():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the table, not sorted."""
        return list(self.helps)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.helps[name]) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Complete the name of a command, or a flag of the group."""
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        items: list[CompletionItem[Any]] = [CompletionItem(name, help=self.helps[name]) for name in names]
        return items + click.Command.shell_complete(self, ctx, incomplete)


class _Commands(Mapping[str, click.Command]):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def __getitem__(self, name: str) -> click.Command:
        if name not in self.names:
            raise KeyError(name)
        attribute = name.replace("-", "_")
        return getattr(importlib.import_module(f"{__package__}.commands.{attribute}"), attribute)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
