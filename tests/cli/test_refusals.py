"""What the user or the system does not allow: one line, status 1; a defect keeps its traceback."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

from tests.helpers import (
    TRAIN,
    VOCAB,
    invoke,
    refuse,
    run,
    small_options,
    smallest_options,
    train_command,
    write_json,
    write_lines,
)

BUILD = ("vocab", "build", "--train-prefix", TRAIN, "--outfile")


def failing(monkeypatch, error):
    """Have the counting of words fail."""

    def fail(*_):
        raise error

    monkeypatch.setattr("bilm.vocabulary.file.choose_words", fail)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "tight/x"), "tight/x: Permission denied"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (MemoryError(), "not enough memory; a smaller batch"),
        (ModuleNotFoundError("No module named 'h5py'", name="h5py"), "No module named 'h5py'; is everything"),
        (
            ImportError("Traceback:\n  File\nImportError: a.so: cannot map\n\n\nFailed"),
            "a.so: cannot map; is everything installed",
        ),
        (UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates not allowed"), r"'a\udcff' is not UTF-8"),
    ],
)
def test_what_the_system_refuses_is_one_line(error, message, monkeypatch, tmp_path):
    failing(monkeypatch, error)
    found = refuse(*BUILD, tmp_path / "v.txt").replace("': is", "' is")
    assert found.startswith(message) and "\n" not in found
    monkeypatch.setenv("BILM_TRACEBACK", "1")
    with pytest.raises(type(error)):
        invoke(*BUILD, tmp_path / "v.txt")


@pytest.mark.parametrize(
    "error", [KeyError("x"), OSError(9, "Bad file descriptor"), ImportError("no", name="bilm.x")]
)
def test_a_defect_keeps_its_traceback(error, monkeypatch, tmp_path):
    failing(monkeypatch, error)
    with pytest.raises(type(error)):
        invoke(*BUILD, tmp_path / "v.txt")


def test_a_current_directory_that_was_removed(monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    message = refuse("train", "--train-prefix", TRAIN, "--vocab-file", VOCAB, "--save-dir", "run")
    assert message == "the current directory no longer exists; change to another one"


def test_names_that_tensorflow_does_not_take():
    message = refuse(
        "train", "--train-prefix", TRAIN, "--vocab-file", VOCAB, "--save-dir", "bad\udcff", status=2
    )
    assert r"'bad\udcff' is not UTF-8" in message


@pytest.mark.parametrize("which", ["first", "99", "best", "", "9" * 5000, "\x1b[2J"])
def test_checkpoints_that_are_not_there(trained, which, tmp_path):
    """The same short message from every command that takes one."""
    messages = {
        refuse(*command, "--save-dir", trained.path, "--checkpoint", which)
        for command in (
            ("test", "--test-prefix", TRAIN),
            ("embed", TRAIN, tmp_path / "o.hdf5"),
            ("restart", "--train-prefix", TRAIN),
        )
    }
    assert len(messages) == 1 and len(message := messages.pop()) < 200
    expected = {
        "first": "checkpoint 'first': must be latest, best or the number of a step",
        "99": "no such checkpoint; there are those of steps: 2",
        "best": "no best checkpoint: the run was trained without heldout text",
    }
    assert expected.get(which, "") in message


def test_a_word_of_three_megabytes_makes_a_short_message(tmp_path):
    word = "x" * 3_000_000
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text(f"<S>\n</S>\n<UNK>\n{word}\n{word}\n")
    message = refuse(
        "train", "--train-prefix", TRAIN, "--vocab-file", vocabulary, "--save-dir", tmp_path / "run"
    )
    assert message.startswith(f"{vocabulary}: line 5: 'xxx") and len(message) < 300


def test_what_a_file_says_gives_no_orders_to_the_terminal(tmp_path, trained, run_copy):
    orders = "\x1b]0;owned\x07"
    options = write_json(tmp_path / "o.json", small_options() | {orders: 1, "k" * 300_000: 2})
    message = refuse(*train_command(tmp_path / "run", options))
    assert r"'\x1b]0;owned\x07': unrecognised option" in message and len(message) < 500
    text = tmp_path / "text.txt"
    text.write_text(f"the {orders}cat\x9b sat\n")
    for form in ("tsv", "jsonl"):
        output = run("score", text, "--save-dir", trained.path, "--format", form)
        assert "\x1b" not in output and "\x9b" not in output
        if form == "jsonl":
            assert json.loads(output)["sentence"] == f"the {orders}cat\x9b sat"
    call = {"command": f"bilm {orders}", "step": 0, "seed": 7, "time": 0.0, "versions": {}, "options": {}}
    write_lines(run_copy / "calls.jsonl", call)
    assert r"last command: bilm \x1b]0;owned" in run("info", run_copy)


def test_a_signal_while_the_text_is_counted(tmp_path, monkeypatch):
    """The warning of a cluster: the same status as when there is something to save."""
    before = signal.getsignal(signal.SIGUSR1)

    def count(*_):
        os.kill(os.getpid(), signal.SIGUSR1)
        sys.exit("the signal was not heeded")

    monkeypatch.setattr("bilm.data.corpus.count_corpus", count)
    result = invoke(
        *("train", "--train-prefix", TRAIN, "--vocab-file", VOCAB, "--save-dir", tmp_path / "run"),
        *("--preset", "tiny"),
    )
    assert result.exit_code == 75, result.output
    assert "stopped before the first step: received SIGUSR1; nothing to save" in result.output
    assert list(tmp_path.iterdir()) == [] and signal.getsignal(signal.SIGUSR1) is before


def test_nothing_left_to_do(tmp_path):
    """A call that is resumed at its end adds nothing to the record; its rehearsal says so."""
    options = write_json(tmp_path / "options.json", smallest_options())
    train = train_command(tmp_path / "run", options, "--seed", 7, "--resume")
    run(*train, "--max-steps", 2)
    calls = (tmp_path / "run" / "calls.jsonl").read_bytes()
    assert "nothing left to do" in run(*train, "--max-steps", 2)
    assert (tmp_path / "run" / "calls.jsonl").read_bytes() == calls
    assert run(*train, "--max-steps", 2, "--dry-run").endswith("nothing left to do\n")
    assert "for the remaining 7 steps" in run(*train, "--max-steps", 9, "--dry-run")
