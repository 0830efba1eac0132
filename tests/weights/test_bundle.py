"""The index of a checkpoint: what it declares is there, or TensorFlow does not get to see it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tensor_bundle_pb2 import BundleEntryProto

from bilm.errors import CheckpointError, WeightsError
from bilm.options.file import load_options
from bilm.weights.bundle import read_index
from bilm.weights.checkpoint_file import CheckpointFile, write_checkpoint
from bilm.weights.names import weight_names
from bilm.weights.sorted_table import read_table
from tests.bundles import block, crc32c, table
from tests.helpers import GOLDEN, VARIANTS, invoke, refuse

FINAL = GOLDEN / "char" / "final"
BIAS = "lm/softmax/b"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A checkpoint to be damaged."""
    for file in FINAL.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path / "model.ckpt-12"


def declare(prefix: Path, name: str, change: Callable[[Any], object]) -> None:
    """Let an index say something else of a tensor, under a right checksum."""
    index = Path(f"{prefix}.index")
    entries = dict(read_table(index))
    entry = BundleEntryProto.FromString(entries[name.encode()])
    change(entry)
    entries[name.encode()] = entry.SerializeToString()
    index.write_bytes(table(entries.items()))


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_tensorflow_finds(variant: str):
    prefix = str(GOLDEN / variant / "final" / "model.ckpt-12")
    reader = tf.train.load_checkpoint(prefix)
    shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
    found = read_index(prefix)
    assert {name: (list(tensor.shape), tensor.dtype) for name, tensor in found.items()} == {
        name: (shapes[name], dtypes[name]) for name in shapes
    }


def test_what_we_write(trained: Any):
    found = read_index(str(trained.path / "model.ckpt-2"))
    assert found["bilm/run_state"].dtype == tf.string and found["bilm/run_state"].shape == ()
    CheckpointFile(trained.path / "model.ckpt-2").verify()


def test_the_tables_of_these_tests_are_read_by_tensorflow(prefix: Path):
    declare(prefix, BIAS, lambda entry: None)
    assert crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    CheckpointFile(prefix).verify()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            lambda entry: entry.shape.dim.add(size=-1),
            r"float32 \[73, -1\], which is not the shape of an array",
        ),
        (lambda entry: entry.shape.dim.add(size=1 << 62), "not the shape of an array"),
        (
            lambda entry: [entry.shape.dim.add(size=size) for size in (0, 1 << 62)],
            "not the shape of an array",
        ),
        (lambda entry: [entry.shape.dim.add(size=1) for _ in range(300)], "not the shape of an array"),
        (lambda entry: setattr(entry.shape, "unknown_rank", True), "not the shape of an array"),
        (lambda entry: entry.shape.dim.add(size=2), r"float32 \[73, 2\], and has 292 bytes"),
        (
            lambda entry: setattr(entry, "size", 1 << 60),
            r"at [\d,]+ \+ 1,152,921,504,606,846,976, in data of",
        ),
        (lambda entry: setattr(entry, "size", -1), "in data of"),
        (lambda entry: setattr(entry, "offset", -4), "in data of"),
        (lambda entry: setattr(entry, "dtype", 20), "type 20, expected"),
        (lambda entry: setattr(entry, "dtype", 101), "type 101, expected"),
        (lambda entry: setattr(entry, "dtype", 7), r"string \[73\], and has 292 bytes"),
        (lambda entry: entry.slices.add(), "in 1 slices"),
        (lambda entry: setattr(entry, "shard_id", 1), "in data file 1 of 1"),
    ],
)
def test_what_is_not_possible(prefix: Path, change: Callable[[Any], object], problem: str):
    """Most of these end the process within TensorFlow."""
    declare(prefix, BIAS, change)
    with pytest.raises(CheckpointError, match=f"{BIAS} is.*{problem}"):
        CheckpointFile(prefix)


def test_a_string_longer_than_its_bytes(prefix: Path):
    def declare_string(entry: Any) -> None:
        entry.dtype = tf.string.as_datatype_enum
        del entry.shape.dim[:]

    declare(prefix, BIAS, declare_string)
    with pytest.raises(CheckpointError, match=rf"{BIAS} is string \[\], and has 292 bytes"):
        CheckpointFile(prefix)


ENTRIES = dict(read_table(FINAL / "model.ckpt-12.index"))
HEADER, BIAS_ENTRY = (b"", ENTRIES[b""]), (BIAS.encode(), ENTRIES[BIAS.encode()])


