"""A Ray of the tests' own, on this machine."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest

import bilm


@contextlib.contextmanager
def local_ray():
    """Ray on this machine for as long as the context lasts; the test is skipped where it is not installed."""
    ray = pytest.importorskip("ray")
    # Or its workers wait for whatever else the machine does.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # They import this package, wherever pytest was started.
    root = str(Path(bilm.__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=200_000_000,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    try:
        yield
    finally:
        ray.shutdown()


def workers(name):
    """The processes of a name that this process, or one of its own, has started."""
    said = subprocess.run(["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    children = {}
    for line in said.splitlines()[1:]:
        pid, parent, arguments = line.split(maxsplit=2)
        children.setdefault(int(parent), []).append((int(pid), arguments))
    ours = [(os.getpid(), "")]
    for pid, _ in ours:  # grows: a child may have a smaller number than its parent, after the numbers wrap
        ours += children.get(pid, [])
    return {pid for pid, arguments in ours if name in arguments}
