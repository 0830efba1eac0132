"""The directory of an unfinished file of embeddings: one process at a time, and what is not its own stays."""

from __future__ import annotations

import errno
import os

import pytest

from bilm.embedding.hdf5_output import (
    check_embeddings,
    part_file,
    parts_directory,
    parts_held,
    remove_parts,
    unfinished_part,
)
from bilm.errors import DataError
from bilm.io.locks import FileLock
from tests.helpers import snapshot


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.hdf5"


def test_nothing_is_left_of_it(out, tmp_path):
    with parts_held(out):
        assert (tmp_path / "out.hdf5.parts").is_dir()
    assert list(tmp_path.iterdir()) == []


def test_a_second_process_is_refused(out):
    with parts_held(out):
        for resume in (False, True):
            with pytest.raises(
                DataError, match=f"out.hdf5: is being written by host .*, process {os.getpid()};"
            ):
                check_embeddings(out, not resume, resume)
        with pytest.raises(DataError, match="is being written by host"):
            with parts_held(out):
                pass
    check_embeddings(out, False, False)


def test_what_a_dead_process_left(out):
    parts_directory(out).mkdir()
    (parts_directory(out) / "lock").write_text("host gone, process 1\n")
    check_embeddings(out, False, False)
    part_file(out, 0).touch()
    (parts_directory(out) / "part-000000000007.hdf5.abcdefgh.tmp").touch()
    with pytest.raises(DataError, match="holds an unfinished file; resume=True finishes it"):
        check_embeddings(out, False, False)
    with parts_held(out):
        pass
    assert os.listdir(parts_directory(out)) == [part_file(out, 0).name]


def test_without_locks_nothing_is_taken_for_that_of_a_dead_process(out, monkeypatch, caplog):
    def refuse(handle, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("bilm.io.locks.fcntl.flock", refuse)
    with parts_held(out), parts_held(out):
        unfinished = unfinished_part(out, 0)
        with parts_held(out):
            assert unfinished.exists()
    assert "out.hdf5: this file system has no locks" in caplog.text


def test_files_of_the_users_stay(out):
    foreign = {name: b"mine" for name in ("notes.txt", "part-1.hdf5", "mine.tmp", "part-1.hdf5.tmp")}
    parts_directory(out).mkdir()
    for name, data in foreign.items():
        (parts_directory(out) / name).write_bytes(data)
    check_embeddings(out, False, False)
    with parts_held(out):
        part_file(out, 0).touch()
        remove_parts(out)
    assert snapshot(parts_directory(out)) == foreign


def test_a_link_has_its_parts_beside_its_target(out, tmp_path):
    (tmp_path / "disk").mkdir()
    out.touch()
    (tmp_path / "disk" / "link").symlink_to(out)
    assert parts_directory(tmp_path / "disk" / "link") == parts_directory(out)


def test_a_file_in_the_way(out):
    parts_directory(out).touch()
    with pytest.raises(DataError, match="out.hdf5.parts: is in the way of the directory"):
        check_embeddings(out, True, False)


def test_a_directory_in_which_no_lock_can_be(out, monkeypatch):
    def fail(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(FileLock, "__init__", fail)
    with pytest.raises(DataError, match="out.hdf5: cannot be written: Permission denied"):
        with parts_held(out):
            pass
    assert not parts_directory(out).exists()
