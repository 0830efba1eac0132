"""The pages of docs/ say what the code does."""

import dataclasses
import json
import math
import os
import re
from pathlib import Path

import click
import pytest

import bilm
from bilm.cli import main
from bilm.options import PRESETS, Options
from bilm.weights.names import weight_names
from docs import generate, python_api, site
from tests import pages
from tests.helpers import ROOT, python
from tests.pages import GENERATED as PAGES

FILES = [*site.files()]
TEXTS = [path for path in FILES if path.suffix == ".md"]


def options():
    """Every option of every command."""
    for context in generate.walk(click.Context(main, info_name="bilm", **main.context_settings)):
        for parameter in context.command.params:
            if isinstance(parameter, click.Option):
                yield context.command_path, parameter


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_pages_match_code(path):
    assert path.is_file(), f"{path} is missing; run `make docs`"
    on_disk = path.read_text(encoding="utf-8")
    assert on_disk == PAGES[path], f"{path} is not what the code says; run `make docs`"


def test_options_have_complete_help():
    for command, option in options():
        assert option.help, (command, option.opts)
        # A default has a place of its own, see `show_default`.
        assert "[default" not in option.help, (command, option.opts)
        if option.multiple and not option.is_flag:
            assert "repeatable" in option.help or (option.metavar or "").endswith("..."), option.opts


def test_python_api_is_complete():
    page = PAGES[generate.PYTHON_API]
    exported = [name for name in bilm.__all__ if name != "__version__"]
    lines, calls = page.partition("\n## Others\n")[2].split("\n## As in bilm-tf\n")
    others = re.findall(r"^- `(\w+)[`(]", lines, re.MULTILINE)
    others += re.findall(r"`(\w+)`", calls.partition("\n## ")[0])
    entries = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert sorted(exported) == sorted(name for name in [*entries, *others] if name in exported)
    assert set(re.findall(r"\) -> (\w+)`$", page, re.MULTILINE)) <= {*entries, *others}  # the results


def test_arguments_left_out_are_options():
    for name, explained in python_api.COMMANDS.items():
        command = main.get_command(None, name.replace("_", "-"))
        flags = {option.name for option in command.params}
        arguments = [text.split("=")[0] for text in python_api.arguments(python_api.find(name))]
        assert [one for one in arguments if one not in flags and one not in (*explained, "*")] == []


def test_nothing_heavy_is_imported():
    code = "import sys, docs.generate as g; g.pages(); sys.exit('tensorflow' in sys.modules)"
    assert python("-c", code).returncode == 0


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_modules_named_by_pages_exist(page):
    packages = "|".join({name.partition(".")[0] for name in generate.modules() if "." in name})
    named = re.findall(rf"`((?:{packages})[./](?!json)\w+)`", (ROOT / page).read_text(encoding="utf-8"))
    paths = [generate.PACKAGE / name.replace(".", "/") for name in named]
    assert paths and [path for path in paths if not (path.is_dir() or path.with_suffix(".py").exists())] == []


def test_promises_name_tests():
    page = (ROOT / "docs" / "files-and-faults.md").read_text(encoding="utf-8")
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    promises = [line.rpartition(": ") for line in (ROOT / "tests" / "promises.txt").read_text().splitlines()]
    tables = re.findall(r"^\|---.*\n((?:\| .*\n)+)", page, re.MULTILINE)
    rows = [row.removeprefix("| ").split(" | ")[0] for rows in tables for row in rows.splitlines()]
    assert rows == [promise for promise, _, _ in promises]
    for name in " ".join(names for _, _, names in promises).split():
        assert f"\ndef test_{name}(" in sources, name


def anchors(path):
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", [*TEXTS, Path("examples/tutorial.ipynb")], ids=str)
def test_links_resolve(path):
    text = re.sub(r"^```.*?^```", "", (ROOT / path).read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = Path(os.path.normpath(path.parent / file)) if file else path
        assert target in FILES, f"{path}: {link}"
        assert not anchor or anchor in anchors(ROOT / target), f"{path}: {link}"


def test_site_lists_pages_once():
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = text.partition("\nnav:\n")[2].partition("\nvalidation:")[0]
    in_nav = re.findall(r"\S+\.md", nav)
    assert sorted(in_nav) == sorted(str(path) for path in TEXTS)


def test_site_unescapes_bars():
    assert site.adapted(r"| `a\|b` \| | `c\|d` |") == r"| `a|b` \| | `c|d` |"


# --- docs/options.md and the table of presets -----------------------------------------------------


def test_shown_file_is_original():
    (shown,) = pages.code("docs/options.md", "json")
    options = Options.from_json(json.loads(shown))
    assert dataclasses.replace(options, n_tokens_vocab=None) == PRESETS["original"]


def test_preset_parameter_counts():
    table = pages.text("docs/training.md")
    for name, options in PRESETS.items():
        millions = re.search(rf"^\| `{name}`.*?\| ([\d.]+) M \|", table, re.MULTILINE)
        total = sum(math.prod(weight.shape) for weight in weight_names(options))
        assert millions and float(millions[1]) == round(total / 1e6, 1), (name, total)
