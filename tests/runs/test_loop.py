"""The loop of training, through `bilm.train` and `bilm.restart`."""

import json
import os
import shutil
import signal
import time
import types

import pytest
import tensorflow as tf

import bilm
from bilm.data.stream import Order
from bilm.errors import CheckpointError, DataError, OptionsError
from bilm.run_directory import directory
from bilm.run_directory.records import read_metrics
from bilm.runs import loop, prepare
from bilm.runs.reporter import ProgressReporter
from bilm.training import optimizers
from bilm.training.trainer import Trainer
from tests.helpers import SMALLEST, TRAIN, VOCAB, raising, reporting, snapshot


def train(path, n_steps=2, on_step=lambda report: None, **arguments):
    given = {"options": SMALLEST, "max_steps": n_steps, "seed": 3, "reporter": reporting(step=on_step)}
    return bilm.train(TRAIN, VOCAB, path, **given | arguments)


def test_tf32_is_allowed_for_the_call(tmp_path):
    is_allowed, seen = tf.config.experimental.tensor_float_32_execution_enabled, []
    train(tmp_path / "run", 1, lambda report: seen.append(is_allowed()), precision="tf32")
    assert seen == [True] and not is_allowed()  # as `conftest` sets it


def test_restart_shuffles_anew(tmp_path, monkeypatch):
    """And draws other negatives and dropout, which are those of the step."""
    windows, steps, take = [], [], Trainer.step
    monkeypatch.setattr(
        Trainer, "step", lambda self, parts, step, *rate: steps.append(step) or take(self, parts, step, *rate)
    )
    told = reporting(step=lambda report: windows.append(report.batch.parts[0].targets.tobytes()))
    train(tmp_path / "run", reporter=told)
    bilm.restart(TRAIN, tmp_path / "run", max_steps=2, seed=3, reporter=told)
    assert len(windows) == len(set(windows)) == 4 and steps == [1, 2, 3, 4]
    first, again = read_metrics(tmp_path / "run" / "metrics.jsonl").train
    assert (first.step, again.step) == (2, 4) and first.epoch == again.epoch  # since the call began


def test_restart_looks_for_its_checkpoint_under_the_lock(run_copy, tmp_path, monkeypatch):
    """Another process may save and end while the restart reads the model."""
    shutil.copytree(run_copy, tmp_path / "later")
    bilm.restart(TRAIN, tmp_path / "later", max_steps=1)
    before, lock = snapshot(tmp_path / "later"), prepare.files.writing

    def after_the_other(path):
        shutil.copytree(tmp_path / "later", path, dirs_exist_ok=True)
        return lock(path)

    monkeypatch.setattr(prepare.files, "writing", after_the_other)
    with pytest.raises(OptionsError, match="model.ckpt-2 is not the newest of "):
        bilm.restart(TRAIN, run_copy, max_steps=1)
    monkeypatch.undo()
    found = snapshot(run_copy)
    assert {name: found[name] for name in before} == before


def test_text_is_read_in_the_order_of_plan_and_worker(monkeypatch):
    """Each worker its own part, with the seed and passages of the plan."""
    orders, of = [], types.SimpleNamespace
    monkeypatch.setattr(loop.pipeline, "training_batches", lambda *given, **_: orders.append(given[3]) or [])
    worker, options = of(index=1, n_workers=2), of(passage_tokens=40)
    trainer = of(options=options, workers=of(worker=worker), n_parts=1)
    state = of(plan=of(shuffle=False, seed=5, shuffle_buffer=9), first_step=3)
    text = of(counts=of(shards=()), vocabulary=None)
    assert list(loop.Training(None, None, trainer, state, text, None, None)._batches()) == []
    assert orders == [Order(False, 8, 9, 40, 1, 2)]


def test_records_are_means_since_last_one(tmp_path):
    steps = []
    train(tmp_path / "run", 5, steps.append, log_every=2)
    found = read_metrics(tmp_path / "run" / "metrics.jsonl").train
    assert [record.step for record in found] == [2, 4, 5]
    for record, own in zip(found, (steps[:2], steps[2:4], steps[4:]), strict=True):
        seconds = sum(report.seconds for report in own)
        assert record.loss == pytest.approx(sum(report.loss for report in own) / len(own))
        assert record.gradient_norm == pytest.approx(sum(report.gradient_norm for report in own) / len(own))
        assert record.tokens_per_second == pytest.approx(6 * len(own) / seconds)
        waited = sum(report.wait_seconds for report in own)
        assert record.data_wait == pytest.approx(100 * waited / seconds)
        assert all(0 < report.wait_seconds < report.seconds for report in own)


