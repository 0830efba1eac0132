"""Format GitHub's Markdown: code, prose without accidental markup, tables."""

import re
from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    """Format text as code."""
    return f"`{text}`"


def prose(text: str) -> str:
    """Format flags and ``<S>`` as code, and escape accidental markup."""

    def replace(match: re.Match[str]) -> str:
        return match["code"] or (code(match["literal"]) if match["literal"] else "\\" + match[0])

    return re.sub(r"(?P<code>`[^`]+`)|(?P<literal>(?<![\w-])--[a-z][a-z-]*|</?[A-Z]+>)|[\\*<]", replace, text)


def docstring_prose(text: str) -> str:
    """Join a paragraph of a docstring to one line, with single instead of double backquotes."""
    return prose(" ".join(text.replace("``", "`").split()))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table; bars in cells get a backslash, also in code."""
    lines = [head, *([cell.replace("|", r"\|") for cell in row] for row in rows)]
    first, *others = (f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)
    return "".join([first, "|" + "---|" * len(head) + "\n", *others])
