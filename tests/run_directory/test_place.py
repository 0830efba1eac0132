"""The place of a run: one process that writes, and room only where nothing is lost."""

import fcntl
import os

import pytest

from bilm.errors import CheckpointError
from bilm.run_directory.files import MARK_FILE, require_room, writing
from bilm.vocabulary.vocabulary import Vocabulary
from tests.helpers import snapshot
from tests.io.test_atomic import no_locks

WANTED = Vocabulary.from_words(["a"])


def test_one_process_writes(tmp_path):
    path = tmp_path / "deep" / "run"
    with writing(path):
        with pytest.raises(CheckpointError) as caught, writing(path):
            pass
        assert f"{path}: host " in str(caught.value)
        assert f"process {os.getpid()} is training in it" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_was_there_or_is_not_empty_stays(tmp_path):
    with writing(tmp_path / "a" / "b"):
        (tmp_path / "a" / "notes.txt").touch()
    with writing(tmp_path / "a"):
        pass
    assert sorted(snapshot(tmp_path)) == ["a", "a/notes.txt"]


def test_a_file_system_without_locks_is_told_of(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(fcntl, "flock", no_locks)
    with writing(tmp_path / "run"):
        assert f"{tmp_path / 'run'}: this file system has no locks" in caplog.text


@pytest.mark.parametrize("name", ["options.json", "vocab.txt", "run.toml", "events.out.tfevents.1.bilm"])
def test_files_of_others_are_in_the_way(tmp_path, name):
    (tmp_path / name).write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(
            CheckpointError, match=f"{name}: is an input of this command, or was not written by the"
        ):
            require_room(tmp_path, overwrite, WANTED)


def test_other_files_are_not(tmp_path):
    for name in ("notes.txt", "events.out.tfevents.1.host.v2", "model.ckpt-x", "vocab.txt.gz"):
        (tmp_path / name).touch()
    assert require_room(tmp_path, False, WANTED) == set()
    (tmp_path / "vocab.txt").write_text("a\n")
    assert require_room(tmp_path, False, WANTED) == {"vocab.txt"}


def test_an_input_that_lies_in_the_run_is_not_replaced_by_whatever_name_it_is_given(run_copy, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(run_copy / "options.json")
    with pytest.raises(CheckpointError, match="options.json: is an input of this command, or"):
        require_room(run_copy, True, WANTED, [link])
    same = Vocabulary(run_copy / "vocab.txt")
    os.link(run_copy / "vocab.txt", tmp_path / "hard")
    assert require_room(run_copy, True, same, [tmp_path / "hard"]) == {"vocab.txt"}
    assert require_room(run_copy, True, same) == set()


def test_a_run_that_has_no_checkpoint_may_be_replaced(run_copy):
    (run_copy / "checkpoint").unlink()
    with pytest.raises(CheckpointError, match="already holds a run"):
        require_room(run_copy, False, WANTED)
    for file in run_copy.glob("model.ckpt*"):
        file.unlink()
    require_room(run_copy, False, WANTED)


def test_a_damaged_mark_is_a_mark_and_spares_the_vocabulary(run_copy):
    (run_copy / MARK_FILE).write_text("[]")
    with pytest.raises(CheckpointError, match="vocab.txt: is an input of this command, or was not written"):
        require_room(run_copy, True, WANTED)
    same = Vocabulary(run_copy / "vocab.txt")
    assert require_room(run_copy, True, same) == {"vocab.txt"}


def test_a_run_without_its_mark_is_not_replaced(run_copy):
    (run_copy / MARK_FILE).unlink()
    with pytest.raises(CheckpointError, match="already holds a run; continue it with .* or remove it"):
        require_room(run_copy, True, WANTED)
