"""Training on Ray: the call, what its workers do, and on this machine two of which one is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from unittest.mock import create_autospec

import pytest
import tensorflow as tf

import bilm
from bilm.errors import ArgumentError, CheckpointError, DataError, LostWorkerError, OptionsError
from bilm.io.atomic import HeldError
from tests import helpers
from tests.helpers import HELDOUT, TRAIN, VOCAB, refuse, run, train_command
from tests.ray.local import local_ray, workers
from tests.runs.test_two_workers import start

pytest.importorskip("ray.train")
from bilm.ray import Cluster  # noqa: E402
from bilm.ray import training as ray_training  # noqa: E402
from bilm.ray.training import Attempt, Relay, RemoteCall, remote_call  # noqa: E402

RAY = ("--ray", "local", "--ray-workers", 2, "--cpus-per-worker", 1)  # the fixture's, which is there already


# --- the call -----------------------------------------------------------------------------------------


def test_paths_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"train_prefix": "a*", "heldout_prefix": (Path("b"), "c"), "vocab_file": Path("v")}
    call = remote_call("train", given | {"save_dir": "run", "preset": None, "n_epochs": 2}, "bilm train")
    vocabulary, train, *heldout, save_dir = (f"{tmp_path}/{name}" for name in ("v", "a*", "b", "c", "run"))
    paths = {"train_prefix": [train], "heldout_prefix": heldout, "vocab_file": vocabulary}
    assert call.arguments == {**paths, "save_dir": save_dir, "n_epochs": 2}
    assert call.save_dir == tmp_path / "run" and call.command == "bilm train" and call.uses_xla
    with bilm.backend.settings.without_xla():
        assert not remote_call("train", {}, None).uses_xla
    for given, save_dir in (
        ({"train_prefix": "a", "save_dir": "run"}, tmp_path / "run"),
        ({"model": "m"}, tmp_path / "m"),
        ({"model": "m", "save_to": "new"}, tmp_path / "new"),
        ({"save_dir": "run", "dry_run": True}, None),
    ):
        assert remote_call("restart", given, None).save_dir == save_dir
    with pytest.raises(ArgumentError, match="`heldout_prefix`: Ray's workers cannot read standard input"):
        remote_call("train", {"heldout_prefix": ["a", "-"]}, None)


def test_what_is_handed_over_once_the_arguments_are_checked():
    place = create_autospec(Cluster, instance=True)
    with pytest.raises(ArgumentError, match="`n_epoch`: no such argument"):
        bilm.train(TRAIN, VOCAB, "run", n_epoch=1, ray=place)
    with pytest.raises(OptionsError, match="`freeze` is 'all'"):
        bilm.restart(TRAIN, "run", freeze="all", ray=place)
    assert not place.train.called
    texts = {"train_prefix": TRAIN, "save_dir": "run"}
    for call, given in (
        (bilm.train, {**texts, "vocab_file": VOCAB, "preset": "tiny", "seed": 1, "n_epochs": 2}),
        (bilm.restart, {**texts, "max_steps": 3, "freeze": "encoder"}),
    ):
        assert call(**given, ray=place) is place.train.return_value
        name, arguments, *_ = place.train.call_args.args
        assert name == call.__name__
        assert {key: value for key, value in arguments.items() if value is not None} == given


def test_no_ray_train(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "bilm.ray.training")
    monkeypatch.setitem(sys.modules, "ray.train", None)
    with pytest.raises(DataError, match=r"pip install 'ray\[data,train\]'"):
        bilm.train(TRAIN, VOCAB, tmp_path / "run", ray=Cluster("local"))
    options = helpers.write_json(tmp_path / "o.json", helpers.SMALLEST)
    message = refuse(*train_command(tmp_path / "run", options, "--ray-workers", 2), status=2)
    assert "--gpus-per-worker go with --ray" in message


# --- the workers, without Ray -------------------------------------------------------------------------

FIRST, SECOND = Attempt(0, 2.0, False), Attempt(1, 30.0, True)


@pytest.mark.parametrize(
    ("arguments", "attempt", "expected"),
    [
        ({"overwrite": True, "checkpoint": 3}, FIRST, {"overwrite": True, "checkpoint": 3}),
        ({"overwrite": True, "max_time": 100.0}, SECOND, {"max_time": 70.0, "resume": True}),
        ({"overwrite": True}, Attempt(1, 30.0, False), {"overwrite": True}),
        ({"checkpoint": 3}, SECOND, {"resume": True}),
        ({"save_to": "/n", "checkpoint": 3}, SECOND, {"save_to": "/n", "checkpoint": 3, "resume": True}),
    ],
    ids=["first", "resumed", "nothing saved", "restart in place", "restart elsewhere"],
)
def test_an_attempt_resumes_what_one_before_has_saved(arguments, attempt, expected):
    assert RemoteCall("train", arguments).arguments_after(attempt) == expected


def test_the_relay_knows_whether_something_was_saved_and_keeps_the_order(tmp_path):
    newest, relay = ray_training.newest, Relay()
    assert newest(tmp_path) is None and newest(None) is None and newest(tmp_path / "none") is None
    assert not relay.begin(None).resumes and not relay.begin(newest(tmp_path)).resumes
    (tmp_path / "checkpoint").write_text("model.ckpt-1")
    third = relay.begin(newest(tmp_path))
    assert third.resumes and third.number == 2

    other = Relay()  # of a call that finds a run, and replaces it
    assert not other.begin(newest(tmp_path)).resumes and not other.begin(newest(tmp_path)).resumes
    (tmp_path / "checkpoint").write_text("model.ckpt-2")
    assert other.begin(newest(tmp_path)).resumes
    relay.tell("say", ("a",))
    relay.tell("end", ())
    assert relay.take() == [("say", ("a",)), ("end", ())] and relay.take() == []


HELD = CheckpointError("in use")
HELD.__cause__ = HeldError("host a")


@pytest.mark.parametrize(
    ("error", "attempt", "n_workers", "expected"),
    [
        (LostWorkerError("lost"), FIRST, 2, True),
        (tf.errors.UnavailableError(None, None, "gone"), FIRST, 2, True),
        (tf.errors.UnavailableError(None, None, "gone"), FIRST, 1, False),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), FIRST, 2, False),
        (DataError("no text"), SECOND, 2, False),
        (HELD, FIRST, 2, False),
        (HELD, SECOND, 2, True),
        (HELD, None, 2, False),
    ],
)
def test_which_errors_may_pass(error, attempt, n_workers, expected):
    assert ray_training.may_pass(error, attempt, n_workers) is expected


# --- on Ray -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster():
    with local_ray():
        yield


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Two shards and options."""
    folder = tmp_path_factory.mktemp("text")
    lines = TRAIN.read_text().splitlines(keepends=True)
    for i in range(2):
        (folder / f"shard-{i}").write_text("".join(lines[i::2]))
    helpers.write_json(
        folder / "options.json",
        helpers.smallest_options(n_epochs=1000, weight_decay=0.1, weight_averaging=0.9),
    )
    return folder


