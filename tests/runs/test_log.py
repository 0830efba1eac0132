"""The records of a run on a disk that is full, and after a kill."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from bilm.errors import CheckpointError
from bilm.io.messages import is_out_of_memory
from bilm.run_directory.records import TrainRecord, read_calls
from bilm.runs.log import RunLog, record_call
from tests.helpers import raising
from tests.records import train_line

FULL = "{{function_node x}} run/events.out.tfevents.1; No space left on device [Op:WriteSummary]"
RECORD = TrainRecord(**{name: value for name, value in train_line(1).items() if name != "kind"})


@pytest.fixture
def log(tmp_path):
    with contextlib.closing(RunLog(tmp_path, 0)) as log:
        yield log


def test_full_disk_is_checkpoint_error(log, tmp_path, monkeypatch):
    writes = [
        lambda: log.write(RECORD),
        lambda: log.write_histograms(1, {"weights": tf.constant(np.arange(3.0))}),
    ]
    with monkeypatch.context() as patched:
        full = tf.errors.ResourceExhaustedError(None, None, FULL)
        patched.setattr(tf.io.TFRecordWriter, "write", raising(full))
        for write in writes:
            with pytest.raises(CheckpointError) as caught:
                write()
            assert str(caught.value) == f"{tmp_path}: its records cannot be written: No space left on device"
    (tmp_path / "metrics.jsonl").unlink()
    (tmp_path / "metrics.jsonl").symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match="its records cannot be written: No space left"):
        log.write(RECORD)


def test_call_replaces_the_partial_line_of_a_killed_process(tmp_path):
    (tmp_path / "calls.jsonl").write_text('{"comm')
    record_call(tmp_path, command="bilm train", step=0, seed=7, options={})
    assert [call.command for call in read_calls(tmp_path / "calls.jsonl")] == ["bilm train"]


def test_full_disk_is_not_out_of_memory():
    error = tf.errors.ResourceExhaustedError(None, None, FULL)
    assert not is_out_of_memory(error)
    assert is_out_of_memory(tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"))
    assert is_out_of_memory(MemoryError())
