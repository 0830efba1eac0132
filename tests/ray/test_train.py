"""Training on Ray: the call, what its workers do, and on this machine two of which one is killed."""

import contextlib
import os
import re
import signal
import threading
import time
from pathlib import Path
from unittest.mock import create_autospec

import pytest
import tensorflow as tf

import bilm
from bilm.errors import ArgumentError, CheckpointError, DataError, LostWorkerError, OptionsError, ProcessError
from bilm.io.atomic import HeldError
from tests.helpers import (
    HELDOUT,
    TRAIN,
    VOCAB,
    raising,
    refuse,
    run,
    smallest_options,
    train_command,
    write_json,
)
from tests.kill_and_resume import differences, numbers
from tests.ray.local import workers
from tests.runs.test_two_workers import start, write_shards

ray = pytest.importorskip("ray.train")
from ray.train.tensorflow import TensorflowTrainer  # noqa: E402

from bilm.ray import Cluster  # noqa: E402
from bilm.ray import training as ray_training  # noqa: E402
from bilm.ray.cluster import Workers  # noqa: E402
from bilm.ray.training import Relay, RemoteCall  # noqa: E402

RAY = ("--ray", "local", "--ray-workers", 2, "--cpus-per-worker", 1)  # the one of `cluster`


# --- the call -----------------------------------------------------------------------------------------


def test_paths_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = create_autospec(Cluster, instance=True)
    given = {"vocab_file": Path("v"), "save_dir": "run", "n_epochs": 2, "heldout_prefix": (Path("b"), "c")}
    bilm.train("a*", **given, ray=place, max_time="1m")
    call = RemoteCall(*place.train.call_args.args[:2], "bilm train")
    vocabulary, train, *heldout, save_dir = (f"{tmp_path}/{name}" for name in ("v", "a*", "b", "c", "run"))
    paths = {"train_prefix": (train,), "heldout_prefix": (*heldout,), "vocab_file": vocabulary}
    assert call.arguments == {**paths, "save_dir": save_dir, "n_epochs": 2, "max_time": 60.0}
    assert call.save_dir == tmp_path / "run" and call.command == "bilm train" and call.uses_xla
    with bilm.backend.settings.without_xla():
        assert not RemoteCall("train", {}, None).uses_xla
    for given, save_dir in (
        ({"save_dir": "/run"}, Path("/run")),
        ({"model": "/m"}, Path("/m")),
        ({"model": "/m", "save_to": "/new"}, Path("/new")),
        ({"save_dir": "/m", "save_to": "/new"}, Path("/new")),
        ({"save_dir": "/run", "dry_run": True}, None),
    ):
        assert RemoteCall("restart", given, None).save_dir == save_dir
    with pytest.raises(ArgumentError, match="`heldout_prefix`: Ray's workers cannot read standard input"):
        RemoteCall("train", {"heldout_prefix": ["a", "-"]}, None)


def test_arguments_are_checked_first():
    place = create_autospec(Cluster, instance=True)
    with pytest.raises(ArgumentError, match="`n_epoch`: no such argument"):
        bilm.train(TRAIN, VOCAB, "run", n_epoch=1, ray=place)
    with pytest.raises(OptionsError, match="`freeze` is 'all'"):
        bilm.restart(TRAIN, "run", freeze="all", ray=place)
    assert not place.train.called


@pytest.mark.parametrize(
    ("cluster", "arguments", "expected"),
    [
        (Cluster(), {}, (1, None)),
        (Cluster(), {"n_gpus": 2}, (1, 2.0)),
        (Cluster(n_workers=3, gpus_per_worker=0.5), {"n_gpus": 2}, (3, 0.5)),
    ],
    ids=["default", "GPUs of a worker", "given"],
)
def test_training_chooses_its_workers(cluster, arguments, expected, monkeypatch):
    seen = []

    def connected(place):
        seen.append((place.n_workers, place.gpus_per_worker))
        return contextlib.nullcontext(Workers(1, 2, 0.0, 2))

    monkeypatch.setattr(Cluster, "connected", connected)
    monkeypatch.setattr(ray_training, "run", lambda *_: None)
    cluster.train("train", arguments, bilm.Reporter(), None)
    assert seen == [expected]