def command(text, save_dir, *flags):
    settings = ("--seed", 3, "--save-every", 10, "--heldout-prefix", HELDOUT, "--eval-every", 100)
    return train_command(save_dir, text / "options.json", *settings, *flags, text=text / "shard-*")


N_STEPS = 400


@pytest.fixture(scope="module")
def undisturbed(cluster, text):
    run_dir = text / "undisturbed"
    said = run(*command(text, run_dir, "--max-steps", N_STEPS, *RAY)).splitlines()
    assert said[0] == "worker 0 of 2: waiting for the others"
    assert said[-1] == f"saved: {run_dir}/model.ckpt-{N_STEPS}"
    return run_dir


def kill_a_worker(run_dir: Path, kills_chief: bool, n_checkpoints: int, found: list[str]) -> None:
    """Kill the first worker or the other one, when there are so many checkpoints; keep their names."""
    until = time.monotonic() + 300
    holder = run_dir / "bilm.lock"
    while time.monotonic() < until and not found:
        time.sleep(0.02)
        names = [path.name for path in run_dir.glob("model.ckpt-*.index")]
        if holder.exists() and len(names) >= n_checkpoints:
            chief = int(re.search(r"process (\d+)", holder.read_text())[1])
            killed = chief if kills_chief else (workers("ray::RayTrainWorker") - {chief}).pop()
            os.kill(killed, signal.SIGKILL)
            found += ["killed", *names]


