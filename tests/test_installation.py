"""Another distribution, bilm-tf's of 2018, in the folder of ours is noticed."""

import shutil
from pathlib import Path

import click
import pytest

import bilm
from bilm.installation import conflict, damage, other_distribution
from tests.helpers import python

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
def test_the_old_distribution_is_found_next_to_ours(tmp_path, name):
    assert damage() is None and other_distribution(tmp_path / "bilm") is None
    (tmp_path / "bilm_tf2-0.2.0.dist-info").mkdir()
    (tmp_path / "bilm.egg-info").mkdir()  # of a development install of ours
    assert conflict(tmp_path / "bilm") is None
    (tmp_path / name).mkdir()
    assert other_distribution(tmp_path / "bilm") == OLD
    assert REMEDY in (conflict(tmp_path / "bilm") or "")


def test_the_command_warns_while_it_works(site):
    (site / "bilm-0.1.post5.dist-info").mkdir()
    done = run_in(site, "-m", "bilm", "--version")
    assert done.returncode == 0 and done.stdout.startswith(f"bilm, version {bilm.__version__}\n")
    assert done.stderr.startswith(f"Warning: the package {OLD} is installed in the same folder as bilm-tf2, ")
    assert len(done.stderr.splitlines()) == 1 and REMEDY in done.stderr


def test_files_that_were_replaced_end_the_command_with_one_line(site):
    (site / "bilm-0.1.post5.dist-info").mkdir()
    (site / "bilm" / "__init__.py").write_text(OLD_INIT)
    done = run_in(site, "-W", "ignore", "-m", "bilm", "--version")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"Error: {OLD} has replaced or removed files of bilm-tf2 in {site}/bilm: ")
    imported = run_in(site, "-c", "import bilm")
    assert f"RuntimeWarning: {OLD} has replaced" in imported.stderr and imported.returncode == 0


def test_files_that_were_removed_end_it_too(site):
    (site / "bilm" / "__init__.py").unlink()
    # A folder without __init__.py gives way to a package of its name elsewhere on the path: here is none.
    for package in Path(click.__file__).parents[1].iterdir():
        if "bilm" not in package.name:
            (site / package.name).symlink_to(package)
    done = run_in(site, "-S", "-m", "bilm", "--version")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("Error: another package named bilm has replaced or removed files")