# --- the workers, without Ray -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "n_before", "is_saved", "expected"),
    [
        ({"overwrite": True, "checkpoint": 3}, 0, False, {"overwrite": True, "checkpoint": 3}),
        ({"overwrite": True, "max_time": 100.0}, 1, True, {"max_time": 70.0, "resume": True}),
        ({"max_time": 20.0}, 1, True, {"max_time": 1e-3, "resume": True}),
        ({"overwrite": True}, 1, False, {"overwrite": True}),
        ({"checkpoint": 3}, 1, True, {"checkpoint": 3, "resume": True}),
    ],
    ids=["first", "resumed", "no time left", "nothing saved", "restart"],
)
def test_attempt_resumes_saved_run(arguments, n_before, is_saved, expected, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    relay = Relay()
    for _ in range(n_before):
        relay.begin(arguments, None)
        now[0] += 30
    assert relay.begin(arguments, "saved" if is_saved else None) == (n_before, expected)


def test_relay_keeps_order(tmp_path):
    def resumes(relay):
        return relay.begin({}, newest(tmp_path))[1] == {"resume": True}

    newest, relay = ray_training.newest, Relay()
    assert newest(tmp_path) is None and newest(None) is None and newest(tmp_path / "none") is None
    assert not resumes(relay) and not resumes(relay)
    (tmp_path / "checkpoint").write_text("model.ckpt-1")
    assert relay.begin({}, newest(tmp_path)) == (2, {"resume": True})

    other = Relay()  # of a call that finds a run, and replaces it
    assert not resumes(other) and not resumes(other)
    os.utime(tmp_path / "checkpoint", ns=(1, 1))  # a run that ends at the same step
    assert resumes(other)
    relay.tell("say", ("a",))
    relay.tell("end", ())
    assert relay.take() == [("say", ("a",)), ("end", ())] and relay.take() == []


def test_directory_that_is_not_shared_is_refused(monkeypatch):
    monkeypatch.setattr(ray_training, "broadcast_from_rank_zero", lambda _: ((0, {}), "/no/such/mark"))
    with pytest.raises(CheckpointError, match="^/run: worker 1 on host .* does not see the files"):
        ray_training._begin(RemoteCall("train", {"save_dir": "/run"}, None), None, 1)


def test_workers_lost_too_often_are_told(monkeypatch):
    failure = ray.WorkerGroupError("", {0: RuntimeError("Traceback\n  ActorDiedError: killed.")})
    make = create_autospec(TensorflowTrainer)
    make.return_value.fit = raising(failure)
    monkeypatch.setattr("ray.train.tensorflow.TensorflowTrainer", make)
    with pytest.raises(
        ProcessError, match="^workers were lost more than 10 times, last: ActorDiedError: kil"
    ):
        ray_training._fit(RemoteCall("train", {}, None), None, 2, {"CPU": 1, "GPU": 0.5}, "storage")
    settings = make.call_args.kwargs
    scaling, failures = settings["scaling_config"], settings["run_config"].failure_config.max_failures
    assert (scaling.num_workers, scaling.use_gpu, failures) == (2, True, 10)
    environment = settings["run_config"].worker_runtime_env["env_vars"]
    assert environment["KERAS_BACKEND"] == "tensorflow"


HELD = CheckpointError("in use")
HELD.__cause__ = HeldError("host a")


@pytest.mark.parametrize(
    ("error", "number", "n_workers", "expected"),
    [
        (LostWorkerError("lost"), 0, 2, True),
        (tf.errors.UnavailableError(None, None, "gone"), 0, 2, True),
        (tf.errors.UnavailableError(None, None, "gone"), 0, 1, False),
        (tf.errors.ResourceExhaustedError(None, None, "OOM"), 0, 2, False),
        (DataError("no text"), 1, 2, False),
        (HELD, 0, 2, False),
        (HELD, 1, 2, True),
    ],
)
def test_lost_workers_are_retried(error, number, n_workers, expected):
    assert ray_training.may_pass(error, number, n_workers) is expected


# --- on Ray -------------------------------------------------------------------------------------------

N_STEPS = 200


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Two shards and options."""
    folder = tmp_path_factory.mktemp("text")
    write_shards(folder)
    options = smallest_options(n_epochs=1000, weight_decay=0.1)
    write_json(folder / "options.json", options)
    return folder


def kill_workers(run_dir, killed):
    """Kill the first worker before there is a checkpoint, and the other one when there are two."""
    until = time.monotonic() + 300
    holder = run_dir / "bilm.lock"
    while time.monotonic() < until and len(killed) < 2:
        time.sleep(0.02)
        n_checkpoints = len([*run_dir.glob("model.ckpt-*.index")])
        named = holder.exists() and re.search(r"process (\d+)", holder.read_text())  # empty at first
        if named and n_checkpoints >= 2 * len(killed):
            chief = int(named[1])
            # nobody, where the others are about to be started or have just ended: then the next look
            for victim in [*workers("ray::RayTrainWorker") - {chief}][:1] if killed else [chief]:
                killed.append(victim)
                os.kill(victim, signal.SIGKILL)


@pytest.mark.slow
def test_killed_workers_change_no_number(cluster, text, tmp_path):
    on_ray, by_hand = tmp_path / "ray", tmp_path / "hand"
    flags = ("--seed", 3, "--save-every", 10, "--heldout-prefix", HELDOUT, "--eval-every", 100)
    flags = (*flags, "--max-steps", N_STEPS, "--no-xla", "--threads", 1)  # else by the number of cores
    commands = [
        train_command(run_dir, text / "options.json", *flags, text=text / "shard-*")
        for run_dir in (on_ray, by_hand)
    ]
    killed = []
    threading.Thread(target=kill_workers, args=(on_ray, killed)).start()
    said = run(*commands[0], *RAY)
    assert "worker 0 of 2: waiting for the others\n" in said
    assert said.endswith(f"saved: {on_ray}/model.ckpt-{N_STEPS}\n")
    for number in (1, 2):
        words = f"warning: a worker was lost; Ray restarted all workers (restart {number} of 10)"
        assert words in said
    assert len(killed) == 2 and said.count("resuming: ") == 1  # there was nothing to resume at first
    for process in start(*[["bilm", *commands[1]]] * 2):
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output[-3000:]
    assert differences(numbers(on_ray), numbers(by_hand)) == []


@pytest.mark.slow
def test_worker_error_ends_the_call(cluster, text, tmp_path):
    bad, run_dir = tmp_path / "bad.txt", tmp_path / "run"
    bad.write_bytes(b"good\n\xff\n")
    for words, flags, message in (
        (bad, (*RAY, "--ray-workers", 1), rf"{bad}: line 2: not UTF-8 .*\(worker 0 on host \S+\)$"),
        (bad, ("--seed", 3, *RAY, "--ray-workers", 3), "3 workers of 1 CPUs each do not fit"),
        (bad, ("--seed", 3, *RAY, "--gpus-per-worker", 1), "2 workers of 1 CPUs and 1 GPUs each do not fit"),
    ):
        said = refuse(*train_command(run_dir, text / "options.json", *flags, text=words))
        assert re.search(message, said)
    assert not run_dir.exists()


@pytest.mark.slow
def test_stopped_call_is_saved(cluster, text, tmp_path):
    steps, place = [], Cluster("local", 1, 1)
    reporter = bilm.Reporter()
    reporter.step = lambda report: steps.append(report.step)
    result = bilm.train(
        *(text / "shard-*", VOCAB, tmp_path / "run"),
        **{"options": text / "options.json", "seed": 3, "ray": place},
        reporter=reporter,
        should_stop=lambda: len(steps) >= 5,
    )
    assert result.outcome == "stopped" and result.stop_reason == "a stop was requested"
    assert result.saved == tmp_path / "run" / f"model.ckpt-{result.step}" and result.step >= 5
    tuned = bilm.restart(HELDOUT, tmp_path / "run", save_to=tmp_path / "new", max_steps=1, ray=place)
    assert (tuned.step, tuned.saved) == (result.step + 1, tmp_path / "new" / f"model.ckpt-{result.step + 1}")
