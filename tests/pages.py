"""The README and the pages of docs/ as the tests read them: blocks of code, and the text around them."""

import re
from typing import NamedTuple

from docs import generate
from tests.helpers import ROOT

GENERATED = generate.pages()
"""What the generated pages should hold, and the page of which a part is."""
NAMES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    if path not in GENERATED or path == generate.OPTIONS
)
"""The pages that are written by hand, ``docs/faq.md`` for instance; of one the tables are made."""


class Block(NamedTuple):
    """A piece of code; without a language it is a drawing."""

    language: str
    code: str


def text(name):
    """A page."""
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(name):
    """The pieces of code of a page."""
    return [Block(*found) for found in re.findall(r"^```(\w*)\n(.*?)^```", text(name), re.M | re.S)]


def code(name, language):
    """The code of a page in one language."""
    return [block.code for block in blocks(name) if block.language == language]


def prose(name):
    """A page without its blocks."""
    return re.sub(r"^```.*?^```", "", text(name), flags=re.M | re.S)


def rows(part):
    """The rows of the tables in a part of a page, as cells; heads and rules are left out."""
    lines = re.findall(r"^\| (.*) \|$", part, re.M)
    return [line.split(" | ") for line in lines if "`" in line.partition(" | ")[0]]
