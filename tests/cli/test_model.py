"""Commands that take a model by its path, ``--model``, and what they say of what is none."""

import json

import h5py
import numpy as np
import pytest

import bilm
from bilm.errors import OptionsError
from tests.distributed import OPTIONS, WEIGHTS, bilm_tf_run, model_files, write_folder, write_zip
from tests.helpers import HELDOUT, TRAIN, combined_perplexity, refuse, run, snapshot, write_json


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder, an archive, AllenNLP's pair and a run of bilm-tf; not to be changed."""
    place = tmp_path_factory.mktemp("made")
    write_folder(place / "folder", model_files())
    write_zip(place / "193.zip", model_files())
    write_folder(place / "pair", model_files("elmo_2x_weights.hdf5", "elmo_2x_options.json"))
    bilm_tf_run(place / "run")
    return place


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Time flies\n\nthe river sang\n")
    return path


def embed(text, out, *flags):
    run("embed", text, out, *flags)
    with h5py.File(out) as file:
        return [file[str(i)][...] for i in range(3)]


# --- what is taken --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected(made, tmp_path_factory):
    place = tmp_path_factory.mktemp("expected")
    (place / "text.txt").write_text("Time flies\n\nthe river sang\n")
    return embed(place / "text.txt", place / "out.hdf5", "--options-file", OPTIONS, "--weight-file", WEIGHTS)


@pytest.mark.parametrize(
    ("name", "flags"), [("193.zip", ()), ("pair/elmo_2x_weights.hdf5", ()), ("run", ("--checkpoint", 12))]
)
@pytest.mark.usefixtures("opened_once")
def test_embed(name, flags, made, expected, text, tmp_path):
    before = snapshot(made)
    vectors = embed(text, tmp_path / "out.hdf5", "--model", made / name, *flags)
    for found, wanted in zip(vectors, expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert snapshot(made) == before


def test_test_and_score(run_copy, text, tmp_path):
    options = json.loads((run_copy / "options.json").read_text())
    write_json(run_copy / "options.json", options | {"unroll_steps": 20})  # as of a model without a run
    model = tmp_path / "model"
    run("dump-weights", "--save-dir", run_copy, "--with-softmax", "--model-dir", model)
    test = ("test", "--test-prefix", HELDOUT, "--model")
    wanted, found = (combined_perplexity(run(*test, path)) for path in (run_copy, model))
    assert found == pytest.approx(wanted, rel=1e-6)
    score = ("score", text, "--format", "jsonl")
    assert run(*score, "--model", model) == run(*score, "--save-dir", run_copy)


def test_neither_without_a_softmax(made, text):
    message = refuse("score", text, "--model", made / "193.zip")
    assert message.startswith(f"{made / '193.zip'}/model.hdf5: has no softmax, without which")
    message = refuse("test", "--test-prefix", HELDOUT, "--model", made / "folder")
    assert "has no softmax" in message and "--with-softmax" in message


# --- what is refused ------------------------------------------------------------------------------------


def test_what_is_no_model(made, text, tmp_path):
    """Each is said by name, and where else it is to be given."""
    archive = made / "193.zip"
    embed = ("embed", text, tmp_path / "out.hdf5")
    for flags, message in (
        (
            ("--options-file", OPTIONS, "--weight-file", archive),
            f"{archive}: is a ZIP archive; if it contains ",
        ),
        (("--save-dir", made / "folder"), f"{made / 'folder'}: not a run directory: its options.json goes "),
        (("--save-dir", archive), f"{archive}: not a run directory: a ZIP archive; if it contains "),
    ):
        assert refuse(*embed, *flags).startswith(message)
    message = refuse(*embed, "--model", archive, "--checkpoint", "best", status=2)
    assert message == f"--checkpoint is for a run, and {archive} is not a run directory"
    message = refuse("restart", "--model", archive, "--train-prefix", TRAIN, status=2)
    assert message == f"{archive} is not a run; give --save-to for the new run directory"


# --- from Python ----------------------------------------------------------------------------------------


def test_the_keras_layer(made):
    ids = bilm.batch_to_ids([["Time", "flies"]])
    wanted = bilm.Elmo(OPTIONS, WEIGHTS)(ids)
    np.testing.assert_allclose(bilm.Elmo(model=made / "193.zip")(ids), wanted, atol=1e-6)
    for arguments in ({}, {"model": "x", "weight_file": WEIGHTS}):
        with pytest.raises(OptionsError, match="give options_file and weight_file, or model"):
            bilm.Elmo(**arguments)
