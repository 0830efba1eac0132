"""What is installed, and what the source archive holds."""

import re
import shutil
import subprocess
import tomllib

import pytest

import bilm
from tests.helpers import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]


def test_public_names_are_listed():
    assert dir(bilm) == sorted(bilm.__all__)
    assert bilm.test.__test__ is False


def test_every_package_is_installed():
    package = ROOT / "bilm"
    with_modules = {path.parent.relative_to(ROOT) for path in package.rglob("*.py")}
    assert SETUPTOOLS["packages"]["find"]["include"] == ["bilm", "bilm.*"]
    assert all((ROOT / path / "__init__.py").is_file() for path in with_modules)  # else it is no package


def test_package_data_is_installed():
    package = ROOT / "bilm"
    others = {path for path in package.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert {str(path.relative_to(package)) for path in others} == set(SETUPTOOLS["package-data"]["bilm"])


def test_distribution_name_differs_from_bilm_tf():
    """On the registry `bilm` is bilm-tf's, which an upgrade by that name would install in place of ours."""
    assert PYPROJECT["project"]["name"] == "bilm-tf2"
    sources = [*(ROOT / "bilm").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    advice = re.compile(r"pip install (-\S+ )*['\"]?bilm(?!-tf2)\b")
    assert not [path.name for path in sources if advice.search(path.read_text("utf-8"))]


@pytest.mark.parametrize("file", ["pyproject.toml", "CITATION.cff"])
def test_one_version(file):
    match = re.search(r'^version(?: = |: )"?([\w.]+)"?$', (ROOT / file).read_text("utf-8"), re.MULTILINE)
    assert match and match[1] == bilm.__version__


def test_source_archive_has_files_of_checks():
    rules = [line.split() for line in (ROOT / "MANIFEST.in").read_text("utf-8").splitlines()]
    names = {name for command, *names in rules if command in ("include", "graft") for name in names}
    assert [name for name in names if not (ROOT / name).exists()] == []
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a clone: which files are the repository's is not known")
    command = ["git", "-c", "safe.directory=*", "ls-files"]  # whoever owns the clone
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names |= {"bilm", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml"}  # by setuptools' rules
    left_out = {path for path in listing.split() if not names & {path, path.partition("/")[0]}}
    assert left_out == {".gitignore", ".github/workflows/check.yml"}
