"""Connecting to Ray, and the workers there is room for."""

import os
import signal
import socket
import sys

import pytest

from bilm.errors import DataError, OptionsError, ProcessError
from tests.helpers import GOLDEN, VOCAB, refuse

ray = pytest.importorskip("ray")
from bilm.ray.cluster import Cluster, errors_of_workers  # noqa: E402

MODEL = ("--model", GOLDEN / "char" / "weights.hdf5")


def test_wrong_values_are_refused(tmp_path):
    for address in ("text.txt", "", "host", "http://host:1"):
        with pytest.raises(OptionsError, match="is not an address"):
            Cluster(address)
    for name, value in {"cpus_per_worker": 0, "gpus_per_worker": -1.0}.items():
        with pytest.raises(OptionsError, match=name):
            Cluster(**{name: value})
    for cluster in (Cluster(n_workers=5), Cluster(cpus_per_worker=8), Cluster(gpus_per_worker=1.0)):
        with pytest.raises(OptionsError, match=r"do not fit: Ray has 4 CPUs and 0 GPUs; see `ray_workers`"):
            cluster.workers({"CPU": 4}, True)
    command = ("embed", VOCAB, tmp_path / "out", *MODEL)
    assert refuse(*command, "--ray", status=2) == "Option '--ray' requires an argument."
    message = refuse(*command, "--ray", "text.txt", status=2)
    assert message == "--ray: 'text.txt' is not an address; give local, auto, HOST:PORT or ray://HOST:PORT"


@pytest.mark.parametrize(
    ("cluster", "resources", "has_model", "expected"),
    [
        (Cluster(), {"CPU": 2}, True, (1, 2, 0, 0.99)),
        (Cluster(), {"CPU": 1}, True, (1, 1, 0, 0)),
        (Cluster(), {"CPU": 64}, True, (31, 2, 0, 2)),
        (Cluster(n_workers=2, cpus_per_worker=1), {"CPU": 2}, True, (2, 1, 0, 0.5)),
        (Cluster(n_workers=2), {"CPU": 2}, True, (2, 1, 0, 0.5)),  # the cores are shared out
        (Cluster(), {"CPU": 64, "GPU": 8}, True, (8, 1, 1, 0.99)),
        (Cluster(), {"CPU": 4, "GPU": 1}, True, (1, 1, 1, 0.99)),
        (Cluster(gpus_per_worker=0.5), {"CPU": 64, "GPU": 8}, True, (16, 1, 0.5, 0.99)),
        (Cluster("local", 5, 1, 0.2), {"CPU": 64, "GPU": 1}, True, (5, 1, 0.2, 0.99)),
        (Cluster(gpus_per_worker=0), {"CPU": 64, "GPU": 8}, True, (31, 2, 0, 2)),
        (Cluster(), {"CPU": 64, "GPU": 8}, False, (63, 1, 0, 0.99)),
    ],
)
def test_workers_fit_the_cluster(cluster, resources, has_model, expected):
    found = cluster.workers(resources, has_model)
    assert (found.n, found.cpus, found.gpus, found.reserved_cpus) == expected


def test_missing_ray_is_told(monkeypatch, tmp_path):
    for name in [name for name in sys.modules if name.startswith("bilm.ray")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    message = refuse("embed", VOCAB, tmp_path / "out", *MODEL, "--ray", "local")
    assert message == "Ray is not installed: pip install 'ray[data,train]'"


def test_silent_cluster_is_told(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
        flags = ("--train-prefix", VOCAB, "--outfile", tmp_path / "v", "--ray", address)
        message = refuse("vocab", "build", *flags)
        assert "\n" not in message and f"the Ray cluster {address} cannot be reached" in message


def test_connection_ends_with_its_job(monkeypatch):
    for name, value in {"is_initialized": False, "cluster_resources": {"CPU": 2}}.items():
        monkeypatch.setattr(ray, name, lambda value=value: value)
    ended = []
    monkeypatch.setattr(Cluster, "_connect", lambda _: None)
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(1))
    with pytest.raises(DataError), Cluster().connected():
        raise DataError("x")
    assert ended == [1]


def test_worker_errors_are_unwrapped():
    advice = "\nFailed to apply UDF transform after 1/1 attempts (total backoff 0.0s).\nTo change: nothing"
    wrapped = ray.exceptions.RayTaskError("f", "traceback", DataError(f"a.txt: line 2{advice}"))
    for error in (wrapped, wrapped.as_instanceof_cause()):
        with pytest.raises(DataError) as found, errors_of_workers():
            raise error
        assert type(found.value) is DataError and str(found.value) == "a.txt: line 2"
    for error in (MemoryError(), OSError(28, "No space left")):
        with pytest.raises(type(error)), errors_of_workers():
            raise ray.exceptions.RayTaskError("f", "traceback", error)
    with pytest.raises(ProcessError, match="^Ray: System error: lost"), errors_of_workers():
        raise ray.exceptions.RaySystemError("lost")
    with pytest.raises(ray.exceptions.RayTaskError), errors_of_workers():
        raise ray.exceptions.RayTaskError("f", "traceback", ZeroDivisionError())


def test_signals_keep_their_handlers(monkeypatch):
    monkeypatch.setattr(os, "environ", {**os.environ})
    monkeypatch.setattr(ray, "init", lambda *_, **__: signal.signal(signal.SIGTERM, signal.SIG_IGN))
    before = signal.signal(signal.SIGTERM, own := lambda *_: None)
    try:
        Cluster("local")._connect()
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)
