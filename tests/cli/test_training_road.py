"""Validation, early end, signals, divergence and rehearsal; what training does to a directory."""

import json
import os
import re
import shutil
import signal
import time
from types import SimpleNamespace

import pytest

from bilm.errors import DivergenceError
from bilm.run_directory import directory
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.files import writing
from bilm.weights.checkpoint_file import CheckpointFile
from tests.cli.test_process import start
from tests.helpers import (
    GOLDEN,
    HELDOUT,
    TRAIN,
    VOCAB,
    combined_perplexity,
    invoke,
    newest,
    newest_arrays,
    refuse,
    run,
    smallest_options,
    snapshot,
    train_command,
    write_json,
)


def arguments(path, options, *flags, text=TRAIN):
    return train_command(path, options, "--seed", 7, *flags, text=text)


def records(path, kind):
    lines = map(json.loads, (path / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


@pytest.fixture(scope="module")
def validated(tmp_path_factory):
    """A run that gets worse after a while, and so ends early."""
    directory = tmp_path_factory.mktemp("validated")
    options = write_json(directory / "options.json", smallest_options(n_epochs=5, learning_rate=4.0))
    text, heldout = directory / "train.txt", directory / "heldout.txt"
    for short, whole, n_lines in ((text, TRAIN, 40), (heldout, HELDOUT, 12)):  # which validations score
        short.write_text("".join(whole.read_text().splitlines(keepends=True)[:n_lines]))
    flags = ("--heldout-prefix", heldout, "--eval-every", 4, "--patience", 2, "--log-every", 2)
    path = directory / "run"
    output = run(*arguments(path, options, *flags, "--histograms-every", 4, text=text))
    heldout = records(path, "heldout")
    best = min(heldout, key=lambda record: record["perplexity"])["step"]
    return SimpleNamespace(path=path, output=output, heldout=heldout, best=best)


def test_patience_stops_and_keeps_best(validated):
    path, heldout = validated.path, validated.heldout
    assert [record["step"] for record in heldout] == [4 * (i + 1) for i in range(len(heldout))]
    best = heldout[-3]
    assert best["step"] == validated.best and best["best"] and not heldout[-1]["best"]
    assert "stopped early: 2 validations without improvement" in validated.output
    printed = f"best: heldout perplexity {best['perplexity']:.4f} at step {best['step']:,}"
    assert printed in validated.output
    assert (path / f"model.ckpt-{validated.best}.index").exists()
    assert newest(path) == str(path / f"model.ckpt-{heldout[-1]['step']}")
    train = records(path, "train")
    found = [(record["step"], record["tokens"]) for record in train]
    assert found == [(step, 6 * step) for step in range(2, found[-1][0] + 1, 2)]


def test_commands_take_best_checkpoint(validated, tmp_path):
    path, best = validated.path, validated.best
    before = snapshot(path)
    (expected,) = [record["perplexity"] for record in validated.heldout if record["step"] == best]
    test = ("test", "--test-prefix", path.with_name("heldout.txt"), "--save-dir", path)
    for which in ("best", best):
        printed = combined_perplexity(run(*test, "--checkpoint", which))
        assert printed == pytest.approx(expected, rel=1e-5)
    dump = ("dump-weights", "--save-dir", path, "--outfile", tmp_path / "best.hdf5")
    assert f"model.ckpt-{best}" in run(*dump, "--checkpoint", "best")
    restart = ("restart", "--save-dir", path, "--train-prefix", TRAIN, "--checkpoint", "best")
    message = refuse(*restart)
    assert "is not the newest" in message and "give --save-to" in message
    output = run(*restart, "--save-to", tmp_path / "new", "--max-steps", 1, "--learning-rate", 0.1)
    assert f"restarting: {path}/model.ckpt-{best}, step {best}" in output
    assert newest_arrays(tmp_path / "new")["global_step"] == best + 1
    assert snapshot(path) == before


@pytest.mark.slow
def test_restart_keeps_the_best_of_the_same_heldout_text(validated, tmp_path):
    path = shutil.copytree(validated.path, tmp_path / "run")
    text, heldout = (validated.path.with_name(name) for name in ("train.txt", "heldout.txt"))
    few = ("--max-steps", 1, "--learning-rate", 4.0)
    restart = ("restart", "--save-dir", path, "--train-prefix", text, *few)
    run(*restart)  # without heldout text
    output = run(*restart, "--heldout-prefix", heldout)
    printed = rf"best: heldout perplexity .* at step {validated.best}\b"
    assert re.search(printed, output)
    assert re.search(rf"^  step {validated.best} .* best$", run("info", path), re.MULTILINE)
    assert not re.search(printed, run(*restart, "--heldout-prefix", text))


def test_events_equal_records(validated):
    import tensorflow as tf

    (events,) = validated.path.glob("events.out.tfevents.*")
    scalars, histograms = {}, set()
    for event in tf.compat.v1.train.summary_iterator(str(events)):
        for value in event.summary.value:
            if value.metadata.plugin_data.plugin_name == "histograms":
                histograms.add(event.step)
            elif value.tag == "heldout/perplexity":
                scalars[event.step] = float(tf.make_ndarray(value.tensor))
    expected = {record["step"]: record["perplexity"] for record in validated.heldout}
    assert scalars == pytest.approx(expected, rel=1e-6) and histograms == expected.keys()


def test_divergence_keeps_checkpoint(tmp_path, smallest_file, monkeypatch):
    # Lookups and products of huge weights are no numbers any more.
    options = smallest_file(all_clip_norm_val=1e30, lstm={"cell_clip": None, "proj_clip": None})
    path = tmp_path / "run"
    monkeypatch.setenv("BILM_TRACEBACK", "1")
    flags = ("--learning-rate", 1e30, "--save-every", 1, "--log-every", 1, "--set", "dropout=0")
    with pytest.raises(DivergenceError) as caught:
        run(*arguments(path, options, *flags))
    message = str(caught.value)
    assert message.startswith("training diverged at step ") and "Try a smaller `learning_rate`" in message
    step = int(re.search(r"at step (\d+):", message)[1])
    assert newest_arrays(path)["global_step"] == step - 1 > 0
    assert f"the last checkpoint is {path / f'model.ckpt-{step - 1}'}" in message


@pytest.mark.slow
def test_signal_saves_and_exits_75(tmp_path, smallest_file):
    """A real process that loses standard output, and then its terminal; then the same command again."""
    path = tmp_path / "run"
    words = arguments(path, smallest_file(n_epochs=1000), "--resume", "--log-every", 1, "--save-every", 2)
    process = start("-m", "bilm", *words)
    assert process.stdout.readline().startswith(b"corpus: ")
    process.stdout.close()
    deadline = time.monotonic() + 90
    while not (path / "checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    errors = process.stderr.read().decode()
    assert process.wait(60) == 75, errors[-2000:]
    assert errors == ("standard output: Broken pipe; continuing without it\nreceived SIGHUP: saving\n")
    step = int(newest_arrays(path)["global_step"])
    output = run(*words, "--max-steps", step + 1)
    assert f"step {step:,}, {step:,} of {step + 1:,} done" in output
    assert [record["step"] for record in records(path, "train")] == list(range(1, step + 2))


@pytest.mark.parametrize(
    "given", ["--max-time=1s", pytest.param("--config=run.toml", marks=pytest.mark.slow)]
)
def test_max_time_saves_and_exits_75(given, tmp_path, smallest_file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text("max_time = 1\n")
    result = invoke(*arguments(tmp_path / "run", smallest_file(n_epochs=1000), given))
    assert result.exit_code == 75 and "--max-time is nearly over; continue with --resume" in result.output
    assert os.path.exists(newest(tmp_path / "run") + ".index")


@pytest.mark.slow
def test_restart_after_schedule_lowers_rate(tmp_path):
    options = write_json(tmp_path / "options.json", smallest_options(n_epochs=1))
    path = tmp_path / "run"
    run(*arguments(path, options, "--recipe", "one-pass", "--max-steps", 3))
    again = ("restart", "--save-dir", path, "--n-epochs", 1, "--max-steps", 1, "--seed", 7)
    said = run(*again, "--save-to", tmp_path / "same", "--train-prefix", TRAIN)
    assert "recipe: learning_rate 0.001 instead of 0.006, because the schedule had ended on the same" in said
    assert "text; set --learning-rate for another" in said
    said = run(*again, "--save-to", tmp_path / "other", "--train-prefix", HELDOUT)
    assert "recipe: learning_rate" not in said


# --- the directory --------------------------------------------------------------------------------


@pytest.fixture
def train(smallest_file, tmp_path):
    """The words of a call that trains two steps in a directory named run."""

    def words(*flags, vocab=VOCAB):
        command = train_command(tmp_path / "run", smallest_file(), "--seed", 7, "--max-steps", 2, vocab=vocab)
        return (*command, *flags)

    return words


# --- files of others ----------------------------------------------------------------------------------


def test_users_vocabulary_is_refused(train, tmp_path):
    """In the directory of a new run, and where a run would be replaced with its own."""
    vocab = tmp_path / "run" / "vocab.txt"
    vocab.parent.mkdir()
    shutil.copy(VOCAB, vocab)
    assert f"{vocab}: is an input of this command" in refuse(*train(vocab=vocab))
    assert snapshot(vocab.parent) == {"vocab.txt": VOCAB.read_bytes()}
    vocab.unlink()
    run(*train())
    assert f"{vocab}: is an input of this command" in refuse(*train("--overwrite", vocab=vocab))


def test_foreign_files_are_refused_before_counting(train, tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "metrics.jsonl").write_text("mine")
    result = invoke(*train("--overwrite"))
    assert result.exit_code == 1 and "corpus:" not in result.output
    message = f"{path / 'metrics.jsonl'}: is an input of this command, or was not written by the run"
    assert message in result.output
    assert snapshot(path) == {"metrics.jsonl": b"mine"}


# --- one writer ---------------------------------------------------------------------------------------


def test_training_locks_out_writers(train, run_copy, tmp_path):
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


@pytest.mark.slow
def test_missing_state_file_uses_newest_whole(train, tmp_path, caplog):
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
    assert newest_arrays(path)["global_step"] == 2


# --- reading beside a training ------------------------------------------------------------------------


def test_removed_checkpoint_is_sought_again(run_copy, monkeypatch, caplog):
    """As a training does that saves step 3, keeps one, and so removes step 2."""
    reader, writer = RunDirectory.open(run_copy), RunDirectory.open(run_copy)
    for file in list(run_copy.glob("model.ckpt-2.*")):
        shutil.copy(file, run_copy / file.name.replace("ckpt-2", "ckpt-1"))  # older, and readable

    def save_meanwhile(prefix):
        monkeypatch.setattr(directory, "CheckpointFile", CheckpointFile)
        for file in list(run_copy.glob("model.ckpt-2.*")):
            shutil.copy(file, run_copy / file.name.replace("ckpt-2", "ckpt-3"))
        writer.index.make_newest(3, obsolete=[2])
        return CheckpointFile(prefix)

    monkeypatch.setattr(directory, "CheckpointFile", save_meanwhile)
    assert reader.choose("latest").prefix == str(run_copy / "model.ckpt-3")
    assert caplog.text == ""
