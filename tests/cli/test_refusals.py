"""What the user or the system does not allow: one line, status 1; a defect keeps its traceback."""

import os
import signal
import sys

import pytest

from tests.helpers import (
    TRAIN,
    VOCAB,
    call_line,
    invoke,
    refuse,
    run,
    small_options,
    smallest_options,
    snapshot,
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
        (ImportError("Traceback:\n  File\nImportError: a.so: cannot map\n\nFailed"), "a.so: cannot map; is"),
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


@pytest.mark.parametrize("error", [KeyError("x"), ImportError("no", name="bilm.x")])
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


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("first", "checkpoint 'first': must be latest, best or a step"),
        ("99", "model.ckpt-99.index: no such checkpoint"),
        ("best", "no best checkpoint: no heldout text was scored"),
        pytest.param("9" * 5000, "", id="many digits"),
        pytest.param("\x1b[2J", "", id="control characters"),
    ],
)
def test_checkpoints_that_are_not_there(trained, which, expected):
    message = refuse("test", "--test-prefix", TRAIN, "--save-dir", trained.path, "--checkpoint", which)
    assert expected in message and len(message) < 200 and "\x1b" not in message


def test_what_a_file_says_gives_no_orders_to_the_terminal(tmp_path, run_copy):
    orders = "\x1b]0;owned\x07"
    options = write_json(tmp_path / "o.json", small_options() | {orders: 1, "k" * 300_000: 2})
    message = refuse(*train_command(tmp_path / "run", options))
    assert r"'\x1b]0;owned\x07': unrecognised option" in message and len(message) < 500
    text = tmp_path / "text.txt"
    text.write_text(f"the {orders}cat\x9b sat\n")
    output = run("score", text, "--save-dir", run_copy)
    assert "\x1b" not in output and "\x9b" not in output
    write_lines(run_copy / "calls.jsonl", call_line(command=f"bilm {orders}"))
    assert r"last command: bilm \x1b]0;owned" in run("info", run_copy)


def test_a_signal_while_the_text_is_counted(tmp_path, monkeypatch):
    """The warning of a cluster: the same status as when there is something to save."""
    before = signal.getsignal(signal.SIGUSR1)

    def count(*_):
        os.kill(os.getpid(), signal.SIGUSR1)
        sys.exit("the signal was not heeded")

    monkeypatch.setattr("bilm.data.corpus.count_corpus", count)
    result = invoke(*train_command(tmp_path / "run", write_json(tmp_path / "o.json", smallest_options())))
    assert result.exit_code == 75, result.output
    assert "stopped before the first step: received SIGUSR1; nothing to save" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["o.json"]
    assert signal.getsignal(signal.SIGUSR1) is before


def test_nothing_left_to_do(run_copy, tmp_path):
    """A call that is resumed at its end adds nothing to the record; its rehearsal says so."""
    options = write_json(tmp_path / "options.json", smallest_options())
    train = train_command(run_copy, options, "--seed", 7, "--resume")
    before = snapshot(run_copy)
    assert "nothing left to do" in run(*train, "--max-steps", 2)
    assert snapshot(run_copy) == before
    assert run(*train, "--max-steps", 2, "--dry-run").endswith("nothing left to do\n")
    assert "for the remaining 7 steps" in run(*train, "--max-steps", 9, "--dry-run")
