"""The scripts for clusters in docs/long-runs.md do what the page says, with stand-ins for SLURM."""

import json
import os
import subprocess
import sys

import pytest

from tests import pages
from tests.helpers import HELDOUT, TRAIN, VOCAB

JOB, WORKERS = pages.code("docs/long-runs.md", "bash")


def run_script(place, script, bilm, **variables):
    """What a script prints where `srun` only runs its command and `scontrol` tells what it was asked."""
    programs = {
        "srun": 'exec "$@"',
        "scontrol": '[ "$1" = show ] && printf "node0\\nnode1\\n" || echo scontrol "$@"',
        "bilm": bilm,
    }
    (place / "bin").mkdir(exist_ok=True)
    for name, text in programs.items():
        (place / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (place / "bin" / name).chmod(0o755)
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(pages.ROOT), "SLURM_JOB_ID": "17"} | variables
    settings = {"cwd": place, "env": environment, "stdout": subprocess.PIPE, "text": True, "check": False}
    return subprocess.run(["bash", "-c", script], **settings).stdout


@pytest.mark.slow
def test_a_job(tmp_path):
    (tmp_path / "mine" / "train").mkdir(parents=True)
    for source, target in ((TRAIN, "train/text.txt"), (HELDOUT, "heldout.txt"), (VOCAB, "vocab.txt")):
        (tmp_path / "mine" / target).write_bytes(source.read_bytes())
    assert "--preset small" in JOB
    job = JOB.replace("--preset small", "--preset tiny --set unroll_steps=3 --max-time 3s")
    said = run_script(tmp_path, job, f'exec "{sys.executable}" -m bilm "$@"')
    assert (tmp_path / "job" / "checkpoint").exists()
    assert said.endswith("scontrol requeue 17\n"), said
    said = run_script(tmp_path, JOB, 'echo "$@"')
    assert said.startswith("train --preset small --resume ") and "scontrol" not in said


def test_workers(tmp_path):
    variables = {"SLURM_JOB_NODELIST": "node[0-1]", "SLURM_PROCID": "1"}
    said = run_script(tmp_path, f'{WORKERS}echo "$TF_CONFIG"', "", **variables)
    assert json.loads(said) == {
        "cluster": {"worker": ["node0:9000", "node1:9000"]},
        "task": {"type": "worker", "index": 1},
    }
