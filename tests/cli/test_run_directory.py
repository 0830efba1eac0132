"""What `bilm train` and `restart` do to a directory: nothing is lost, and one process writes."""

import shutil

import pytest

from bilm.errors import CheckpointError
from bilm.run_directory import directory
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.files import writing
from bilm.weights.checkpoint_file import CheckpointFile
from tests.helpers import (
    GOLDEN,
    TRAIN,
    VOCAB,
    checkpoint_arrays,
    invoke,
    newest,
    refuse,
    run,
    snapshot,
    train_command,
)


@pytest.fixture
def train(smallest_file, tmp_path):
    """The words of a call that trains two steps in a directory named run."""

    def words(*flags, vocab=VOCAB):
        command = train_command(tmp_path / "run", smallest_file(), "--seed", 7, "--max-steps", 2, vocab=vocab)
        return (*command, *flags)

    return words


# --- files of others ----------------------------------------------------------------------------------


def test_a_vocabulary_in_the_directory_stays_whatever_happens(train, tmp_path, monkeypatch):
    path = tmp_path / "run"
    path.mkdir()
    vocab = path / "vocab.txt"
    shutil.copy(VOCAB, vocab)
    (path / "link").symlink_to(vocab)
    (path / "events.out.tfevents.1.mine").write_text("mine")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bilm.runs.loop.training_steps", lambda *_: iter(()))
        with pytest.raises(StopIteration):
            invoke(*train(vocab=vocab))
    before = {"vocab.txt", "link", "events.out.tfevents.1.mine"}
    assert {file.name for file in path.iterdir()} == before
    run(*train(vocab=vocab))

    def broken(*_):
        raise CheckpointError("broken")

    monkeypatch.setattr("bilm.runs.loop.training_steps", broken)
    assert refuse(*train("--overwrite", vocab=path / "link")) == "broken"
    assert {file.name for file in path.iterdir()} == before and vocab.read_bytes() == VOCAB.read_bytes()
    assert (path / "events.out.tfevents.1.mine").read_text() == "mine"


def test_files_of_others_are_refused_before_the_text_is_counted(train, tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "metrics.jsonl").write_text("mine")
    result = invoke(*train("--overwrite"))
    assert result.exit_code == 1 and "corpus:" not in result.output
    assert (
        f"{path / 'metrics.jsonl'}: is an input of this command, or was not written by the run"
        in result.output
    )
    assert snapshot(path) == {"metrics.jsonl": b"mine"}


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


def test_without_the_file_checkpoint_the_newest_whole_one_is_found(train, tmp_path, caplog):
    path = tmp_path / "run"
    run(*train("--save-every", 1))
    for file in [path / "checkpoint", path / "vocab.txt", *path.glob("model.ckpt-2*")]:
        file.unlink()
    words = f"{path / 'checkpoint'}: missing; using {path / 'model.ckpt-1'} instead"
    run("info", path)
    assert words in caplog.text
    caplog.clear()
    output = run(*train("--resume"))
    assert words in caplog.text and f"resuming: {path}/model.ckpt-1, step 1, 1 of 2 done" in output
    assert (path / "vocab.txt").read_bytes() == VOCAB.read_bytes()
    assert checkpoint_arrays(newest(path))["global_step"] == 2


# --- reading beside a training ------------------------------------------------------------------------


def test_a_checkpoint_removed_while_it_is_read_is_looked_for_again(run_copy, monkeypatch, caplog):
    """As a training does that saves step 3, keeps one, and so removes step 2."""
    reader, writer = RunDirectory.open(run_copy), RunDirectory.open(run_copy)

    def save_meanwhile(prefix):
        monkeypatch.setattr(directory, "CheckpointFile", CheckpointFile)
        for file in list(run_copy.glob("model.ckpt-2.*")):
            shutil.copy(file, run_copy / file.name.replace("ckpt-2", "ckpt-3"))
        writer.index.make_newest(3, obsolete=[2])
        return CheckpointFile(prefix)

    monkeypatch.setattr(directory, "CheckpointFile", save_meanwhile)
    assert reader.choose("latest").prefix == str(run_copy / "model.ckpt-3")
    assert caplog.text == ""
