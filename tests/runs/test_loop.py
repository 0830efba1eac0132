"""The loop of training, through `bilm.train` and `bilm.restart`."""

import os
from types import SimpleNamespace

import pytest

import bilm
from bilm.training import optimizers
from tests.helpers import SMALLEST, TRAIN, VOCAB


def train(path, n_steps=2, on_step=lambda report: None, **arguments):
    reporter = bilm.Reporter()
    reporter.step = on_step
    given = {"options": SMALLEST, "max_steps": n_steps, "seed": 3, "reporter": reporter}
    return bilm.train(TRAIN, VOCAB, path, **given | arguments)


def test_restart_reads_the_text_in_another_order(tmp_path):
    windows = []
    reporter = bilm.Reporter()
    reporter.step = lambda report: windows.append(report.batch.parts[0].targets.tobytes())
    train(tmp_path / "run", on_step=reporter.step)
    bilm.restart(TRAIN, tmp_path / "run", max_steps=2, seed=3, reporter=reporter)
    assert len(windows) == len(set(windows)) == 4


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_muon_multiplies_in_the_precision_of_the_run(precision, tmp_path, monkeypatch):
    orthogonalised, dtypes = optimizers.orthogonalised, set()

    def recorded(matrices):
        dtypes.add(matrices.dtype.name)
        return orthogonalised(matrices)

    monkeypatch.setattr(optimizers, "orthogonalised", recorded)
    train(tmp_path / "run", 1, optimizer="muon", precision=precision)
    assert dtypes == {precision}


def test_checkpoint_gets_its_data_then_its_index_then_its_name(tmp_path, monkeypatch):
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


def test_training_stops_before_a_step_that_would_pass_the_time_allowed(tmp_path, monkeypatch):
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], time=lambda: 0.0)
    monkeypatch.setattr("bilm.runs.loop.time", clock)
    monkeypatch.setattr("bilm.runs.settings.time", clock)

    def take_ten_seconds(report):
        now[0] += 10.0

    result = train(tmp_path / "run", 9, take_ten_seconds, max_time=45.0)
    assert (result.outcome, result.step) == ("stopped", 4)
    assert "`max_time` is nearly over" in result.stop_reason
