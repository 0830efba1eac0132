"""What processes leave that were killed while they wrote, and what becomes of it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.io import locks
from bilm.io.atomic import Staging, replacing, replacing_directory
from tests.helpers import snapshot


def killed(code: str, *arguments: object) -> None:
    """Run code that ends its own process with SIGKILL."""
    head = "import os, sys; from pathlib import Path; from bilm.io.atomic import *\n"
    tail = "\nos.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", head + code + tail, *map(str, arguments)], check=False)
    assert done.returncode == -9


HALF_A_FILE = "context = replacing(Path(sys.argv[1])); context.__enter__().write_text('half')"
BETWEEN_RENAMES = """
def replace(source, target): os.kill(os.getpid(), 9)
os.replace = replace
with replacing_directory(Path(sys.argv[1])) as new:
    new.mkdir()
    (new / "file").write_text("new")
"""


def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path):
    path = tmp_path / "a[b].hdf5"
    killed(HALF_A_FILE, path)
    killed(HALF_A_FILE, tmp_path / "other")
    assert len(list(tmp_path.iterdir())) == 2
    with replacing(path) as temporary:
        temporary.write_text("new")
    left = [name for name in snapshot(tmp_path) if name != path.name]
    assert left and all(name.startswith(".other.") for name in left)
    with replacing(tmp_path / "other"):
        pass
    assert sorted(snapshot(tmp_path)) == [path.name, "other"]


def test_what_a_living_process_writes_stays(tmp_path):
    with Staging(tmp_path / "file") as first:
        first.new.write_text("half")
        with replacing(tmp_path / "file") as second:
            second.write_text("new")
        assert first.new.read_text() == "half"
        first.publish()
    assert snapshot(tmp_path) == {"file": b"half"}


@pytest.mark.parametrize("name", [".file.abcdefgh.tmp", ".file.abc.tmp", ".file.abcdefgh.tmp2", "file.tmp"])
def test_what_is_not_ours_stays(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "new").write_text("mine")
    if name != ".file.abcdefgh.tmp":
        (tmp_path / name / "lock").touch()
    with replacing(tmp_path / "file"):
        pass
    assert (tmp_path / name / "new").read_text() == "mine"


def test_a_link_of_our_form_is_not_followed(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("new", "lock"):
        (tmp_path / "mine" / name).touch()
    (tmp_path / ".file.abcdefgh.tmp").symlink_to("mine")
    with replacing(tmp_path / "file"):
        pass
    assert sorted(os.listdir(tmp_path / "mine")) == ["lock", "new"]


def test_without_locks_nothing_is_taken_for_that_of_a_dead_process(tmp_path, monkeypatch):
    killed(HALF_A_FILE, tmp_path / "file")
    left = snapshot(tmp_path)

    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with replacing(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert snapshot(tmp_path) == {**left, "file": b"new"}


def test_a_directory_whose_replacement_was_killed_gets_its_name_back(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").write_text("old")
    killed(BETWEEN_RENAMES, tmp_path / "one")
    assert not (tmp_path / "one").exists()
    with pytest.raises(ValueError, match="fails too"):
        with replacing_directory(tmp_path / "one"):
            raise ValueError("fails too")
    assert snapshot(tmp_path) == {"one": b"(directory)", "one/file": b"old"}
