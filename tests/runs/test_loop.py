"""The loop of training, through `bilm.train` and `bilm.restart`."""

import os
import time

import pytest

import bilm
from bilm.training import optimizers
from tests.helpers import SMALLEST, TRAIN, VOCAB


def train(path, n_steps=2, on_step=lambda report: None, **arguments):
    reporter = bilm.Reporter()
    reporter.step = on_step
    given = {"options": SMALLEST, "max_steps": n_steps, "seed": 3, "reporter": reporter}
    return bilm.train(TRAIN, VOCAB, path, **given | arguments)


def test_restart_shuffles_anew(tmp_path):
    windows = []
    reporter = bilm.Reporter()
    reporter.step = lambda report: windows.append(report.batch.parts[0].targets.tobytes())
    train(tmp_path / "run", on_step=reporter.step)
    bilm.restart(TRAIN, tmp_path / "run", max_steps=2, seed=3, reporter=reporter)
    assert len(windows) == len(set(windows)) == 4


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_muon_multiplies_in_run_precision(precision, tmp_path, monkeypatch):
    orthogonalised, dtypes = optimizers.orthogonalised, set()

    def recorded(matrices):
        dtypes.add(matrices.dtype.name)
        return orthogonalised(matrices)

    monkeypatch.setattr(optimizers, "orthogonalised", recorded)
    train(tmp_path / "run", 1, optimizer="muon", precision=precision)
    assert dtypes == {precision}


def test_checkpoint_data_precedes_index_and_name(tmp_path, monkeypatch):
    names = []

    def recorded(call):
        def record(source, target):
            names.append(os.path.basename(target))
            call(source, target)

        return record

    for way in ("replace", "link"):  # of a file that exists, of a new one
        monkeypatch.setattr(os, way, recorded(getattr(os, way)))
    train(tmp_path / "run", 2, save_every=1)
    order = [".data", ".index", "checkpoint"]
    of_checkpoints = [
        next(end for end in order if end in name) for name in names if "ckpt" in name or name == "checkpoint"
    ]
    assert of_checkpoints == order * 2


def test_checkpoint_is_saved_every_ten_minutes(tmp_path, monkeypatch):
    """By default, whatever the steps take; the last step is saved in any case."""
    minutes = [0]

    def take_six_minutes(report):
        minutes[0] += 6

    monkeypatch.setattr(time, "monotonic", lambda: 60.0 * minutes[0])
    train(tmp_path / "run", 5, take_six_minutes, keep=5)
    checkpoints = sorted(path.stem for path in (tmp_path / "run").glob("*.index"))
    assert checkpoints == ["model.ckpt-2", "model.ckpt-4", "model.ckpt-5"]
