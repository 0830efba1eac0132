"""What processes leave that were killed while they wrote, and what becomes of it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bilm.errors import DataError
from bilm.io import atomic as locks
from bilm.io.atomic import replacing, replacing_directory
from tests.helpers import snapshot

HEAD = "import os, sys; from pathlib import Path; from bilm.io.atomic import *\n"


def killed(code: str, *arguments: object) -> None:
    """Run code that ends its own process with SIGKILL."""
    tail = "\nos.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", HEAD + code + tail, *map(str, arguments)], check=False)
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
    assert sorted(snapshot(tmp_path)) == [".a[b].hdf5.tmp", ".a[b].hdf5.tmp/lock", ".a[b].hdf5.tmp/new"]
    with replacing(path) as temporary:
        temporary.write_text("new")
    assert snapshot(tmp_path) == {path.name: b"new"}


HELD = f"is being written by host .*, process {os.getpid()}; wait for it to finish, or give another name"


@pytest.mark.parametrize("kind", [replacing, replacing_directory])
def test_a_second_writer_is_refused_and_the_first_goes_on(tmp_path, kind):
    with kind(tmp_path / "out") as first:
        first.unlink(missing_ok=True)
        first.mkdir() if kind is replacing_directory else first.write_text("first")
        with pytest.raises(DataError, match=f"^{tmp_path}/out: {HELD}$"):
            with kind(tmp_path / "out"):
                raise AssertionError
        assert first.exists()
    assert list(snapshot(tmp_path)) == ["out"]


@pytest.mark.parametrize("name", ["a file", "a link", "a directory with other files"])
def test_what_is_not_ours_stays(tmp_path, name):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    place = tmp_path / ".file.tmp"
    if name == "a link":
        place.symlink_to("mine")
    elif name == "a file":
        place.write_text("mine")
    else:
        (tmp_path / "mine").rename(place)
    before = snapshot(tmp_path)
    with pytest.raises(DataError, match="is in the way of the temporary files for file; move it"):
        with replacing(tmp_path / "file"):
            raise AssertionError
    assert snapshot(tmp_path) == before


def test_without_locks_nobody_is_refused(tmp_path, monkeypatch):
    killed(HALF_A_FILE, tmp_path / "file")

    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(locks.fcntl, "flock", refuse)
    with replacing(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert snapshot(tmp_path) == {"file": b"new"}


TOLD_TO_END = """
import functools
from bilm.cli.process import StopRequests
moment, calls = int(sys.argv[1]), []
def told(move, *paths, **options):
    calls.append(move)
    try:
        if moment == 2 * len(calls) - 2: os.kill(os.getpid(), 15)
        return move(*paths, **options)
    finally:
        if moment == 2 * len(calls) - 1: os.kill(os.getpid(), 15)
for name in ("mkdir", "rename", "replace", "rmdir", "unlink"):
    setattr(os, name, functools.partial(told, getattr(os, name)))
StopRequests(saves=False).__enter__()
try:
    with replacing_together("first", "second") as files:
        for file in files: file.write_text("new")
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_a_signal_at_any_moment_leaves_both_old_or_both_new_files(tmp_path):
    """And no temporary directories."""
    left = []
    for moment in range(100):
        for name in ("first", "second"):
            (tmp_path / name).write_text("old")
        code = HEAD + TOLD_TO_END
        done = subprocess.run([sys.executable, "-c", code, str(moment)], cwd=tmp_path, check=False)
        left.append((done.returncode, snapshot(tmp_path)))
        if done.returncode != 7:
            break
    assert left.pop() == (0, {"first": b"new", "second": b"new"})
    assert len(left) > 10
    for _, files in left:
        assert files in ({"first": b"old", "second": b"old"}, {"first": b"new", "second": b"new"})


def test_a_directory_whose_replacement_was_killed_gets_its_name_back(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").write_text("old")
    killed(BETWEEN_RENAMES, tmp_path / "one")
    assert not (tmp_path / "one").exists()
    with pytest.raises(ValueError, match="fails too"):
        with replacing_directory(tmp_path / "one"):
            raise ValueError("fails too")
    assert snapshot(tmp_path) == {"one": b"(directory)", "one/file": b"old"}