@pytest.mark.parametrize(
    ("index", "problem"),
    [
        (b"", "does not end as an index does"),
        (table([]), "no header"),
        (table([(b"x", b"")]), "no header"),
        (table([(b"", b"\xff")]), "no entry of a checkpoint's index"),
        (table([HEADER, (b"x", b"\xff")]), "x has no entry of a checkpoint's index"),
        (table([HEADER, BIAS_ENTRY, BIAS_ENTRY]), "not in order"),
        (table([HEADER, BIAS_ENTRY, (b"a", b"")]), "not in order"),
        (table([HEADER, (b"x" * 5000, b"")]), "too long"),
        (table([HEADER, (b"\xff", b"")]), "can't decode"),
        (table([HEADER], lambda data: b"\x80" * 20 + data[20:]), "no end"),
        (table([HEADER], lambda data: data[:-4] + b"\xff" * 4), "no end"),
        (table([HEADER], lambda data: data[:-8] + b"\1" + data[-7:]), "damaged"),
        (table([HEADER], lambda data: b"\1" + data[1:]), "too long"),
        (table([HEADER]).replace(block([HEADER]) + b"\0", block([HEADER]) + b"\1"), "compressed"),
    ],
)
def test_what_is_no_index(prefix: Path, index: bytes, problem: str):
    Path(f"{prefix}.index").write_bytes(index)
    with pytest.raises(CheckpointError, match=f"{prefix}: damaged, or not a checkpoint: .*{problem}"):
        CheckpointFile(prefix)


def test_an_index_that_is_too_large(prefix: Path):
    with open(f"{prefix}.index", "ab") as file:
        file.truncate(1 << 34)
    with pytest.raises(CheckpointError, match="is larger than 16,777,216 bytes"):
        CheckpointFile(prefix)


def test_data_that_is_missing(prefix: Path):
    Path(f"{prefix}.data-00000-of-00001").unlink()
    with pytest.raises(CheckpointError, match=r"is in model.ckpt-12.data-00000-of-00001, which is missing"):
        CheckpointFile(prefix)


@pytest.mark.parametrize("dtype", [tf.complex64, tf.bool, tf.int32])
def test_weights_that_are_no_floats(tmp_path: Path, dtype: tf.DType):
    prefix = write_with(tmp_path, tf.zeros([73], dtype))
    names = weight_names(load_options(FINAL / "options.json"))
    with pytest.raises(WeightsError, match=rf"x: {BIAS} is {dtype.name} \[73\], expected an array of floats"):
        CheckpointFile(prefix).check(names)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float64])
def test_weights_of_other_precision(tmp_path: Path, dtype: tf.DType):
    prefix = write_with(tmp_path, tf.fill([73], tf.constant(0.5, dtype)))
    weights = CheckpointFile(prefix).weights(weight_names(load_options(FINAL / "options.json")))
    np.testing.assert_array_equal(weights["softmax/b"], np.full(73, 0.5, np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e39])
def test_weights_that_are_not_finite(tmp_path: Path, value: float):
    values = np.zeros(73)
    values[7] = value
    checkpoint = CheckpointFile(write_with(tmp_path, tf.constant(values)))
    problem = rf"x: {BIAS} holds {value}.* at \[7\], expected finite float32 numbers".replace("+", r"\+")
    with pytest.raises(CheckpointError, match=problem):
        checkpoint.weights(weight_names(load_options(FINAL / "options.json")))
    with pytest.raises(CheckpointError, match=problem):  # a run goes back to the checkpoint before it
        checkpoint.verify()


def write_with(directory: Path, bias: tf.Tensor) -> Path:
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


@pytest.mark.parametrize("name", ["run[1]", "a\\b", "[!x]*?"])
def test_names_that_are_patterns(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch):
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(links))
    run = shutil.copytree(FINAL, tmp_path / name)
    assert "step 12" in invoke("info", run).output
    assert list(links.iterdir()) == []  # they go with the checkpoint


def test_where_tensorflow_could_not_load_a_model_none_is_exported(tmp_path: Path, trained: Any):
    message = refuse("export", "--save-dir", trained.path, "--saved-model", tmp_path / "a[1]")
    assert "TensorFlow cannot load a SavedModel from a path with [ or \\ in it" in message
    assert list(tmp_path.iterdir()) == []


def test_what_an_optimizer_keeps_is_numbers(tmp_path: Path):
    extras = {"whole": tf.constant(3), "text": tf.constant("x"), "nan": tf.constant(np.nan)}
    write_checkpoint(tmp_path / "x", [], {}, {}, 1, 1.0, extras)
    checkpoint = CheckpointFile(tmp_path / "x")
    assert checkpoint.numbers("whole") == 3
    with pytest.raises(CheckpointError, match=r"x: text is string \[\], expected numbers"):
        checkpoint.numbers("text")
    with pytest.raises(CheckpointError, match=r"x: nan holds nan at \[\], expected finite"):
        checkpoint.numbers("nan")
