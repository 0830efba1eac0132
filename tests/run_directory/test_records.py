"""`metrics.jsonl` and `calls.jsonl` of a run."""

import dataclasses
import json
import math

import pytest

from bilm.errors import DataError
from bilm.run_directory.records import WRITER, HeldoutRecord, Metrics, TrainRecord, read_calls, read_metrics
from tests.records import call_line, heldout_line, train_line, write_lines


def test_records_round_trip(tmp_path):
    lines = [train_line(1), train_line(2, backward_perplexity=None), heldout_line(2, best=True)]
    metrics = read_metrics(write_lines(tmp_path / "metrics.jsonl", *lines))
    assert [record.to_json() for record in (*metrics.train, *metrics.heldout)] == lines
    assert isinstance(metrics.train[1], TrainRecord) and metrics.train[1].backward_perplexity is None
    assert isinstance(metrics.best, HeldoutRecord)


def test_unknown_keys_warn(tmp_path, caplog):
    file = write_lines(tmp_path / "m.jsonl", train_line(3, loss=6, epoch=0, humidity=[1]))
    (record,) = read_metrics(file).train
    assert record.loss == 6.0 and "humidity" not in record.to_json()
    assert "ignored: humidity" in caplog.text


def test_nonfinite_values_are_omitted(tmp_path):
    (record,) = read_metrics(write_lines(tmp_path / "m.jsonl", train_line(1))).train
    lost = dataclasses.replace(record, loss=math.inf, gradient_norm=math.nan, backward_perplexity=math.inf)
    line = lost.to_json()
    assert record.to_json().keys() - line.keys() == {"loss", "gradient_norm", "backward_perplexity"}
    (again,) = read_metrics(write_lines(tmp_path / "m.jsonl", line)).train
    assert math.isnan(again.loss) and math.isnan(again.gradient_norm) and again.backward_perplexity is None


@pytest.mark.parametrize("end", ['{"kind": "heldout", "step": 4, "perple', "\0\0\0"])
def test_partial_last_line_is_ignored(tmp_path, end, caplog):
    file = write_lines(tmp_path / "m.jsonl", train_line(1))
    file.write_text(file.read_text() + end)
    assert len(read_metrics(file).train) == 1
    file.write_text(json.dumps(train_line(1)))  # a whole one, but for its end
    assert len(read_metrics(file).train) == 1
    assert not caplog.messages


def test_repeated_steps_replace_earlier(tmp_path):
    first = [train_line(10), heldout_line(10, best=True), train_line(20, loss=5.0), heldout_line(20)]
    again = [train_line(15), heldout_line(20, perplexity=9.0), train_line(20, loss=4.0)]
    metrics = read_metrics(write_lines(tmp_path / "m.jsonl", *first, *again))
    assert [(record.step, record.loss) for record in metrics.train] == [(10, 6.0), (15, 6.0), (20, 4.0)]
    assert [(record.step, record.perplexity) for record in metrics.heldout] == [(10, 260.9), (20, 9.0)]
    assert metrics.best is metrics.heldout[0] and metrics.last is not None and metrics.last.step == 20


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ('{"kind": "train", "st', '"{\\"kind\\": \\"train\\", \\"st" is not JSON'),
        ("[]", "the file: expected an object, got []"),
        (json.dumps(train_line(10**30)), "step: must be at most 9223372036854775807, got 1000"),
        (json.dumps(train_line(1, loss=float("nan"))), "loss: expected a number, got NaN"),
        (json.dumps(train_line(1, kind="test")), "kind: expected one of train, heldout, got test"),
        (json.dumps({"kind": "heldout", "step": 1}), "epoch: missing; tokens: missing"),
    ],
)
def test_damaged_line_warns(tmp_path, damage, message, caplog):
    file = write_lines(tmp_path / "m.jsonl", train_line(1), damage, train_line(2))
    assert [record.step for record in read_metrics(file).train] == [1, 2]
    assert f"{file}: a damaged line is left out: line 2: {message}" in caplog.text


def test_missing_file_has_no_records_and_directory_is_error(tmp_path):
    assert read_metrics(tmp_path / "none.jsonl") == Metrics((), ())
    with pytest.raises(DataError, match="is a directory, expected a file"):
        read_calls(tmp_path)


def test_read_calls_returns_calls(tmp_path, caplog):
    file = write_lines(tmp_path / "calls.jsonl", call_line(), call_line(step=5, command="bilm restart"))
    first, last = read_calls(file)
    assert (first.step, first.seed, last.step, last.command) == (0, 7, 5, "bilm restart")
    write_lines(file, call_line(versions=[]), call_line(step="x"), call_line(mood=1))
    assert len(read_calls(file)) == 1
    later = write_lines(tmp_path / "later.jsonl", call_line(mood=1), call_line(versions={"bilm": "9.1"}))
    assert len(read_calls(later)) == 2 and "written by bilm 0.1.0 or bilm 9.1; unknown" in caplog.text
    message = f"{file}: a damaged line is left out, and 1 more: line 1: versions: expected an object, got []"
    assert message in caplog.text
    assert f"{file}: written by bilm 0.1.0; unknown to {WRITER} and ignored: mood" in caplog.text
