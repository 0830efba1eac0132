"""What is installed, and what the source archive holds; tried without installing anything."""

import ast
import re
import shutil
import subprocess

import pytest

import bilm
from tests.helpers import ROOT

PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # tomllib is not in Python 3.10


def listed(key):
    """A list of strings of ``pyproject.toml``."""
    match = re.search(rf"^{key} = (\[.*?\])$", PYPROJECT, re.MULTILINE | re.DOTALL)
    assert match, key
    return ast.literal_eval(match[1])


def test_every_package_is_installed():
    package = ROOT / "bilm"
    with_modules = {path.parent.relative_to(ROOT) for path in package.rglob("*.py")}
    assert listed("include") == ["bilm", "bilm.*"]
    assert all((ROOT / path / "__init__.py").is_file() for path in with_modules)  # else it is no package


def test_a_folder_with_the_name_of_the_package_does_not_hide_an_editable_install():
    """Such as a clone: setuptools adds a path, not a finder, which Python asks last."""
    assert '[tool.setuptools]\npackage-dir = { "" = "." }\n' in PYPROJECT


def test_whatever_else_is_in_the_package_is_installed():
    package = ROOT / "bilm"
    others = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert {str(path.relative_to(package)) for path in others} == set(listed("bilm"))


def test_the_distribution_is_not_named_as_bilm_tf_is():
    """On the registry `bilm` is bilm-tf's, which an upgrade by that name would install in place of ours."""
    assert re.search(r'^name = "bilm-tf2"$', PYPROJECT, re.MULTILINE)
    sources = [*(ROOT / "bilm").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    advice = re.compile(r"pip install (-\S+ )*['\"]?bilm(?!-tf2)\b")
    assert not [path.name for path in sources if advice.search(path.read_text("utf-8"))]


@pytest.mark.parametrize("file", ["pyproject.toml", "CITATION.cff"])
def test_one_version(file):
    match = re.search(r'^version(?: = |: )"?([\w.]+)"?$', (ROOT / file).read_text("utf-8"), re.MULTILINE)
    assert match and match[1] == bilm.__version__


def in_archive(path, rules):
    """Whether the source archive has a file: by itself, by setuptools's rules, or by ours."""
    if path.startswith("bilm/") or path in ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"):
        return True
    return any(
        path in names if command == "include" else path.partition("/")[0] in names
        for command, *names in rules
        if command in ("include", "graft")
    )


def test_the_source_archive_has_what_the_checks_need():
    rules = [line.split() for line in (ROOT / "MANIFEST.in").read_text("utf-8").splitlines()]
    for command, *names in rules:
        if command in ("include", "graft"):
            assert [name for name in names if not (ROOT / name).exists()] == []
    for path in ("Makefile", "bin/train_elmo.py", "docs/generate.py", "tests/helpers.py"):
        assert in_archive(path, rules)
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a clone: which files are the repository's is not known")
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode:
        pytest.skip(f"git does not list the files: {listing.stderr.strip()}")
    left_out = {path for path in listing.stdout.split("\n") if path and not in_archive(path, rules)}
    assert left_out == {".gitignore", ".github/workflows/check.yml"}
