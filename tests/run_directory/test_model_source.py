"""A model by its path: what is taken for a run, and what for weights."""

import pytest

from bilm.errors import ArgumentError
from bilm.run_directory.directory import RunModel
from bilm.run_directory.model_source import ModelArguments
from bilm.weights.distribution import StoredModel
from tests import helpers
from tests.distributed import OPTIONS, WEIGHTS, bilm_tf_run, model_files, write_folder
from tests.helpers import FILES, GOLDEN


def refused(path):
    return helpers.refused(lambda path: ModelArguments(path).open().arrays(), path)


def test_run_with_dumped_weights_is_run(tmp_path):
    run = bilm_tf_run(tmp_path / "run")
    assert isinstance(ModelArguments(run).open(), RunModel)
    (run / "weights.hdf5").write_bytes(WEIGHTS.read_bytes())
    (run / "weights.options.json").write_bytes(OPTIONS.read_bytes())
    assert isinstance(ModelArguments(run).open(), RunModel)
    found = ModelArguments(run / "weights.hdf5").open()
    assert type(found) is StoredModel and found.options_file.path.name == "weights.options.json"


def test_inference_options_make_no_run(tmp_path):
    run = bilm_tf_run(tmp_path / "run")
    (run / "options.json").write_bytes(OPTIONS.read_bytes())
    assert "restore the options that the run was trained with" in refused(run)


def test_training_options_beside_weights_make_no_run(tmp_path):
    trained = (GOLDEN / "char" / "final" / "options.json").read_bytes()
    folder = write_folder(tmp_path / "model", model_files() | {"options.json": trained})
    assert type(ModelArguments(folder).open()) is StoredModel
    (folder / "model.hdf5").unlink()
    assert refused(folder).startswith(": not a model: no file of weights; found")
    (folder / "bilm-run.json").write_text("{}")
    assert refused(folder) == ": no checkpoint yet"


def test_run_without_options_is_run(tmp_path):
    run = bilm_tf_run(tmp_path / "run")
    (run / "options.json").unlink()
    assert (
        refused(run)
        == ": not a run directory: no options.json in it; restore it, or give weights with their options"
    )
    (run / "options.json").write_text("{")
    assert refused(run).startswith("/options.json: not JSON")


@pytest.mark.parametrize(
    "arguments",
    [
        {"model": "x", "save_dir": "x"},
        {"options_file": "x", "weight_file": "x", "save_dir": "x"},
        {"options_file": "x", "weight_file": "x", "checkpoint": "best"},
    ],
)
def test_ambiguous_arguments_are_refused(arguments):
    with pytest.raises(ArgumentError, match="give one model only, and `checkpoint` only for a run"):
        ModelArguments(**arguments).open()


def test_one_of_two_files_finds_the_other_beside_it():
    for arguments in ({"options_file": FILES[0]}, {"weight_file": FILES[1]}):
        assert ModelArguments(**arguments).open().source == ModelArguments(FILES[1]).open().source