def test_error_of_only_worker_is_its_own(tmp_path):
    """Several of them would have lost contact."""
    with pytest.raises(tf.errors.InternalError, match="of TensorFlow"):
        train(tmp_path / "run", on_step=raising(tf.errors.InternalError(None, None, "of TensorFlow")))


@pytest.mark.parametrize("precision", [pytest.param("float32", marks=pytest.mark.slow), "bfloat16"])
def test_muon_multiplies_in_run_precision(precision, tmp_path, monkeypatch):
    orthogonalised, dtypes = optimizers.orthogonalised, set()

    def recorded(matrices):
        dtypes.add(matrices.dtype.name)
        return orthogonalised(matrices)

    monkeypatch.setattr(optimizers, "orthogonalised", recorded)
    train(tmp_path / "run", 1, optimizer="muon", precision=precision)
    assert dtypes == {precision}


@pytest.mark.slow
def test_restart_from_a_named_step_resumes(run_copy):
    call = {"train_prefix": TRAIN, "model": run_copy, "checkpoint": 2, "max_steps": 3, "resume": True}
    assert bilm.restart(**call, should_stop=lambda: True).step == 3
    with pytest.raises(TypeError):  # killed before it saves
        bilm.restart(**call, reporter=reporting(step=[].pop))
    assert (result := bilm.restart(**call)).outcome == "finished" and result.step == 5


@pytest.mark.slow
def test_restart_killed_before_its_first_checkpoint_begins_again(run_copy):
    call = {"train_prefix": TRAIN, "save_dir": run_copy, "max_steps": 1, "resume": True, "log_every": 1}
    assert bilm.restart(**call).step == 3
    assert bilm.restart(**call).saved is None
    with pytest.raises(TypeError):
        bilm.restart(**call | {"resume": False}, reporter=reporting(step=[].pop))
    assert bilm.restart(**call).step == 4
    records = (run_copy / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(record)["step"] for record in records] == [2, 3, 4]


@pytest.mark.slow
def test_restart_stopped_twice_in_its_last_validation_finishes_it(run_copy):
    call = {"train_prefix": TRAIN, "save_dir": run_copy, "heldout_prefix": TRAIN, "max_steps": 1}
    for _ in range(2):
        assert bilm.restart(**call, resume=True, should_stop=lambda: True).outcome == "stopped"
    assert bilm.restart(**call, resume=True).best_step == 3


@pytest.mark.slow
def test_restart_in_place_keeps_the_form_and_the_best(tmp_path):
    train(tmp_path / "run", heldout_prefix=TRAIN)
    with pytest.raises(OptionsError, match="a restart cannot change unicode_form"):
        bilm.restart(TRAIN, tmp_path / "run", changes={"unicode_form": "NFD"})
    for _ in range(2):
        assert bilm.restart(TRAIN, tmp_path / "run", max_steps=2).best_step == 2


@pytest.mark.parametrize("is_interrupted", [False, True])
@pytest.mark.usefixtures("default_handlers")
def test_failed_save_is_an_error_of_the_checkpoint(is_interrupted, tmp_path, monkeypatch):
    def interrupt(report):
        if is_interrupted:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(directory, "write_checkpoint", raising(DataError("in the way")))
    with pytest.raises(CheckpointError, match="run: cannot be written: in the way$"):
        train(tmp_path / "run", on_step=interrupt)


@pytest.mark.slow
def test_reporter_of_two_calls_begins_anew(tmp_path, capsys):
    reporter = ProgressReporter()
    train(tmp_path / "a", 1, reporter=reporter, heldout_prefix=TRAIN)
    assert "heldout" in capsys.readouterr().err
    train(tmp_path / "b", 1, reporter=reporter)
    assert "heldout" not in capsys.readouterr().err


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
    saved = [name for name in names if "ckpt" in name or name == "checkpoint"]
    assert [next(end for end in order if end in name) for name in saved] == order * 2


def test_checkpoint_is_saved_every_ten_minutes(tmp_path, monkeypatch):
    """By default, whatever the steps take; the last step is saved in any case."""
    minutes = [0]

    def take_six_minutes(report):
        minutes[0] += 6

    monkeypatch.setattr(time, "monotonic", lambda: 60.0 * minutes[0])
    train(tmp_path / "run", 5, take_six_minutes, keep=5)
    checkpoints = sorted(path.stem for path in (tmp_path / "run").glob("*.index"))
    assert checkpoints == ["model.ckpt-2", "model.ckpt-4", "model.ckpt-5"]
