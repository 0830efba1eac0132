"""Outputs that are written whole or not at all, under a lock, and what killed processes leave."""

import errno
import fcntl
import os
import signal
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from bilm.cli.process import StopRequests
from bilm.errors import DataError
from bilm.io.atomic import FileLock, HeldError, replacing, replacing_directory, replacing_together
from tests.helpers import python, snapshot


def write(path):
    with replacing(path) as temporary:
        temporary.write_text("new")


def write_directory(path):
    with replacing_directory(path) as temporary:
        temporary.mkdir()
        (temporary / "file").write_text("new")


def test_a_file_takes_its_place_when_the_block_succeeds(tmp_path):
    path = tmp_path / "file"
    mask = os.umask(0o027)
    write(path)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(KeyboardInterrupt), replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert snapshot(tmp_path) == {"file": b"new"}


def test_a_symlink_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "file").write_text("old")
    (tmp_path / "link").symlink_to("disk/file")
    write(tmp_path / "link")
    assert os.readlink(tmp_path / "link") == "disk/file"
    assert snapshot(tmp_path / "disk") == {"file": b"new"}


@pytest.mark.parametrize("there", [(), ("first",), ("second",), ("first", "second")])
@pytest.mark.parametrize("failing", ["first", "second"])
def test_all_of_several_files_take_their_places_or_none(tmp_path, monkeypatch, there, failing):
    for name in there:
        (tmp_path / name).write_text("old")
    before = snapshot(tmp_path)

    def fail(source, target, replace=os.replace):
        if Path(target).name == failing and Path(source).name == "new":
            raise OSError(errno.EBUSY, "busy")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="busy"), replacing_together(tmp_path / "first", tmp_path / "second"):
        pass
    assert snapshot(tmp_path) == before


def test_a_directory(tmp_path):
    write_directory(tmp_path / "one")
    (tmp_path / "one" / "other").write_text("old")
    (tmp_path / "link").symlink_to("one")
    write_directory(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert snapshot(tmp_path / "one") == {"file": b"new"}


@pytest.mark.parametrize("n_renames", [0, 1])
def test_a_directory_that_cannot_be_replaced_stays(tmp_path, monkeypatch, n_renames):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").write_text("old")
    done = []

    def fail(source, target, rename):
        if len(done) == n_renames:
            monkeypatch.undo()
            raise KeyboardInterrupt
        done.append(rename(source, target))

    for name in ("rename", "replace"):
        rename = getattr(os, name)
        monkeypatch.setattr(os, name, lambda source, target, rename=rename: fail(source, target, rename))
    with pytest.raises(KeyboardInterrupt):
        write_directory(tmp_path / "one")
    assert snapshot(tmp_path) == {"one": b"(directory)", "one/file": b"old"}


# --- what killed processes leave ------------------------------------------------------------------------

HEAD = "import os, sys; from pathlib import Path; from bilm.io.atomic import *\n"


def killed(code, *arguments):
    """Run code that ends its own process with SIGKILL."""
    tail = "\nos.kill(os.getpid(), 9)"
    assert python("-c", HEAD + code + tail, *arguments).returncode == -9


HALF_A_FILE = "context = replacing(Path(sys.argv[1])); context.__enter__().write_text('half')"
BETWEEN_RENAMES = """
def replace(source, target): os.kill(os.getpid(), 9)
os.replace = replace
with replacing_directory(Path(sys.argv[1])) as new:
    new.mkdir()
"""


def no_locks(handle, operation):
    raise OSError(errno.ENOLCK, "No locks available")


@pytest.mark.parametrize("has_locks", [True, False])
def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path, monkeypatch, has_locks):
    path = tmp_path / "a[b].hdf5"
    killed(HALF_A_FILE, path)
    assert sorted(snapshot(tmp_path)) == [".a[b].hdf5.tmp", ".a[b].hdf5.tmp/lock", ".a[b].hdf5.tmp/new"]
    if not has_locks:
        monkeypatch.setattr(fcntl, "flock", no_locks)
    write(path)
    assert snapshot(tmp_path) == {path.name: b"new"}


def test_a_directory_whose_replacement_was_killed_gets_its_name_back(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").write_text("old")
    killed(BETWEEN_RENAMES, tmp_path / "one")
    assert not (tmp_path / "one").exists()
    with pytest.raises(ValueError, match="fails too"):
        with replacing_directory(tmp_path / "one"):
            raise ValueError("fails too")
    assert snapshot(tmp_path) == {"one": b"(directory)", "one/file": b"old"}


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
        write(tmp_path / "file")
    assert snapshot(tmp_path) == before


def was_told_to_end(moment, paths):
    """Replace files; a signal comes before or behind a call that moves files, if there are so many."""
    n_calls, is_told = 0, False

    def tell(move, *arguments, **options):
        nonlocal n_calls, is_told
        before, behind = moment == n_calls, moment == n_calls + 1
        n_calls += 2
        is_told = is_told or before or behind
        try:
            if before:
                os.kill(os.getpid(), signal.SIGTERM)
            return move(*arguments, **options)
        finally:
            if behind:
                os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch, StopRequests(saves=False), suppress(KeyboardInterrupt):
        for name in ("mkdir", "rename", "replace", "rmdir", "unlink"):
            patch.setattr(os, name, partial(tell, getattr(os, name)))
        with replacing_together(*paths) as files:
            for file in files:
                file.write_text("new")
    return is_told


def test_a_signal_at_any_moment_leaves_both_old_or_both_new_files(tmp_path):
    """And no temporary directories."""
    paths = [tmp_path / "first", tmp_path / "second"]
    old, new = ({path.name: text for path in paths} for text in (b"old", b"new"))
    for moment in range(100):
        for path in paths:
            path.write_text("old")
        if not was_told_to_end(moment, paths):
            break
        assert snapshot(tmp_path) in (old, new), moment
    assert 10 < moment < 99 and snapshot(tmp_path) == new


# --- locks ----------------------------------------------------------------------------------------------


def test_a_second_lock_is_refused_and_that_of_a_dead_process_is_free(tmp_path):
    with FileLock(tmp_path / "lock"):
        with pytest.raises(HeldError, match=f"host .*, process {os.getpid()}$"):
            FileLock(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()
    killed("lock = FileLock(Path(sys.argv[1]))", tmp_path / "lock")
    assert (tmp_path / "lock").exists()
    with FileLock(tmp_path / "lock") as lock:
        assert lock.is_supported


def test_a_lock_file_that_was_replaced_is_not_removed(tmp_path):
    with FileLock(tmp_path / "lock"):
        (tmp_path / "lock").unlink()
        (tmp_path / "lock").write_text("another's")
    assert (tmp_path / "lock").read_text() == "another's"


def test_a_file_system_without_locks_keeps_nobody_out(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert not FileLock(tmp_path / "lock").is_supported
