"""Places for outputs, what may not be written over, and outputs that are written whole or not at all."""

import errno
import fcntl
import os
import signal
import socket
import stat
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from bilm.cli.process import StopRequests
from bilm.errors import DataError
from bilm.io import atomic
from bilm.io.atomic import FileLock, HeldError, writing
from bilm.io.outputs import FILE, Kind, check_output
from bilm.models.saved_model import check_saved_model
from tests import helpers
from tests.helpers import python, raising, snapshot, standard_input


def refused(check, path, *arguments):
    return helpers.refused(check, path, *arguments).removeprefix(": ")


# --- kinds ----------------------------------------------------------------------------------------------


def test_other_kinds_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for path, kind in [
            (tmp_path, "a directory"),
            (tmp_path / "link", "a directory"),
            (tmp_path / "pipe", "a device, a pipe or a socket"),
            (tmp_path / "socket", "a device, a pipe or a socket"),
            (Path("/dev/null"), "a device, a pipe or a socket"),
        ]:
            assert refused(check_output, path, True) == f"is {kind}; give the name of a file to write"
    message = refused(check_saved_model, Path("/dev/null"), True)
    assert message == "is a device, a pipe or a socket; give the name of a directory to write"


@pytest.mark.parametrize("check", [check_output, check_saved_model])
def test_dangling_symlink_is_refused(check, tmp_path):
    (tmp_path / "link").symlink_to("none")
    (tmp_path / "loop").symlink_to("loop")
    for overwrite in (False, True):
        assert refused(check, tmp_path / "link", overwrite).startswith("is a symlink to none, which does not")
    assert "symbolic links" in refused(check, tmp_path / "loop", True)


