"""Checkpoints: what damage to their files gives, other kinds of numbers, strange names."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bilm.errors import CheckpointError, WeightsError
from bilm.options.file import load_options
from bilm.weights.checkpoint_file import CheckpointFile
from bilm.weights.names import weight_names
from tests.helpers import GOLDEN, invoke, refuse

FINAL = GOLDEN / "char" / "final"
BIAS = "lm/softmax/b"
NAMES = weight_names(load_options(FINAL / "options.json"))


@pytest.fixture
def prefix(tmp_path):
    """A checkpoint to be damaged."""
    for file in FINAL.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path / "model.ckpt-12"


def test_damage_to_an_array_is_seen_when_it_is_read(prefix):
    path = Path(f"{prefix}.data-00000-of-00001")
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    checkpoint = CheckpointFile(prefix)
    checkpoint.check(NAMES)
    with pytest.raises(CheckpointError, match=f"^{prefix}: damaged, .*Checksum does not match.*$"):
        checkpoint.verify()


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float64, tf.int32])
def test_weights_of_other_types(tmp_path, dtype):
    checkpoint = CheckpointFile(write_with(tmp_path, tf.fill([73], tf.constant(2, dtype))))
    if dtype.is_floating:
        np.testing.assert_array_equal(checkpoint.weights(NAMES)["softmax/b"], np.float32([2] * 73))
        return
    with pytest.raises(WeightsError, match=rf"x: {BIAS} is int32, expected an array of floats"):
        checkpoint.check(NAMES)


@pytest.mark.parametrize("value", [np.nan, 1e39])
def test_weights_that_are_not_finite(tmp_path, value):
    values = np.zeros(73)
    values[7] = value
    checkpoint = CheckpointFile(write_with(tmp_path, tf.constant(values)))
    problem = rf"x: {BIAS} holds .* at \[7\], expected finite float32 numbers"
    for read in (lambda: checkpoint.weights(NAMES), checkpoint.verify):
        with pytest.raises(CheckpointError, match=problem):
            read()


def write_with(directory, bias):
    """The checkpoint with another bias of the softmax."""
    reader = tf.train.load_checkpoint(str(FINAL / "model.ckpt-12"))
    tensors = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()} | {BIAS: bias}
    tf.raw_ops.SaveV2(
        prefix=str(directory / "x"),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    return directory / "x"


# --- names that TensorFlow takes for patterns --------------------------------------------------------


@pytest.mark.parametrize("name", ["a\\b", "[!x]*?"])
def test_names_that_are_patterns(tmp_path, name, monkeypatch):
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(links))
    run = shutil.copytree(FINAL, tmp_path / name)
    assert "step 12" in invoke("info", run).output
    assert list(links.iterdir()) == []  # they go with the checkpoint


def test_where_tensorflow_could_not_load_a_model_none_is_exported(tmp_path, trained):
    message = refuse("export", "--save-dir", trained.path, "--saved-model", tmp_path / "a[1]")
    assert "TensorFlow cannot load a SavedModel from a path with [ or \\ in it" in message
    assert list(tmp_path.iterdir()) == []
