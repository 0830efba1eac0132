"""Bad input, and what the system refuses: one line, nothing left behind; a defect keeps its traceback."""

import gc
import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.distributed import bilm_tf_run
from tests.helpers import GOLDEN, HELDOUT, TRAIN, VOCAB, invoke, raising, refuse, run, snapshot, train_command
from tests.records import call_line, write_lines

BUILD = ("vocab", "build", "--train-prefix", TRAIN, "--outfile")


def failing(monkeypatch, error):
    """Have the report of a build fail, after its file is written."""
    monkeypatch.setattr("bilm.data.corpus.describe_blank_lines", raising(error))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "tight/x"), "tight/x: Permission denied"),
        (OSError(5, "Input/output error"), "Input/output error"),
        (MemoryError(), "not enough memory: train with a smaller batch"),
        (UnicodeEncodeError("utf-8", "a\udcff", 1, 2, "surrogates not allowed"), r"'a\udcff' is not UTF-8"),
    ],
)
def test_system_error_is_one_line(error, message, monkeypatch, tmp_path):
    failing(monkeypatch, error)
    found = refuse(*BUILD, tmp_path / "v.txt").replace("': is", "' is")
    assert found.startswith(message) and "\n" not in found
    monkeypatch.setenv("BILM_TRACEBACK", "1")
    with pytest.raises(type(error)):
        invoke(*BUILD, tmp_path / "other.txt")


def test_defect_keeps_its_traceback(monkeypatch, tmp_path):
    failing(monkeypatch, KeyError("x"))
    with pytest.raises(KeyError):
        invoke(*BUILD, tmp_path / "v.txt")


def test_removed_directory_is_told(monkeypatch, tmp_path):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    message = refuse("train", "--train-prefix", TRAIN, "--vocab-file", VOCAB, "--save-dir", "run")
    assert message == "the current directory no longer exists; change to another one"


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        ("first", "--checkpoint is 'first'; give latest, best, a step or the name of a checkpoint"),
        ("99", "model.ckpt-99: no such checkpoint; there are those of the steps 2"),
        ("best", "no best checkpoint: no heldout text was scored"),
        pytest.param("9" * 5000, "", id="many digits"),
        pytest.param("\x1b[2J", "", id="control characters"),
    ],
)
def test_missing_checkpoint_is_refused(trained, which, expected):
    message = refuse("test", "--test-prefix", TRAIN, "--save-dir", trained, "--checkpoint", which)
    assert expected in message and len(message) < 200 and "\x1b" not in message


def test_file_content_is_escaped(tmp_path, run_copy, smallest_file):
    orders = "\x1b]0;owned\x07"
    options = smallest_file(**{orders: 1, "k" * 300_000: 2})
    message = refuse(*train_command(tmp_path / "run", options))
    assert r"'\x1b]0;owned\x07': unrecognised option" in message and len(message) < 500
    text = tmp_path / "text.txt"
    text.write_text(f"the {orders}cat\x9b sat\n")
    output = run("score", text, "--save-dir", run_copy)
    assert "\x1b" not in output and "\x9b" not in output
    write_lines(run_copy / "calls.jsonl", call_line(command=f"bilm {orders}"))
    assert r"last command: bilm \x1b]0;owned" in run("info", run_copy)


@pytest.mark.parametrize(
    "name", ["checkpoint", "metrics.jsonl", "calls.jsonl", "vocab.txt", "vocab.txt.sha256"]
)
def test_pipe_in_a_run_is_refused(run_copy, smallest_file, name):
    file = run_copy / name
    file.unlink()
    os.mkfifo(file)
    restart = ("restart", "--train-prefix", TRAIN, "--save-dir", run_copy, "--max-steps", 1)
    commands = [("info", run_copy), restart, train_command(run_copy, smallest_file(), "--resume")]
    for command in [*commands, *([("plot", run_copy)] if name == "metrics.jsonl" else [])]:
        signal.alarm(60)  # ends the process if it waits
        try:
            message = refuse(*command)
        finally:
            signal.alarm(0)
        assert message == f"{file}: is a device, a pipe or a socket, expected a file"


