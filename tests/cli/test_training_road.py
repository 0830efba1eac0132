"""Validation, early end, signals, divergence and rehearsal, through `bilm train` and `restart`."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from bilm.errors import DivergenceError
from tests.helpers import (
    HELDOUT,
    ROOT,
    TRAIN,
    checkpoint_arrays,
    combined_perplexity,
    invoke,
    newest,
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


def test_validation_stops_early_and_keeps_the_best(validated):
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


def test_every_command_takes_a_checkpoint(validated, tmp_path):
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
    assert checkpoint_arrays(newest(tmp_path / "new"))["global_step"] == best + 1
    assert snapshot(path) == before


def test_tensorboard_events(validated):
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


def test_divergence_leaves_the_checkpoint_and_the_text(tmp_path, smallest_file, monkeypatch):
    # Lookups and products of huge weights are no numbers any more.
    options = smallest_file(all_clip_norm_val=1e30, lstm={"cell_clip": None, "proj_clip": None})
    path = tmp_path / "run"
    monkeypatch.setenv("BILM_TRACEBACK", "1")
    flags = ("--learning-rate", 1e30, "--save-every", 1, "--log-every", 1, "--set", "dropout=0")
    with pytest.raises(DivergenceError) as caught:
        run(*arguments(path, options, *flags))
    message = str(caught.value)
    assert message.startswith("training diverged at step ") and "Try a smaller learning_rate" in message
    (aside,) = path.glob("diverged-*.txt")
    step = int(aside.stem.partition("-")[2])
    assert f"its text is in {aside}" in message and f"at step {step}:" in message
    words = {word for word in aside.read_text(encoding="utf-8").split() if len(word) < 15}
    assert words and words <= {"<S>", "</S>", *TRAIN.read_text(encoding="utf-8").split()}
    assert checkpoint_arrays(newest(path))["global_step"] == step - 1 > 0
    assert f"the last checkpoint is {path / f'model.ckpt-{step - 1}'}" in message


@pytest.mark.slow
def test_a_job_that_is_told_to_end_saves_and_exits_with_75(tmp_path, smallest_file):
    """A real process that loses standard output, and then its terminal; then the same command again."""
    path = tmp_path / "run"
    words = arguments(path, smallest_file(n_epochs=1000), "--resume", "--log-every", 1, "--save-every", 2)
    process = subprocess.Popen(
        [sys.executable, "-m", "bilm", *map(str, words)],
        **{"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    assert process.stdout.readline().startswith("corpus: ")
    process.stdout.close()
    deadline = time.monotonic() + 90
    while not (path / "checkpoint").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    errors = process.stderr.read()
    assert process.wait(60) == 75, errors[-2000:]
    assert errors == (
        "standard output: Broken pipe; continuing without it\n"
        "received SIGHUP: finishing the step and saving\n"
    )
    step = int(checkpoint_arrays(newest(path))["global_step"])
    output = run(*words, "--max-steps", step + 1)
    assert f"step {step:,}, {step:,} of {step + 1:,} done" in output
    assert [record["step"] for record in records(path, "train")] == list(range(1, step + 2))


def test_the_time_allowed(tmp_path, smallest_file):
    result = invoke(*arguments(tmp_path / "run", smallest_file(n_epochs=1000), "--max-time", "1s"))
    assert result.exit_code == 75 and "--max-time is nearly over; continue with --resume" in result.output
    assert os.path.exists(newest(tmp_path / "run") + ".index")


def test_a_schedule_that_has_ended_begins_lower_on_the_same_text(tmp_path):
    options = write_json(tmp_path / "options.json", smallest_options(n_epochs=1))
    path = tmp_path / "run"
    run(*arguments(path, options, "--recipe", "one-pass", "--max-steps", 3))
    again = ("restart", "--save-dir", path, "--n-epochs", 1, "--max-steps", 1, "--seed", 7)
    said = run(*again, "--save-to", tmp_path / "same", "--train-prefix", TRAIN)
    assert "recipe: learning_rate 0.001 instead of 0.006, because the schedule had ended on the same" in said
    said = run(*again, "--save-to", tmp_path / "other", "--train-prefix", HELDOUT)
    assert "recipe: learning_rate" not in said
