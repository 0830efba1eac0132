"""Collect the pages of the site in build/pages, for `make site`: ``python -m docs.site``.

The directories are those of the repository, so that relative links stay valid.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "build" / "pages"
# The pages and the files they link to.
_FILES = ("*.md", "docs/*.md", "docs/*.svg", "examples/[!.]*.*", "examples/spacy/*.*")


def files() -> Iterator[Path]:
    """Yield the files of the site, relative to the repository."""
    for pattern in _FILES:
        yield from sorted(path.relative_to(ROOT) for path in ROOT.glob(pattern))


def adapted(page: str) -> str:
    """Convert a page for Python-Markdown, which needs no backslash before bars in code in tables."""
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