@pytest.mark.parametrize("check", [check_output, check_saved_model])
def test_missing_parent_is_refused(check, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for parent in ("none", "file"):
        message = refused(check, tmp_path / parent / "new", False)
        assert message == f"cannot be written: {tmp_path / parent} is not a directory that you can write to"
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    assert refused(check, tmp_path / "new", False).startswith(f"cannot be written: {tmp_path} is no")


# --- inputs ---------------------------------------------------------------------------------------------


@pytest.fixture
def text(tmp_path):
    (tmp_path / "text").write_text("mine")
    return tmp_path / "text"


def test_input_is_refused(text):
    others = (None, text.with_name("none"))
    message = refused(check_output, text, True, [*others, text])
    assert message == "it is an input and would be lost; give another name"


@pytest.mark.parametrize("is_input", [False, True])
def test_linked_input_is_refused(text, tmp_path, is_input):
    (tmp_path / "hard").hardlink_to(text)
    (tmp_path / "soft").symlink_to("text")
    (tmp_path / "directory").symlink_to(tmp_path)
    for link in (tmp_path / "hard", tmp_path / "soft", tmp_path / "directory" / "text"):
        output, given = (text, link) if is_input else (link, text)
        assert refused(check_output, output, True, [given]).startswith(
            f"{given} is an input and would be lost"
        )


def test_standard_input_is_refused(text):
    with standard_input(text):
        for name in (0, "-", Path("-")):
            message = refused(check_output, text, True, [name])
            assert message == "standard input is an input and would be lost; give another name"


@pytest.mark.parametrize("name", ["checkpoint", "model.ckpt-6.index", "bilm.lock"])
def test_run_files_are_refused(tmp_path, name):
    (tmp_path / "bilm-run.json").touch()
    message = refused(check_output, tmp_path / name, True, ["other.txt"])
    assert message == "is the name of a file of the run; give another name"
    (tmp_path / "bilm-run.json").rename(tmp_path / "bilm.lock")  # of a run that begins
    assert refused(check_output, tmp_path / name, True, ["other.txt"]) == message
    (tmp_path / name).touch()
    (tmp_path / "hard").hardlink_to(tmp_path / name)
    message = refused(check_output, tmp_path / "hard", True, [tmp_path])
    assert message == f"{tmp_path / name} is an input and would be lost; give another name"
    check_output(tmp_path / "weights.hdf5", True, [tmp_path])


# --- SavedModels ----------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path):
    """What looks like a SavedModel of ours."""
    directory = tmp_path / "saved"
    (directory / "variables").mkdir(parents=True)
    (directory / "assets").mkdir()
    for name in ("fingerprint.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"):
        (directory / name).write_text("x")
    (directory / "saved_model.pb").write_bytes(b"\x01word_emb\x02lstm_outputs1\x03sequence_len")
    return directory


def test_overwrite_replaces(saved, tmp_path, monkeypatch):
    (tmp_path / "old").touch()
    for check, path in ((check_output, tmp_path / "old"), (check_saved_model, saved)):
        check(tmp_path / "new", False)
        assert refused(check, path, False) == "exists; overwrite=True replaces it"
        check(path, True)
    monkeypatch.setattr(os, "access", lambda path, _: path != saved)
    assert refused(check_saved_model, saved, True).startswith(f"cannot be written: {saved} is no")


def test_replaced_outputs_keep_their_mode(tmp_path, monkeypatch):
    (tmp_path / "private").mkdir(0o700)
    with atomic.writing(tmp_path / "private", kind=DIRECTORY):
        pass
    assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o700
    (tmp_path / "secret").touch(0o600)
    owners = []
    monkeypatch.setattr(os, "chown", lambda *given: owners.append(given[1:]))
    atomic.write(tmp_path / "secret", b"new")
    after = (tmp_path / "secret").stat()
    assert stat.S_IMODE(after.st_mode) == 0o600 and owners == [(-1, after.st_gid)]


def test_remains_that_cannot_be_removed_are_told_first(tmp_path, monkeypatch):
    (tmp_path / ".one.tmp" / "old").mkdir(parents=True)
    (tmp_path / ".one.tmp" / "old" / "x").touch()
    (tmp_path / "one").mkdir()
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)  # as for a file that is open on NFS
    with pytest.raises(DataError, match="old: is in the way of the temporary files for one; move it"):
        with atomic.writing(tmp_path / "one", kind=DIRECTORY):
            raise AssertionError("the work was begun")