@pytest.mark.parametrize("again", [(), pytest.param(("--resume",), marks=pytest.mark.slow)])
def test_restart_refuses_links_in_run(again, run_copy, tmp_path):
    """Of a download, say, whose files would change."""
    command = ("restart", "--train-prefix", TRAIN, "--save-dir", run_copy, "--max-steps", 2)
    if again:
        run(*command)
    file = run_copy / "metrics.jsonl"
    file.rename(tmp_path / "kept")
    file.symlink_to(tmp_path / "kept")
    message = refuse(*command, *again)
    assert message == f"{file}: is a link, whose target would change; copy the target here"


def test_signal_before_the_first_step_exits_75(tmp_path, monkeypatch, smallest_file):
    """The warning of a cluster: the same status as when there is something to save."""
    before = signal.getsignal(signal.SIGUSR1)

    def count(*_):
        os.kill(os.getpid(), signal.SIGUSR1)
        sys.exit("the signal was not heeded")

    monkeypatch.setattr("bilm.data.corpus.count_corpus", count)
    result = invoke(*train_command(tmp_path / "run", smallest_file()))
    assert result.exit_code == 75, result.output
    assert "stopped before the first step: received SIGUSR1; nothing to save" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["smallest.json"]
    assert signal.getsignal(signal.SIGUSR1) is before


@pytest.mark.slow
def test_finished_run_is_unchanged(run_copy, smallest_file):
    """A call that is resumed at its end adds nothing to the record; its rehearsal says so."""
    train = train_command(run_copy, smallest_file(), "--seed", 7, "--resume")
    before = snapshot(run_copy)
    assert "nothing left to do" in run(*train, "--max-steps", 2)
    assert snapshot(run_copy) == before
    assert run(*train, "--max-steps", 2, "--dry-run").endswith(
        "nothing left to do; `bilm restart` trains further\n"
    )
    assert "for the remaining 7 steps" in run(*train, "--max-steps", 9, "--dry-run")


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message", "status"),
    [
        pytest.param(("--preset", "tiny"), "--preset and --options exclude each other", 2, id="preset"),
        pytest.param(("--jit", "--no-xla"), "--jit needs XLA", 1, id="no-xla"),
        pytest.param(
            ("--save-dir", VOCAB), "vocab.txt: is not a directory; give the name of one", 1, id="file"
        ),
        pytest.param(("--set", "n_tokens_vocab=80"), "has 73 words, but the options say ", 1, id="size"),
        pytest.param(("--set", "max_steps=5"), "'max_steps': unrecognised option", 1, id="argument"),
        pytest.param(("--set", "recipe=auto"), "give the argument --recipe instead", 2, id="recipe"),
        pytest.param(("--n-train-tokens", "5"), "an epoch of 5 tokens is less than one batch", 1, id="epoch"),
        pytest.param(
            ("--n-train-tokens", "9999999", "--batch-size", "99999"), "is less than one batch", 1, id="text"
        ),
    ],
)
def test_contradictory_flags_are_refused(tmp_path, smallest_file, flags, message, status):
    command = train_command(tmp_path / "run", smallest_file(), "--max-steps", 1, *flags)
    before = snapshot(tmp_path)
    assert message in refuse(*command, status=status)
    assert snapshot(tmp_path) == before


# --- where it cannot be written -----------------------------------------------------------------------


