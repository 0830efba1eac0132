"""What `bilm train` and `restart` do to a directory: nothing is lost, and one process writes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bilm.errors import CheckpointError
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.files import writing
from tests.helpers import (
    GOLDEN,
    HELDOUT,
    TRAIN,
    VOCAB,
    checkpoint_arrays,
    invoke,
    newest,
    refuse,
    run,
    smallest_options,
    snapshot,
    train_command,
    write_json,
)


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    return write_json(tmp_path_factory.mktemp("options") / "smallest.json", smallest_options())


@pytest.fixture
def train(options, tmp_path):
    """The words of a call that trains two steps in a directory named run."""

    def words(*flags, vocab=VOCAB, options=options):
        return train_command(tmp_path / "run", options, "--seed", 7, "--max-steps", 2, *flags, vocab=vocab)

    return words


@pytest.fixture
def interrupted(run_copy):
    """A run that was killed after its first step, of two."""

    def of(train):
        shutil.rmtree(run_copy)
        run(*train("--save-every", 1))
        (run_copy / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n')
        for file in run_copy.glob("model.ckpt-2*"):
            file.unlink()
        return run_copy

    return of


@pytest.fixture
def broken(monkeypatch):
    """Have training fail before its first checkpoint."""

    def steps(*arguments):
        raise CheckpointError("broken")

    return lambda: monkeypatch.setattr("bilm.runs.loop.training_steps", steps)


# --- files of others ----------------------------------------------------------------------------------


def test_a_vocabulary_in_the_directory_stays_whatever_happens(train, tmp_path, broken):
    path = tmp_path / "run"
    path.mkdir()
    vocab = path / "vocab.txt"
    shutil.copy(VOCAB, vocab)
    (path / "link").symlink_to(vocab)
    (path / "events.out.tfevents.1.mine").write_text("mine")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bilm.runs.loop.training_steps", lambda *_: iter(()))
        with pytest.raises(AssertionError):
            invoke(*train(vocab=vocab))
    before = {"vocab.txt", "link", "events.out.tfevents.1.mine"}
    assert {file.name for file in path.iterdir()} == before
    run(*train(vocab=vocab))
    broken()
    assert refuse(*train("--overwrite", vocab=path / "link")) == "broken"
    assert {file.name for file in path.iterdir()} == before and vocab.read_bytes() == VOCAB.read_bytes()
    assert (path / "events.out.tfevents.1.mine").read_text() == "mine"


def test_a_vocabulary_in_the_directory_that_would_be_changed_is_refused(train, tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "vocab.txt").write_bytes(VOCAB.read_bytes().replace(b"\n", b"\r\n"))
    before = snapshot(path)
    result = invoke(*train(vocab=path / "vocab.txt"))
    assert (
        result.exit_code == 1 and "vocab.txt: is an input of this command and would be lost" in result.output
    )
    assert "corpus:" not in result.output and snapshot(path) == before


@pytest.mark.parametrize("flags", [(), ("--resume",), ("--overwrite",)], ids=["new", "resume", "overwrite"])
def test_files_of_others_are_refused_before_the_text_is_counted(train, tmp_path, flags):
    path = tmp_path / "run"
    path.mkdir()
    (path / "metrics.jsonl").write_text("mine")
    result = invoke(*train(*flags))
    assert result.exit_code == 1 and "corpus:" not in result.output
    assert f"{path / 'metrics.jsonl'}: was not written by the run in this directory" in result.output
    assert snapshot(path) == {"metrics.jsonl": b"mine"}


def test_a_run_of_bilm_tf_is_not_replaced(train, tmp_path):
    path = shutil.copytree(GOLDEN / "word-shared" / "step0", tmp_path / "run")
    before = snapshot(path)
    assert "already holds a run; continue it with `bilm restart`, " in refuse(*train("--overwrite"))
    assert snapshot(path) == before


def test_a_restart_into_a_directory_with_files_of_others(trained, tmp_path):
    (tmp_path / "calls.jsonl").write_text("mine")
    message = refuse(
        "restart", "--train-prefix", TRAIN, "--save-dir", trained.path, "--save-to", tmp_path, "--resume"
    )
    assert message.startswith(f"{tmp_path / 'calls.jsonl'}: was not written by the run")
    assert snapshot(tmp_path) == {"calls.jsonl": b"mine"}


def test_a_restart_in_a_directory_of_bilm_tf(tmp_path):
    path = shutil.copytree(GOLDEN / "word-shared" / "step0", tmp_path / "run")
    same = ("restart", "--train-prefix", TRAIN, "--vocab-file", VOCAB, "--save-dir", path)
    same = (*same, "--max-steps", 1, "--set", "unroll_steps=2")
    (path / "metrics.jsonl").write_text("mine")
    assert "metrics.jsonl: was not written by the run" in refuse(*same)
    (path / "metrics.jsonl").unlink()
    first = newest(path)
    run(*same)
    assert Path(first + ".index").exists() and checkpoint_arrays(newest(path))["global_step"] == 1


# --- one writer ---------------------------------------------------------------------------------------


def test_while_one_trains_others_may_only_read(train, run_copy, tmp_path):
    restart = ("restart", "--train-prefix", TRAIN, "--max-steps", 1)
    before = snapshot(run_copy)
    with writing(run_copy):
        for words in (
            train("--resume"),
            train("--overwrite"),
            (*restart, "--save-dir", run_copy),
            (*restart, "--save-dir", GOLDEN / "char" / "final", "--vocab-file", VOCAB, "--save-to", run_copy),
        ):
            message = refuse(*words)
            assert message.startswith(f"{run_copy}: host ") and "is training in it" in message
        run("info", run_copy)
        run("dump-weights", "--save-dir", run_copy, "--outfile", tmp_path / "w.hdf5")
        run(*train("--resume", "--dry-run"))
    assert snapshot(run_copy) == before


# --- what was interrupted -----------------------------------------------------------------------------


def test_without_the_file_checkpoint_the_newest_whole_one_is_found(train, interrupted, trained, caplog):
    path = interrupted(train)
    (path / "checkpoint").unlink()
    (path / "vocab.txt").unlink()
    words = f"{path / 'checkpoint'}: missing; using {path / 'model.ckpt-1'} instead"
    run("test", "--test-prefix", HELDOUT, "--save-dir", path, "--vocab-file", VOCAB)
    assert words in caplog.text
    caplog.clear()
    output = run(*train("--resume"))
    assert words in caplog.text and f"resuming: {path}/model.ckpt-1, step 1, 1 of 2 done" in output
    assert (path / "vocab.txt").read_bytes() == VOCAB.read_bytes()
    assert checkpoint_arrays(newest(path))["global_step"] == 2


def test_another_vocabulary_does_not_take_the_place_of_a_lost_one(train, run_copy, tmp_path):
    (run_copy / "vocab.txt").unlink()
    other = tmp_path / "other.txt"
    other.write_text(VOCAB.read_text().replace("\nthe\n", "\nThe\n"))
    assert "its SHA-256 is not" in refuse(*train("--resume", vocab=other))


def test_checkpoints_without_options_are_not_trained_over(train, run_copy):
    (run_copy / "options.json").unlink()
    (run_copy / "checkpoint").unlink()
    before = snapshot(run_copy)
    assert "already holds a run" in refuse(*train("--resume"))
    assert snapshot(run_copy) == before


def test_what_was_left_before_the_first_checkpoint_is_taken(train, run_copy):
    for file in [run_copy / "checkpoint", *run_copy.glob("model.ckpt*")]:
        file.unlink()
    (run_copy / "bilm.lock").touch()  # of a process that was killed
    assert "saved:" in run(*train())
    assert len((run_copy / "calls.jsonl").read_text().splitlines()) == 1


def test_a_restart_in_place_behind_a_damaged_checkpoint(train, tmp_path, caplog):
    path = tmp_path / "run"
    run(*train("--save-every", 1))
    index = path / "model.ckpt-2.index"
    index.write_bytes(index.read_bytes()[:50])
    with (path / "calls.jsonl").open("a") as file:
        file.write('{"command": "bilm tra')
    output = run("restart", "--train-prefix", TRAIN, "--save-dir", path, "--max-steps", 1)
    assert f"restarting: {path / 'model.ckpt-1'}, step 1" in output
    assert checkpoint_arrays(newest(path))["global_step"] == 2
    assert "last command: bilm restart" in run("info", path)


# --- reading beside a training ------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["latest", "best"])
def test_a_checkpoint_removed_while_it_is_read_is_looked_for_again(run_copy, monkeypatch, caplog, which):
    """As a training does that saves step 3, keeps one, and so removes step 2."""
    reader, writer = RunDirectory.open(run_copy), RunDirectory.open(run_copy)
    check = RunDirectory._checked

    def save_meanwhile(self, prefix, read=True):
        monkeypatch.setattr(RunDirectory, "_checked", check)
        for file in list(run_copy.glob("model.ckpt-2.*")):
            shutil.copy(file, run_copy / file.name.replace("ckpt-2", "ckpt-3"))
        writer.index.make_newest(3, obsolete=[2])
        return check(self, prefix, read)

    monkeypatch.setattr(RunDirectory, "_checked", save_meanwhile)
    if which == "best":
        monkeypatch.setattr(RunDirectory, "_best", lambda self: self._of_step(self.index.steps()[-1]))
    assert reader.choose(which).prefix == str(run_copy / "model.ckpt-3")
    assert caplog.text == ""


def test_the_search_looks_at_later_checkpoints_as_well(run_copy, caplog):
    (run_copy / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-1"\n')
    assert RunDirectory.open(run_copy).latest().prefix == str(run_copy / "model.ckpt-2")
    assert f"{run_copy / 'model.ckpt-1.index'}: no such checkpoint; using " in caplog.text


def test_the_current_directory(train, tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    words = [Path() if word == tmp_path / "run" else word for word in train()]
    assert run(*words).endswith("saved: model.ckpt-2\n")
    run("test", "--test-prefix", HELDOUT, "--save-dir", ".")
