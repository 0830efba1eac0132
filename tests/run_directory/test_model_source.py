"""A model by its path: what is taken for a run, and what for weights as they are distributed."""

from __future__ import annotations

import json

import pytest

from bilm.errors import ArgumentError, BilmError
from bilm.run_directory.model_source import ModelArguments, RunModel, open_model
from bilm.weights.distribution import Distribution
from tests.distributed import OPTIONS, WEIGHTS, bilm_tf_run, model_files, write_folder


def refused(path):
    with pytest.raises(BilmError) as caught:
        open_model(path).arrays()
    assert str(caught.value).startswith(str(path))
    return str(caught.value).removeprefix(str(path))


def test_a_run_stays_a_run_with_dumped_weights_in_it(tmp_path):
    run = bilm_tf_run(tmp_path / "run")
    assert isinstance(open_model(run), RunModel)
    (run / "weights.hdf5").write_bytes(WEIGHTS.read_bytes())
    (run / "weights.options.json").write_bytes(OPTIONS.read_bytes())
    assert isinstance(open_model(run), RunModel)
    found = open_model(run / "weights.hdf5")
    assert isinstance(found, Distribution) and found.options_file.path.name == "weights.options.json"


def test_options_that_go_with_the_weights_make_it_no_run(tmp_path):
    run = bilm_tf_run(tmp_path / "run")
    (run / "options.json").write_bytes(OPTIONS.read_bytes())
    assert "restore those that the run was trained with" in refused(run)
    (run / "model.hdf5").write_bytes(WEIGHTS.read_bytes())
    assert isinstance(open_model(run), Distribution)


def test_options_of_the_training_beside_weights(tmp_path):
    trained = bilm_tf_run(tmp_path / "run") / "options.json"
    assert "n_tokens_vocab" in json.loads(trained.read_text())
    folder = write_folder(tmp_path / "model", model_files() | {"options.json": trained.read_bytes()})
    assert isinstance(open_model(folder), Distribution)
    (folder / "model.hdf5").unlink()
    assert isinstance(open_model(folder), RunModel)
    assert refused(folder) == ": no checkpoint yet"


def test_a_run_without_options(tmp_path):
    run = bilm_tf_run(tmp_path / "run")
    (run / "options.json").unlink()
    assert refused(run) == ": not a run directory: no options.json in it"
    (run / "options.json").write_text("{")
    assert refused(run).startswith("/options.json: not JSON")
    (run / "weights.hdf5").write_bytes(WEIGHTS.read_bytes())
    (run / "weights.options.json").write_bytes(OPTIONS.read_bytes())
    assert refused(run).startswith("/options.json: not JSON")


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"model": "x", "save_dir": "x"},
        {"model": "x", "weight_file": "x"},
        {"weight_file": "x"},
        {"options_file": "x"},
        {"options_file": "x", "weight_file": "x", "save_dir": "x"},
        {"options_file": "x", "weight_file": "x", "checkpoint": "best"},
        {"checkpoint": 3},
    ],
)
def test_arguments_that_name_nothing_or_two_things(arguments):
    with pytest.raises(ArgumentError, match="give `model`, `save_dir`, or `options_file` and `weight_file`"):
        ModelArguments(**arguments).open()
