"""`bilm dump-weights`."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from bilm.errors import WeightsError
from bilm.options import Options
from bilm.weights import hdf5_file
from bilm.weights.names import weight_names
from tests.helpers import checkpoint_arrays, newest, refuse, run, snapshot


@pytest.fixture(scope="module")
def trained(trained_whole):
    return trained_whole


def dump(save_dir, outfile, *flags):
    return run("dump-weights", "--save-dir", save_dir, "--outfile", outfile, *flags)


def test_values_names_and_options(trained, tmp_path):
    output = dump(trained.path, tmp_path / "w.hdf5")
    names = [
        name for name in weight_names(Options.from_json(run_options(trained.path))) if not name.is_softmax
    ]
    variables = checkpoint_arrays(newest(trained.path))
    with h5py.File(tmp_path / "w.hdf5") as file:
        for name in names:
            np.testing.assert_array_equal(file[name.hdf5], variables[name.tf1])
        assert "softmax" not in file
    options = json.loads((tmp_path / "options.json").read_text())
    assert options["char_cnn"]["n_characters"] == 262
    n_values = sum(variables[name.tf1].size for name in names)
    assert f"{len(names)} arrays, {n_values:,} values, read back and equal" in output
    assert f"options -> {tmp_path / 'options.json'}" in output
    assert {path.name for path in tmp_path.iterdir()} == {"w.hdf5", "options.json"}


def run_options(path):
    return json.loads((path / "options.json").read_text())


def test_with_softmax(trained, tmp_path):
    dump(trained.path, tmp_path / "w.hdf5", "--with-softmax")
    variables = checkpoint_arrays(newest(trained.path))
    with h5py.File(tmp_path / "w.hdf5") as file:
        np.testing.assert_array_equal(file["softmax/W"], variables["lm/softmax/W"])
        np.testing.assert_array_equal(file["softmax/b"], variables["lm/softmax/b"])


def test_beside_a_run_its_own_options_stay(run_copy):
    before = snapshot(run_copy)
    dump(run_copy, run_copy / "w.hdf5")
    after = snapshot(run_copy)
    assert after.keys() - before.keys() == {"w.hdf5", "w.options.json"}
    assert {name: after[name] for name in before} == before
    assert json.loads(after["w.options.json"])["char_cnn"]["n_characters"] == 262


def test_overwrites_only_when_told(trained, tmp_path):
    dump(trained.path, tmp_path / "w.hdf5")
    before = snapshot(tmp_path)
    message = refuse("dump-weights", "--save-dir", trained.path, "--outfile", tmp_path / "w.hdf5")
    assert message == f"{tmp_path / 'w.hdf5'}: exists; --overwrite replaces it"
    (tmp_path / "w.hdf5").write_text("damaged")
    dump(trained.path, tmp_path / "w.hdf5", "--overwrite")
    assert snapshot(tmp_path).keys() == before.keys()
    assert (tmp_path / "w.hdf5").read_bytes() != b"damaged"


def test_the_same_options_may_be_there_and_others_may_not(trained, tmp_path):
    dump(trained.path, tmp_path / "w.hdf5")
    dump(trained.path, tmp_path / "again.hdf5")
    (tmp_path / "options.json").write_text('{"of": "another model"}')
    message = refuse("dump-weights", "--save-dir", trained.path, "--outfile", tmp_path / "third.hdf5")
    assert message == f"{tmp_path / 'options.json'}: exists; --overwrite replaces it"
    assert not (tmp_path / "third.hdf5").exists()


@pytest.mark.parametrize(
    ("outfile", "message"),
    [
        ("", "is a directory; give the name of a file to write"),
        ("options.json", "is the name of the options file; give the weights another name"),
        ("none/w.hdf5", "cannot be written: No such file or directory"),
    ],
)
def test_names_that_cannot_be_written(trained, tmp_path, outfile, message):
    found = refuse("dump-weights", "--save-dir", trained.path, "--outfile", tmp_path / outfile, "--overwrite")
    assert found.endswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("outfile", [".", "..", "/"])
def test_a_directory_without_a_name(trained, outfile):
    message = refuse("dump-weights", "--save-dir", trained.path, "--outfile", outfile)
    assert message == f"{outfile}: is a directory; give the name of a file to write"


def test_weights_that_do_not_read_back_are_not_kept(trained, tmp_path, monkeypatch):
    def corrupted(path, names, read=hdf5_file.read_hdf5):
        arrays = read(path, names)
        arrays["encoder/forward_0/kernel"][0, 0] += 1
        return arrays

    monkeypatch.setattr(hdf5_file, "read_hdf5", corrupted)
    message = refuse("dump-weights", "--save-dir", trained.path, "--outfile", tmp_path / "w.hdf5")
    assert "read back differently from what was written: RNN_0/RNN/MultiRNNCell/Cell0/LSTMCell/W_0" in message
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_checkpoint_gives_no_weights(run_copy, tmp_path):
    data = run_copy / "model.ckpt-2.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:500])
    message = refuse("dump-weights", "--save-dir", run_copy, "--outfile", tmp_path / "w.hdf5")
    assert message.startswith(f"{run_copy / 'model.ckpt-2'}: damaged")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_failure_of_the_weights_keeps_the_options_that_were_there(trained, tmp_path, monkeypatch):
    (tmp_path / "options.json").write_text("old")

    def fail(*_):
        raise WeightsError("no")

    monkeypatch.setattr(hdf5_file, "read_hdf5", fail)
    refuse("dump-weights", "--save-dir", trained.path, "--outfile", tmp_path / "w.hdf5", "--overwrite")
    assert snapshot(tmp_path) == {"options.json": b"old"}


@pytest.mark.parametrize("name", ["options.json", "w.hdf5"])
def test_both_files_are_replaced_or_neither(trained, tmp_path, monkeypatch, name):
    """As where one of them is a mount point."""
    before = {"w.hdf5": b"old weights", "options.json": b"old options"}
    for file, data in before.items():
        (tmp_path / file).write_bytes(data)

    def busy(source, target, replace=os.replace):
        if Path(target) == tmp_path / name and Path(source).name == "new":
            raise OSError(errno.EBUSY, "Device or resource busy")
        replace(source, target)

    monkeypatch.setattr(os, "replace", busy)
    command = ("dump-weights", "--save-dir", trained.path, "--outfile", tmp_path / "w.hdf5", "--overwrite")
    message = refuse(*command)
    assert message.startswith(f"{tmp_path / 'w.hdf5'}: cannot be written: ")
    assert message.endswith("Device or resource busy") and (name in message)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["model.ckpt-2.index", "checkpoint", "vocab.txt", "model.ckpt-7.index"])
def test_the_run_itself_is_not_written_over(run_copy, name):
    before = snapshot(run_copy)
    command = ("dump-weights", "--save-dir", run_copy, "--overwrite", "--outfile")
    assert f"{run_copy / name}: " in refuse(*command, run_copy / name)
    hidden = run_copy / "hidden.hdf5"
    hidden.hardlink_to(run_copy / "model.ckpt-2.index")
    message = refuse(*command, hidden)
    assert (
        message
        == f"{hidden}: {run_copy / 'model.ckpt-2.index'} is an input and would be lost; give another name"
    )
    hidden.unlink()
    assert snapshot(run_copy) == before
