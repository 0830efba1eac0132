"""GitHub's Markdown: code, prose without accidental markup, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    """Text as it is."""
    return f"`{text}`"


def prose(text: str) -> str:
    """Text in which flags and ``<S>`` are code, and nothing else is markup by accident."""

    def replace(match: re.Match[str]) -> str:
        return match["code"] or (code(match["literal"]) if match["literal"] else "\\" + match[0])

    return re.sub(r"(?P<code>`[^`]+`)|(?P<literal>(?<![\w-])--[a-z][a-z-]*|</?[A-Z]+>)|[\\*<]", replace, text)


def docstring_prose(text: str) -> str:
    """A paragraph of a docstring: on one line, double backquotes made single."""
    return prose(" ".join(text.replace("``", "`").split()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, in which a bar needs a backslash, within code too."""
    lines = [head, *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    first, *others = (f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)
    return "".join([first, "|" + "---|" * len(head) + "\n", *others])
