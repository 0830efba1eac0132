"""What is installed, what the source archive holds, and another distribution in the folder of ours."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import click
import pytest

import bilm
from bilm.installation import conflict, damage, other_distribution
from tests.helpers import ROOT, python

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


# --- bilm-tf's package of 2018 in the same folder -------------------------------------------------


PACKAGE = Path(bilm.__file__).resolve().parent
OLD = "bilm 0.1.post5"
REMEDY = "run `pip uninstall bilm`, then install bilm-tf2 again"

# What the old distribution has for bilm/__init__.py, without the classes that need TensorFlow 1.
OLD_INIT = "\nfrom .data import Batcher, TokenBatcher\n"


@pytest.fixture
def site(tmp_path):
    """A folder of installed packages, ours among them."""
    (tmp_path / "bilm_tf2-0.2.0.dist-info").mkdir()
    shutil.copytree(PACKAGE, tmp_path / "bilm", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run_in(site, *arguments):
    return python(*arguments, cwd=site, PYTHONPATH=str(site))


@pytest.mark.parametrize("name", ["bilm-0.1.post5.dist-info", "bilm-0.1.post5-py3.9.egg-info"])
def test_old_distribution_is_found(tmp_path, name):
    assert damage() is None and other_distribution(tmp_path / "bilm") is None
    (tmp_path / "bilm_tf2-0.2.0.dist-info").mkdir()
    (tmp_path / "bilm.egg-info").mkdir()  # of a development install of ours
    assert conflict(tmp_path / "bilm") is None
    (tmp_path / name).mkdir()
    assert other_distribution(tmp_path / "bilm") == OLD
    assert REMEDY in (conflict(tmp_path / "bilm") or "")


def test_command_warns_of_old_distribution(site):
    (site / "bilm-0.1.post5.dist-info").mkdir()
    done = run_in(site, "-m", "bilm", "--version")
    assert done.returncode == 0 and done.stdout.startswith(f"bilm, version {bilm.__version__}\n")
    assert done.stderr.startswith(f"Warning: the package {OLD} is installed in the same folder as bilm-tf2, ")
    assert len(done.stderr.splitlines()) == 1 and REMEDY in done.stderr


def test_replaced_files_end_command(site):
    (site / "bilm-0.1.post5.dist-info").mkdir()
    (site / "bilm" / "__init__.py").write_text(OLD_INIT)
    done = run_in(site, "-W", "ignore", "-m", "bilm", "--version")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"Error: {OLD} has replaced or removed files of bilm-tf2 in {site}/bilm: ")
    imported = run_in(site, "-c", "import bilm")
    assert f"RuntimeWarning: {OLD} has replaced" in imported.stderr and imported.returncode == 0


def test_removed_files_end_command(site):
    (site / "bilm" / "__init__.py").unlink()
    # A folder without __init__.py gives way to a package of its name elsewhere on the path: here is none.
    for package in Path(click.__file__).parents[1].iterdir():
        if "bilm" not in package.name:
            (site / package.name).symlink_to(package)
    done = run_in(site, "-S", "-m", "bilm", "--version")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("Error: another package named bilm has replaced or removed files")
