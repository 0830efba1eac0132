"""Jobs of two workers, each a process of its own."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from bilm.errors import OptionsError
from bilm.training.workers import Worker
from tests import together
from tests.corpora import write
from tests.helpers import HELDOUT, ROOT, TRAIN, refuse, smallest_options, train_command, write_json


def start(*commands):
    """The same or different commands as the workers of one job."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("localhost", 0))) for _ in commands]
        addresses = [f"localhost:{one.getsockname()[1]}" for one in sockets]
    processes = []
    for index, command in enumerate(commands):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = os.environ | {"TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": ""}
        words = [sys.executable, "-m", *map(str, command)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        processes.append(subprocess.Popen(words, env=environment, cwd=ROOT, **streams))
    return processes


def write_shards(folder):
    """The training text in two files."""
    lines = TRAIN.read_text().splitlines(keepends=True)
    return [write(folder / f"shard-{i}", "".join(lines[i::2])) for i in range(2)]


@pytest.fixture
def shards(tmp_path):
    return write_shards(tmp_path)


@pytest.mark.slow
def test_two_workers_equal_one_with_twice_the_rows(tmp_path, shards):
    kinds = {"alone": "alone", "replicas": "replicas", "chief": "worker", "other": "worker"}
    _, replicas, *both = [("tests.together", tmp_path / f"{k}.npz", kinds[k], *shards) for k in kinds]
    processes = [*start(replicas), *start(*both)]
    together.main(str(tmp_path / "alone.npz"), "alone", [*map(str, shards)])
    for process in processes:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output[-3000:]
    arrays = {name: np.load(tmp_path / f"{name}.npz") for name in kinds}
    for name, expected in arrays["alone"].items():
        for kind in ("replicas", "chief"):
            np.testing.assert_allclose(arrays[kind][name], expected, rtol=1e-5, atol=1e-5, err_msg=name)
        np.testing.assert_array_equal(arrays["other"][name], arrays["chief"][name], err_msg=name)


@pytest.mark.slow
def test_killed_worker_ends_job_and_resume_continues(tmp_path, shards):
    changes = {"n_epochs": 1000, "weight_decay": 0.1, "softmax_row_init": "cooccurrence"}
    options = write_json(tmp_path / "options.json", smallest_options(**changes))
    flags = ("--seed", 3, "--save-every", 5, "--resume", "--no-xla")
    flags += ("--heldout-prefix", HELDOUT, "--eval-every", 50)
    command = ["bilm", *train_command(tmp_path / "run", options, *flags, text=tmp_path / "shard-*")]
    workers = start(command, command)
    deadline = time.monotonic() + 300
    while len(list((tmp_path / "run").glob("model.ckpt-*.index"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    workers[1].send_signal(signal.SIGKILL)
    output, _ = workers[0].communicate(timeout=300)
    workers[1].communicate()
    assert workers[0].returncode == 1, output[-3000:]
    assert "Error: worker 0 lost contact with the others" in output and "with --resume" in output

    workers = start(*[[*command, "--max-steps", 60]] * 2)
    outputs = [worker.communicate(timeout=300)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    assert "resuming: " in outputs[0] and "model.ckpt-60" in outputs[0]
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["kind"] == "train"] == [20, 40, 60]
    assert {path.name for path in tmp_path.iterdir()} == {"options.json", "run", "shard-0", "shard-1"}


def test_worker_reads_environment(monkeypatch):
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    for task, index in ((("chief", 0), 0), (("worker", 1), 2)):
        config = {"cluster": cluster, "task": {"type": task[0], "index": task[1]}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))
        worker = Worker.from_environment()
        assert (worker.index, worker.n_workers, worker.is_chief) == (index, 3, index == 0)
    for nothing in ("", "{}"):
        monkeypatch.setenv("TF_CONFIG", nothing)
        assert Worker.from_environment() == Worker()


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}']
    + ['{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}'],
)
def test_wrong_environment_is_refused(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(OptionsError, match='TF_CONFIG: .*; expected {"cluster"'):
        Worker.from_environment()


def test_several_workers_require_seed(tmp_path, smallest_file, monkeypatch):
    monkeypatch.setattr(Worker, "from_environment", lambda: Worker(0, 2))
    monkeypatch.setattr(Worker, "strategy", lambda *_: tf.distribute.get_strategy())  # which waits for nobody
    message = refuse(*train_command(tmp_path / "run", smallest_file()))
    assert message == "--seed: required with several workers, the same for all"