def outcome(run_dir):
    """The weights, and what is recorded of steps and validations but for the times."""
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    times = ("time", "seconds", "tokens_per_second", "data_wait")
    records = [{name: value for name, value in line.items() if name not in times} for line in lines]
    return helpers.checkpoint_arrays(run_dir / f"model.ckpt-{N_STEPS}"), records


def assert_same(run_dir, expected):
    (arrays, records), (other_arrays, other_records) = outcome(run_dir), outcome(expected)
    helpers.assert_same_arrays(arrays, other_arrays)
    assert records == other_records


@pytest.mark.slow
def test_it_is_the_run_that_is_started_by_hand(text, undisturbed, tmp_path):
    by_hand = [["bilm", *command(text, tmp_path / "run", "--max-steps", N_STEPS)]] * 2
    for process in start(*by_hand):
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output[-3000:]
    assert_same(tmp_path / "run", undisturbed)


@pytest.mark.slow
def test_errors_of_workers_end_it_at_once(cluster, text, tmp_path):
    bad, run_dir, options = tmp_path / "bad.txt", tmp_path / "run", text / "options.json"
    bad.write_bytes(b"good\n\xff\n")
    for text, flags, message in (
        (bad, ("--seed", 3, *RAY), f"{bad}: line 2: not UTF-8"),
        (
            TRAIN,
            ("--vocab-file", "none", "--seed", 3, *RAY),
            r"/none: No such file or directory \(worker \d on host \S+\)$",
        ),
        (TRAIN, RAY, "--seed: required with several workers"),
        (bad, ("--seed", 3, *RAY, "--ray-workers", 3), "3 workers of 1 CPUs each do not fit"),
    ):
        assert re.search(message, refuse(*train_command(run_dir, options, *flags, text=text)))
    assert not run_dir.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("kills_chief", "n_checkpoints"), [(False, 2), (True, 0)], ids=["other", "chief"])
def test_a_killed_worker_changes_nothing(text, undisturbed, tmp_path, kills_chief, n_checkpoints):
    run_dir = tmp_path / "run"
    found: list[str] = []
    threading.Thread(target=kill_a_worker, args=(run_dir, kills_chief, n_checkpoints, found)).start()
    said = run(*command(text, run_dir, "--max-steps", N_STEPS, *RAY))
    assert "killed" in found and f"model.ckpt-{N_STEPS}.index" not in found
    assert "warning: a worker was lost; Ray has started all again (restart 1 of 10)" in said
    assert ("resuming: " in said) is (n_checkpoints > 0)
    assert_same(run_dir, undisturbed)


@pytest.mark.slow
def test_a_call_that_is_stopped_is_saved_and_resumed(cluster, text, tmp_path):
    steps = []
    reporter = bilm.Reporter()
    reporter.step = lambda report: steps.append(report.step)
    arguments = {"options": text / "options.json", "seed": 3, "ray": Cluster("local", 1, 1)}
    arguments |= {"train_prefix": text / "shard-*", "vocab_file": VOCAB, "save_dir": tmp_path / "run"}
    result = bilm.train(**arguments, reporter=reporter, should_stop=lambda: len(steps) >= 5)
    assert result.outcome == "stopped" and result.stop_reason == "was asked to"
    assert result.saved == tmp_path / "run" / f"model.ckpt-{result.step}" and result.step >= 5
    again = bilm.train(**arguments, resume=True, max_steps=result.step + 1)
    assert (again.outcome, again.step) == ("finished", result.step + 1)
    tuned = bilm.restart(
        HELDOUT, tmp_path / "run", save_to=tmp_path / "new", max_steps=1, ray=Cluster("local", 1, 1)
    )
    assert (tuned.step, tuned.saved) == (result.step + 2, tmp_path / "new" / f"model.ckpt-{result.step + 2}")