@pytest.fixture
def tiny_disk(tmp_path):
    """A mounted file system of a few kilobytes; only root may."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=131072", "bilm-test", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("cannot mount a small tmpfs here")
    yield path
    gc.collect()  # readers of its files that are in no use any more
    subprocess.run(["umount", str(path)], check=True)


def test_full_disk_keeps_the_last_checkpoint(tiny_disk, trained):
    save_dir = shutil.copytree(trained, tiny_disk / "run")
    (tiny_disk / "ballast").write_bytes(bytes(shutil.disk_usage(tiny_disk).free - 20480))
    before = {name: data for name, data in snapshot(save_dir).items() if not name.endswith(".jsonl")}
    message = refuse("restart", "--train-prefix", TRAIN, "--save-dir", save_dir, "--max-steps", 1)
    assert message == f"{save_dir / 'model.ckpt-3'}: cannot be written: No space left on device"
    assert snapshot(save_dir).items() >= before.items() and not list(save_dir.glob("*ckpt-3*"))
    message = refuse("dump-weights", "--save-dir", save_dir, "--outfile", tiny_disk / "w.hdf5")
    assert message == f"{tiny_disk / 'w.hdf5'}: cannot be written: No space left on device"
    assert not (tiny_disk / "w.hdf5").exists()
    run("test", "--test-prefix", HELDOUT, "--save-dir", save_dir)


def test_early_interrupt_leaves_nothing(tmp_path, smallest_file, monkeypatch):
    monkeypatch.setattr("bilm.runs.loop.training_steps", raising(KeyboardInterrupt()))
    result = invoke(*train_command(tmp_path / "deep" / "run", smallest_file()))
    assert result.exit_code == 1 and "Aborted!" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["smallest.json"]


# --- runs ---------------------------------------------------------------------------------------------


def test_restart_refuses_another_network():
    flags = ("--set", "lstm.dim=16", "--set", "char_cnn.activation=tanh", "--set", "bidirectional=false")
    of = ("--save-dir", GOLDEN / "char" / "final", "--vocab-file", VOCAB)
    message = refuse("restart", "--train-prefix", TRAIN, *of, *flags)
    changes = 'lstm.dim (24 to 16), char_cnn.activation ("relu" to "tanh"), bidirectional (true to false)'
    assert message.startswith(f"a restart cannot change {changes};")


def test_restart_spares_records_beside_a_run_of_bilm_tf(tmp_path):
    path = bilm_tf_run(tmp_path / "run")
    for name in ("metrics.jsonl", "calls.jsonl"):
        (path / name).write_text("mine")
        before = snapshot(path)
        message = refuse("restart", "--train-prefix", TRAIN, "--save-dir", path, "--vocab-file", VOCAB)
        assert message == f"{path / name}: was not written by the run in this directory; move it away"
        assert snapshot(path) == before
        (path / name).unlink()


def test_url_is_refused_as_file(tmp_path):
    address = "https://example.org/elmo/options.json"
    message = refuse("embed", TRAIN, tmp_path / "o.hdf5", "--options-file", address, status=2)
    assert f"{address} is a URL; give a local path" in message


TEXT = f"--train-prefix {TRAIN} --vocab-file {VOCAB}"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("embed a.txt", "Missing argument 'OUT' after a.txt."),
        ("vocab build", "Missing option '--train-prefix'."),
        ("prepare raw.txt corpus", "Missing option '--out'."),
        (f"train {TEXT}", "Missing option '--save-dir'."),
        (f"train {TEXT} --save-dir r --ray-workers 4", "--gpus-per-worker need --ray"),
    ],
)
def test_missing_word_of_a_call_is_named(command, message):
    assert message in refuse(*command.split(), status=2)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (f"train {TEXT} --save-dir r --config options.json", "a model; give the file as --options"),
        (f"train {TEXT} --save-dir r --options run.toml", "a command; give the file as --config"),
        (f"train --train-prefix {VOCAB} --vocab-file {TRAIN} --save-dir r", "on a line: is it a text?"),
        (f"train --train-prefix 'a*' --vocab-file {VOCAB} --save-dir r", "(the quotes are part of it)"),
    ],
)
def test_wrong_file_is_told(command, message, trained, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("options.json", "run.toml"):
        shutil.copy(trained / name, name)
    assert message in refuse(*command.split())
    assert not (tmp_path / "r").exists()


def test_restart_with_two_runs_names_save_to(trained):
    command = ("restart", "--train-prefix", TRAIN, "--model", trained, "--save-dir", "tuned")
    assert "--save-to is a new run directory" in refuse(*command, status=2)
