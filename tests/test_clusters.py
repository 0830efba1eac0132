"""The scripts for clusters in docs/long-runs.md do what the page says, with stand-ins for SLURM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import pages
from tests.helpers import GOLDEN

JOB, WORKERS = pages.code("docs/long-runs.md", "bash")
CHAR = GOLDEN / "char"
Cluster = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Run a script where `srun` only runs its command and `scontrol` tells what it was asked."""

    def run(script: str, bilm: str, **variables: str) -> subprocess.CompletedProcess[str]:
        binaries = tmp_path / "bin"
        binaries.mkdir(exist_ok=True)
        programs = {
            "srun": 'exec "$@"',
            "scontrol": '[ "$1" = show ] && printf "node0\\nnode1\\n" || echo scontrol "$@"',
            "bilm": bilm,
        }
        for name, text in programs.items():
            (binaries / name).write_text(f"#!/bin/sh\n{text}\n")
            (binaries / name).chmod(0o755)
        environment = {
            **os.environ,
            "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(pages.ROOT),
            "SLURM_JOB_ID": "17",
            **variables,
        }
        return subprocess.run(
            ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run


@pytest.mark.slow
def test_a_job(cluster: Cluster, tmp_path: Path):
    (tmp_path / "mine" / "train").mkdir(parents=True)
    for source, target in [("train", "train/text"), ("heldout", "heldout"), ("vocab", "vocab")]:
        (tmp_path / "mine" / f"{target}.txt").write_bytes((CHAR / f"{source}.txt").read_bytes())
    assert "--preset small" in JOB
    command = f'exec "{sys.executable}" -m bilm "$@"'
    done = cluster(JOB.replace("--preset small", "--preset tiny --max-time 3s"), command)
    assert (tmp_path / "job" / "checkpoint").exists(), done.stderr
    assert done.stdout.endswith("scontrol requeue 17\n"), done.stdout
    done = cluster(JOB, 'echo "$@"')
    assert done.stdout.startswith("train --preset small --resume ") and "scontrol" not in done.stdout


def test_workers(cluster: Cluster):
    done = cluster(f'{WORKERS}echo "$TF_CONFIG"', "", SLURM_JOB_NODELIST="node[0-1]", SLURM_PROCID="1")
    assert json.loads(done.stdout) == {
        "cluster": {"worker": ["node0:9000", "node1:9000"]},
        "task": {"type": "worker", "index": 1},
    }