def test_directories_need_not_be_flushed(tmp_path, monkeypatch):
    def flush(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "as on a shared folder of a virtual machine")

    monkeypatch.setattr("os.fsync", flush)
    atomic.write(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


NOT_OURS = "exists and is not a SavedModel that bilm wrote, with nothing else in it; give another name"


@pytest.mark.parametrize("name", ["notes.txt", "assets/words.txt", "variables/mine", "run/checkpoint"])
def test_saved_model_with_other_files_is_refused(saved, name):
    (saved / name).parent.mkdir(exist_ok=True)
    (saved / name).touch()
    assert refused(check_saved_model, saved, True) == NOT_OURS
    (saved / name).unlink()
    (saved / name).with_name(".DS_Store").touch()
    assert "(it has .DS_Store)" in refused(check_saved_model, saved, True)


def test_other_directory_is_refused(saved, tmp_path):
    (tmp_path / "empty").mkdir()
    check_saved_model(tmp_path / "empty", False)
    (saved / "assets").rmdir()
    (saved / "assets").symlink_to(tmp_path / "empty")
    assert refused(check_saved_model, saved, True) == NOT_OURS
    (saved / "assets").unlink()
    (saved / "saved_model.pb").write_bytes(b"of another model")
    assert refused(check_saved_model, saved, True) == NOT_OURS


def test_input_in_a_saved_model_is_refused(saved, tmp_path):
    before = snapshot(saved)
    variables = saved / "variables"
    (tmp_path / "link").symlink_to(variables)
    (tmp_path / "hard").hardlink_to(variables / "variables.index")
    for given in (saved, variables, variables / "variables.index", tmp_path / "link", tmp_path / "hard"):
        assert "is an input and would be lost" in refused(check_saved_model, saved, True, [given])
    assert snapshot(saved) == before


# --- whole or not at all, under a lock ------------------------------------------------------------


DIRECTORY = Kind("a directory of tests", lambda path: "foreign" not in os.listdir(path))


def write(path, **settings):
    with writing(path, **settings) as (temporary,):
        temporary.write_text("new")


def write_directory(path, **settings):
    with writing(path, kind=DIRECTORY, **settings) as (temporary,):
        (temporary / "file").write_text("new")


def test_file_is_written_atomically(tmp_path):
    path = tmp_path / "file"
    mask = os.umask(0o027)
    write(path)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    with pytest.raises(KeyboardInterrupt), writing(path) as (temporary,):
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert snapshot(tmp_path) == {"file": b"new"}


def test_outputs_are_on_the_disk_before_they_have_their_names(tmp_path, monkeypatch):
    synced = []
    there = lambda: (tmp_path / "out").exists()  # noqa: E731
    monkeypatch.setattr(atomic, "sync", lambda path: synced.append((path.name, there())))
    write_directory(tmp_path / "out")
    assert synced == [("file", False), ("new", False), (tmp_path.name, True)]


def test_symlink_keeps_its_target(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "file").write_text("old")
    (tmp_path / "link").symlink_to("disk/file")
    write(tmp_path / "link")
    assert os.readlink(tmp_path / "link") == "disk/file"
    assert snapshot(tmp_path / "disk") == {"file": b"new"}


@pytest.mark.parametrize("there", [(), ("first",), ("second",), ("first", "second")])
@pytest.mark.parametrize("failing", ["first", "second"])
def test_several_files_roll_back(tmp_path, monkeypatch, there, failing):
    for name in there:
        (tmp_path / name).write_text("old")
    before = snapshot(tmp_path)

    def fail(rename, source, target):
        if Path(target).name == failing and Path(source).name == "new":
            raise OSError(errno.EBUSY, "busy")
        rename(source, target)

    for name in ("link", "replace"):
        monkeypatch.setattr(os, name, partial(fail, getattr(os, name)))
    with pytest.raises(OSError, match="busy"), writing(tmp_path / "first", tmp_path / "second"):
        pass
    assert snapshot(tmp_path) == before


def test_directory_is_replaced(tmp_path):
    write_directory(tmp_path / "one")
    (tmp_path / "one" / "other").write_text("old")
    (tmp_path / "link").symlink_to("one")
    write_directory(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert snapshot(tmp_path / "one") == {"file": b"new"}


@pytest.mark.parametrize("n_renames", [0, 1])
def test_directory_rolls_back(tmp_path, monkeypatch, n_renames):
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


# --- what appears meanwhile -----------------------------------------------------------------------------


@pytest.mark.parametrize("has_links", [True, False], ids=["links", "no links"])
def test_file_that_appeared_is_kept(tmp_path, monkeypatch, has_links):
    if not has_links:
        monkeypatch.setattr(os, "link", raising(PermissionError(errno.EPERM, "Operation not permitted")))
    (tmp_path / "out.new-1").write_text("mine")
    finished = []
    results = f"{tmp_path}/beside.new-1, {tmp_path}/out.new-2"
    with pytest.raises(
        DataError, match=f"^{tmp_path}/out: was made by another program .*; the result is in {results}$"
    ):
        paths = tmp_path / "beside", tmp_path / "out"
        with writing(*paths, overwrite=True, finish=lambda: finished.append(1)) as files:
            for file in files:
                file.write_text("new")
            (tmp_path / "out").write_text("another's")
    assert finished
    content = {"out": b"another's", "out.new-1": b"mine", "out.new-2": b"new", "beside.new-1": b"new"}
    assert snapshot(tmp_path) == content
    write(tmp_path / "new")
    assert snapshot(tmp_path) == content | {"new": b"new"}


def test_directory_that_appeared_is_kept(tmp_path):
    path = tmp_path / "out"
    path.mkdir()
    for number, overwrite in ((1, False), (2, True)):
        with pytest.raises(DataError, match=rf"^{path}: .*; the result is in {path}\.new-{number}$"):
            with writing(path, overwrite=overwrite, kind=DIRECTORY) as (temporary,):
                (temporary / "file").write_text("new")
                (path / "foreign").write_text("another's")
        assert snapshot(tmp_path / f"out.new-{number}") == {"file": b"new"}
        assert (path / "foreign").read_text() == "another's"
        (path / "foreign").rename(path / "ours")
        with pytest.raises(DataError, match="exists"), writing(path, overwrite=False, kind=DIRECTORY):
            raise AssertionError
    assert sorted(os.listdir(tmp_path)) == ["out", "out.new-1", "out.new-2"]


def test_removed_result_keeps_the_output(tmp_path):
    (tmp_path / "out").write_text("old")
    with writing(tmp_path / "out") as (temporary,):
        temporary.unlink()
    assert snapshot(tmp_path) == {"out": b"old"}


# --- what killed processes leave ------------------------------------------------------------------------

HEAD = "import os, sys; from pathlib import Path; from bilm.io.atomic import *\n"


def killed(code, *arguments):
    """Run code that ends its own process with SIGKILL."""
    tail = "\nos.kill(os.getpid(), 9)"
    assert python("-c", HEAD + code + tail, *arguments).returncode == -9


HALF_A_FILE = "context = writing(Path(sys.argv[1])); context.__enter__()[0].write_text('half')"
BETWEEN_RENAMES = """
def replace(source, target): os.kill(os.getpid(), 9)
os.replace = replace
with writing(Path(sys.argv[1]), kind=outputs.Kind("any", lambda path: True)):
    pass
"""


no_locks = raising(OSError(errno.ENOLCK, "No locks available"))


@pytest.mark.parametrize("has_locks", [True, False])
def test_next_writer_removes_remains(tmp_path, monkeypatch, has_locks):
    path = tmp_path / "a[b].hdf5"
    killed(HALF_A_FILE, path)
    assert sorted(snapshot(tmp_path)) == [".a[b].hdf5.tmp", ".a[b].hdf5.tmp/lock", ".a[b].hdf5.tmp/new"]
    if not has_locks:
        monkeypatch.setattr(fcntl, "flock", no_locks)
    write(path)
    assert snapshot(tmp_path) == {path.name: b"new"}


def test_next_writer_restores_a_directory(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "file").write_text("old")
    killed(BETWEEN_RENAMES, tmp_path / "one")
    assert not (tmp_path / "one").exists()
    with pytest.raises(ValueError, match="fails too"):
        with writing(tmp_path / "one", kind=DIRECTORY):
            raise ValueError("fails too")
    assert snapshot(tmp_path) == {"one": b"(directory)", "one/file": b"old"}


HELD = f"is being written by host .*, process {os.getpid()}; wait for it to finish, or give another name"


@pytest.mark.parametrize("kind", [FILE, DIRECTORY], ids=["file", "directory"])
def test_second_writer_is_refused(tmp_path, kind):
    with writing(tmp_path / "out", kind=kind) as (first,):
        if kind is FILE:
            first.write_text("first")
        with pytest.raises(DataError, match=f"^{tmp_path}/out: {HELD}$"):
            with writing(tmp_path / "out", kind=kind):
                raise AssertionError
        assert first.exists()
    assert list(snapshot(tmp_path)) == ["out"]


@pytest.mark.parametrize("name", ["a file", "a link", "a directory with other files"])
def test_foreign_staging_is_refused(tmp_path, name):
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_other_users_staging_is_refused(tmp_path):
    place = tmp_path / ".file.tmp"
    place.mkdir()
    (place / "lock").touch()
    os.chown(place, 12345, -1)
    with pytest.raises(DataError, match=f"^{place}: belongs to another user, who may be writing file; "):
        write(tmp_path / "file")
    assert snapshot(tmp_path) == {".file.tmp": b"(directory)", ".file.tmp/lock": b""}


def test_staging_is_taken_over_where_files_have_another_owner(tmp_path, monkeypatch):
    """As of root on a network file system that makes root nobody."""
    (tmp_path / ".file.tmp").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    write(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_own_staging_is_taken_over_without_another_file(tmp_path, monkeypatch):
    (tmp_path / ".file.tmp").mkdir(mode=0o700)
    monkeypatch.delattr(atomic, "_owner_in")
    write(tmp_path / "file")


def test_temporary_files_are_private(tmp_path):
    with writing(tmp_path / "file"):
        assert stat.S_IMODE((tmp_path / ".file.tmp").stat().st_mode) == 0o700


def test_removed_staging_is_made_again(tmp_path, monkeypatch):
    place, lstat = tmp_path / ".file.tmp", Path.lstat
    place.mkdir()

    def removed(path):
        if path == place and path.exists():
            path.rmdir()
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", removed)
    write(tmp_path / "file")
    assert snapshot(tmp_path) == {"file": b"new"}


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

    with pytest.MonkeyPatch.context() as patch, StopRequests(), suppress(KeyboardInterrupt):
        for name in ("mkdir", "link", "rename", "replace", "rmdir", "unlink"):
            patch.setattr(os, name, partial(tell, getattr(os, name)))
        with writing(*paths) as files:
            for file in files:
                file.write_text("new")
    return is_told


@pytest.mark.parametrize("is_there", [True, False], ids=["replaced", "new"])
def test_signal_leaves_old_or_new_files(tmp_path, is_there):
    """And no temporary directories."""
    paths = [tmp_path / "first", tmp_path / "second"]
    old, new = ({path.name: text for path in paths} for text in (b"old", b"new"))
    old = old if is_there else {}
    for moment in range(100):
        for path in paths:
            path.write_text("old") if is_there else path.unlink(missing_ok=True)
        if not was_told_to_end(moment, paths):
            break
        assert snapshot(tmp_path) in (old, new), moment
    assert 10 < moment < 99 and snapshot(tmp_path) == new


# --- locks ----------------------------------------------------------------------------------------------


def test_second_lock_is_refused(tmp_path):
    with FileLock(tmp_path / "lock"):
        with pytest.raises(HeldError, match=f"host .*, process {os.getpid()}$"):
            FileLock(tmp_path / "lock")
    assert not (tmp_path / "lock").exists()
    killed("lock = FileLock(Path(sys.argv[1]))", tmp_path / "lock")
    assert (tmp_path / "lock").exists()
    with FileLock(tmp_path / "lock") as lock:
        assert lock.is_supported


def test_replaced_lock_file_is_kept(tmp_path):
    with FileLock(tmp_path / "lock"):
        (tmp_path / "lock").unlink()
        (tmp_path / "lock").write_text("another's")
    assert (tmp_path / "lock").read_text() == "another's"


def test_lock_that_was_just_released_is_made_again(tmp_path, monkeypatch):
    """Between the opening of the file and its lock, the holder removed it."""
    path, flock = tmp_path / "lock", fcntl.flock

    def remove_first(handle, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        path.unlink()
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", remove_first)
    with FileLock(path), pytest.raises(HeldError):
        FileLock(path)


def test_linked_lock_file_is_refused(tmp_path, text):
    (tmp_path / "lock").symlink_to(text)
    with pytest.raises(OSError, match="symbolic links"):
        FileLock(tmp_path / "lock")
    assert text.read_text() == "mine"


def test_missing_locks_are_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert not FileLock(tmp_path / "lock").is_supported
