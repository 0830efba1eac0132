"""Collect the pages of the site in build/pages, for `make site`: ``python -m docs.site``.

They lie there as in the repository, so that their links lead to the same places.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "build" / "pages"
# The pages, and the files that they link to.
_FILES = ("*.md", "docs/*.md", "docs/*.svg", "docs/reference/*.md", "examples/*.*")


def files() -> Iterator[Path]:
    """Yield the files of the site, relative to the repository."""
    for pattern in _FILES:
        yield from sorted(path.relative_to(ROOT) for path in ROOT.glob(pattern))


def adapted(page: str) -> str:
    """Return a page as Python-Markdown reads it: a bar in code in a table has no backslash."""
    return re.sub(r"`[^`\n]*`", lambda match: match[0].replace(r"\|", "|"), page)


if __name__ == "__main__":
    shutil.rmtree(TARGET, ignore_errors=True)
    for path in files():
        target = TARGET / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(adapted((ROOT / path).read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / path, target)
