"""Outputs that are written whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from bilm.errors import DataError
from bilm.io import atomic
from bilm.io.atomic import replacing, replacing_directory, replacing_together
from tests.helpers import snapshot


def test_the_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "file"
    with replacing(path) as temporary:
        assert temporary.parent.parent == tmp_path
        temporary.write_text("new")
        assert not path.exists()
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_what_was_there(tmp_path, failure):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(failure):
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise failure
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_file_is_left_alone(tmp_path):
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("directory", "pipe"):
        with pytest.raises(DataError, match=f"{name}: is a {name}; give the name of a file to write"):
            with replacing(tmp_path / name):
                pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["directory", "pipe"]


def test_a_missing_directory(tmp_path):
    with pytest.raises(FileNotFoundError):
        with replacing(tmp_path / "none" / "file"):
            pass


def test_permissions_are_those_of_any_new_file(tmp_path):
    mask = os.umask(0o027)
    try:
        with replacing(tmp_path / "file") as temporary:
            temporary.write_text("new")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_symlink_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "file").write_text("old")
    (tmp_path / "link").symlink_to("disk/file")
    with replacing(tmp_path / "link") as temporary:
        assert temporary.parent.parent == tmp_path / "disk"
        temporary.write_text("new")
    assert os.readlink(tmp_path / "link") == "disk/file"
    assert snapshot(tmp_path / "disk") == {"file": b"new"}


def test_a_symlink_that_leads_nowhere_is_an_error(tmp_path):
    (tmp_path / "link").symlink_to("none")
    with pytest.raises(DataError, match="link: is a symlink to none, which does not exist"):
        with replacing(tmp_path / "link"):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["link"]


# --- several files --------------------------------------------------------------------------------------


def write_both(first: Path, second: Path) -> None:
    with replacing_together(first, second) as temporaries:
        for temporary in temporaries:
            temporary.write_text("new")


def test_files_that_belong_together(tmp_path):
    (tmp_path / "first").write_text("old")
    write_both(tmp_path / "first", tmp_path / "second")
    assert snapshot(tmp_path) == {"first": b"new", "second": b"new"}


@pytest.mark.parametrize("there", [(), ("first",), ("second",), ("first", "second")])
@pytest.mark.parametrize("failing", ["first", "second"])
@pytest.mark.parametrize("failure", [OSError(errno.EBUSY, "busy"), KeyboardInterrupt()])
def test_all_of_them_take_their_places_or_none(tmp_path, monkeypatch, there, failing, failure):
    for name in there:
        (tmp_path / name).write_text("old")
    before = snapshot(tmp_path)

    def fail(source, target, replace=os.replace):
        if Path(target).name == failing and Path(source).name == "new":
            raise failure
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(type(failure)):
        write_both(tmp_path / "first", tmp_path / "second")
    assert snapshot(tmp_path) == before


def test_what_fails_when_all_are_there_does_not_take_one_back(tmp_path, monkeypatch):
    def fail(path):
        if path == tmp_path:
            raise KeyboardInterrupt

    monkeypatch.setattr(atomic, "sync", fail)
    with pytest.raises(KeyboardInterrupt):
        write_both(tmp_path / "first", tmp_path / "second")
    assert snapshot(tmp_path) == {"first": b"new", "second": b"new"}


# --- directories ----------------------------------------------------------------------------------------


def write_directory(path: Path) -> None:
    with replacing_directory(path) as temporary:
        temporary.mkdir()
        (temporary / "file").write_text("new")


def test_a_directory(tmp_path):
    write_directory(tmp_path / "one")
    assert snapshot(tmp_path) == {"one": b"(directory)", "one/file": b"new"}
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


def test_a_file_where_a_directory_is_wanted(tmp_path):
    (tmp_path / "one").write_text("mine")
    with pytest.raises(DataError, match="one: is a file; give the name of a directory to write"):
        write_directory(tmp_path / "one")
