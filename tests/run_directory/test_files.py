"""The files of a run: what it wrote is known, and nothing else is replaced or removed."""

from __future__ import annotations

import json
import shutil

import pytest

from bilm.errors import CheckpointError
from bilm.run_directory.directory import files_of
from bilm.run_directory.files import RunFiles
from tests.helpers import GOLDEN, call_line, snapshot, train_line, write_lines


@pytest.fixture
def files(tmp_path):
    files = RunFiles(tmp_path)
    files.write()
    return files


def test_what_was_claimed_is_known_to_the_next_process(files):
    files.claim("metrics.jsonl")
    files.claim("model.ckpt-10")
    files.claim("options.json", b"{}")
    for name in ("metrics.jsonl", "model.ckpt-10.index", "model.ckpt-10.data-00000-of-00001", "options.json"):
        (files.path / name).write_text("{}")
    (files.path / "model.ckpt-10.notes").write_text("mine")
    (files.path / "notes.txt").write_text("mine")
    again = RunFiles(files.path)
    assert again.owned() == ["metrics.jsonl", "model.ckpt-10", "options.json"] and again.strangers() == []
    again.remove_all()
    assert {file.name for file in files.path.iterdir()} == {"model.ckpt-10.notes", "notes.txt"}


def test_what_is_there_before_is_not_claimed(files):
    (files.path / "metrics.jsonl").write_text("mine")
    (files.path / "model.ckpt-7.data-00000-of-00001").write_text("mine")
    for name in ("metrics.jsonl", "model.ckpt-7"):
        with pytest.raises(CheckpointError, match=f"{files.path / name}.*: was not written by this run"):
            files.claim(name)
        files.remove(name)
    assert len(files.strangers()) == 2 and not files.has_checkpoint()


def test_what_was_changed_is_no_longer_the_runs(files):
    files.claim("vocab.txt", b"a\n")
    (files.path / "vocab.txt").write_text("a\n")
    assert files.owns("vocab.txt")
    (files.path / "vocab.txt").write_text("mine\n")
    assert RunFiles(files.path).strangers() == [files.path / "vocab.txt"]
    files.remove_all()
    assert (files.path / "vocab.txt").read_text() == "mine\n"


def test_tensorboard_files_are_known_by_their_ending(files):
    (files.path / "events.out.tfevents.1.host.2.0.bilm").touch()
    (files.path / "events.out.tfevents.1.host.2.0.v2").touch()
    assert files.owned() == ["events.out.tfevents.1.host.2.0.bilm"] and files.strangers() == []


@pytest.mark.parametrize(
    "text", ["", "metr", "../secret\n", "/etc/passwd\n", "notes.txt\n", "\0\xff\n", "model.ckpt-1/../x\n"]
)
def test_a_damaged_list_names_nothing_else(files, text):
    (files.path / "notes.txt").write_text("mine")
    (files.path.parent / "secret").write_text("mine")
    (files.path / "bilm-files.txt").write_text(text)
    found = RunFiles(files.path)
    assert found.owned() == []
    found.remove_all()
    assert (files.path / "notes.txt").exists() and (files.path.parent / "secret").exists()


def test_an_unfinished_line_does_not_spoil_the_next(files):
    with (files.path / "bilm-files.txt").open("a") as file:
        file.write("metr")
    again = RunFiles(files.path)
    again.write()
    again.claim("calls.jsonl")
    (files.path / "calls.jsonl").touch()
    assert RunFiles(files.path).owned() == ["calls.jsonl"]


# --- runs without a list ------------------------------------------------------------------------------


def test_a_run_of_bilm_tf_is_known_by_its_state_file(tmp_path):
    path = shutil.copytree(GOLDEN / "char" / "final", tmp_path / "run")
    write_lines(path / "metrics.jsonl", {"mine": 1})
    for name in ("vocab.txt", "model.ckpt-99.index", "events.out.tfevents.1.host"):
        (path / name).write_text("mine\n")
    mine = snapshot(path)
    files = files_of(path)
    assert files.owned() == ["checkpoint", "model.ckpt-12", "options.json"]
    assert {file.name for file in files.strangers()} == {"metrics.jsonl", "vocab.txt", "model.ckpt-99.index"}
    files.remove_all()
    left = snapshot(path)
    assert left.items() <= mine.items() and not left.keys() & {"checkpoint", "options.json"}


def test_a_run_of_an_older_version_is_known_by_what_is_in_its_files(run_copy):
    names = {file.name for file in run_copy.iterdir()}
    (run_copy / "bilm-files.txt").unlink()
    (run_copy / "checkpoint").unlink()  # its checkpoint has the state that only we write
    owned = files_of(run_copy).owned()
    events = next(name for name in names if name.startswith("events"))
    assert set(owned) == {
        *("options.json", "vocab.txt", "vocab.txt.sha256", "calls.jsonl", "metrics.jsonl", "model.ckpt-2"),
        events,
    }


def test_options_alone_are_the_users(tmp_path, run_copy):
    (run_copy / "bilm-files.txt").unlink()
    for name in ("options.json", "vocab.txt", "metrics.jsonl"):
        shutil.copy(run_copy / name, tmp_path / name)
    assert files_of(tmp_path).owned() == ["metrics.jsonl"]
    write_lines(tmp_path / "calls.jsonl", call_line())  # of other options
    (tmp_path / "metrics.jsonl").write_text("")
    assert files_of(tmp_path).owned() == ["calls.jsonl", "metrics.jsonl"]
    write_lines(tmp_path / "metrics.jsonl", train_line(1), "mine")
    options = json.loads((run_copy / "options.json").read_text())
    write_lines(tmp_path / "calls.jsonl", call_line(options=options))
    assert files_of(tmp_path).owned() == ["calls.jsonl", "options.json"]
