"""`bilm info`, and commands that take a model by its path, ``--model``."""

import json
import math
import re
import shutil

import h5py
import numpy as np
import pytest

import bilm
from bilm.analysis.info import _architecture
from bilm.errors import OptionsError
from bilm.options import LSTMOptions, Options
from bilm.run_directory import files
from tests.distributed import OPTIONS, WEIGHTS, model_files, write_folder, write_zip
from tests.helpers import GOLDEN, TRAIN, VARIANTS, newest_arrays, refuse, run, write_json
from tests.records import call_line, heldout_line, train_line, write_lines


@pytest.fixture
def weights(tmp_path):
    """A copy of dumped weights and their options."""
    shutil.copyfile(OPTIONS, tmp_path / "options.json")
    return shutil.copyfile(WEIGHTS, tmp_path / "w.hdf5")


def as_json(path):
    return json.loads(run("info", path, "--json"))


# --- runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_info_reads_bilm_tf(variant):
    directory = GOLDEN / variant / "final"
    found = as_json(directory)
    shapes = {one["name"]: tuple(one["shape"]) for one in found["arrays"]}
    arrays = newest_arrays(directory)
    assert shapes == {name: arrays[name].shape for name in arrays if re.match(r"lm/(?!.*/Adagrad)", name)}
    assert found["parameters"] == sum(found["parts"].values()) == sum(map(math.prod, shapes.values()))
    assert found["step"] == 12 and found["trained"] is found["last_heldout"] is found["last_call"] is None
    output = run("info", directory)
    assert "vocabulary: 73 words, not in the directory" in output
    assert re.search(r"^  step 12 +[\d.]+ kB  newest$", output, re.MULTILINE)


def test_info_reads_records(run_copy, monkeypatch):
    monkeypatch.setattr("bilm.run_directory.state.best_step", lambda checkpoint: 1)
    first, last = heldout_line(1, best=True, perplexity=250.0), heldout_line(2, perplexity=1260.9)
    write_lines(run_copy / "metrics.jsonl", first, train_line(2, epoch=1.25, tokens=4096), last)
    call = call_line(step=1, seed=8, command="bilm restart \udcff")
    write_lines(run_copy / "calls.jsonl", call_line(), call)
    for file in list(run_copy.glob("model.ckpt-2.*")):
        for other in ("ckpt-1", "ckpt-10"):
            shutil.copyfile(file, run_copy / file.name.replace("ckpt-2", other))
    output = run("info", run_copy)
    assert "recorded: up to step 2; 1.25 epochs, 4,096 tokens in the last train or restart" in output
    assert "heldout perplexity: 1,260.90 at step 2, best 250.00 at step 1" in output
    assert "last command: bilm restart \\udcff\n" in output
    assert "from step 1, seed 8; bilm 0.1.0, tensorflow 2.21.0" in output
    assert re.search(r"^  step 1 .* best\n  step 2 .* newest$", output, re.MULTILINE)
    assert re.search(r"^vocabulary: \d+ words, vocab.txt$", output, re.MULTILINE)
    found = as_json(run_copy)
    marks = [(one["step"], one["is_newest"], one["is_best"]) for one in found["checkpoints"]]
    assert marks == [(1, False, True), (2, True, False), (10, False, False)]
    assert (found["last_heldout"]["perplexity"], found["last_call"]["seed"]) == (1260.9, 8)
    data = [size for name, size in found["files"].items() if name.startswith("model.ckpt-1.")]
    assert found["checkpoints"][0]["n_bytes"] == sum(data) > 0
    assert "\ntraining: batches of 2 x 3 tokens, 16 classes sampled, adagrad 0.2, dropout 0.1\n" in output
    assert found["parts"] == {"word vectors": 73 * 4, "forward LSTM": 8 * 32 + 32 + 8 * 4, "softmax": 73 * 5}
    assert found["trained"] == {"step": 2, "epoch": 1.25, "tokens": 4096}
    assert found["best_heldout"]["perplexity"] == 250.0
    for n_done, is_told in ((2, True), (0, False)):  # resumed at step 2, or begun there
        write_lines(run_copy / "calls.jsonl", call_line(), call_line(step=2, n_done=n_done))
        assert ("1.25 epochs" in run("info", run_copy)) == is_told


def test_lstm_is_described():
    residual = LSTMOptions(1024, 128, 2, cell_clip=3, proj_clip=0.5, use_skip_connections=True)
    clips = "residual, cell clipped at 3, projection clipped at 0.5"
    for options, line in (
        (Options(residual, bidirectional=True), f"2 x 1,024 projected to 128, both directions, {clips}"),
        (Options(LSTMOptions(8, 8)), "1 x 8, not projected, forward only, not residual"),
    ):
        assert [*_architecture({}, options)] == ["parameters: 0", f"LSTM: {line}"]


@pytest.mark.parametrize("command", [("info",), ("test", "--test-prefix", TRAIN, "--save-dir")])
def test_training_that_begins_is_told(command, tmp_path):
    with files.writing(tmp_path / "run"):
        message = refuse(*command, tmp_path / "run")
    assert message.endswith(
        "run: not a run directory: a training there is still reading its text, or was killed meanwhile"
    )


def test_info_names_checkpoint_elsewhere(tmp_path):
    """As a state file of bilm-tf may."""
    final = GOLDEN / "char" / "final"
    shutil.copyfile(final / "options.json", tmp_path / "options.json")
    (tmp_path / "checkpoint").write_text(f'model_checkpoint_path: "{final}/model.ckpt-12"\n')
    (one,) = as_json(tmp_path)["checkpoints"]
    assert one["prefix"] == f"{final}/model.ckpt-12" and one["is_newest"] and one["n_bytes"] > 0


# --- weights ------------------------------------------------------------------------------------------


def test_info_reads_weights(weights):
    output = run("info", weights, "--arrays")
    line = "44 filters of widths 1-4 over 4 dimensions, relu, words of at most 50 characters; highways: 2"
    assert f"characters: {line}\n" in output
    assert re.search(r"^  CNN/W_cnn_3 +1 x 4 x 4 x 16$", output, re.MULTILINE)
    options = weights.with_name("options.json")
    assert f"\noptions: {options}\n" in output
    found = as_json(weights)
    assert found["options"]["bidirectional"] and found["options"]["lstm"]["dim"] == 24
    assert found["options_file"] == str(options) and found["vocabulary"] is None
    options.unlink()
    assert "not a model: no options.json; found w.hdf5" in refuse("info", weights)


def test_other_files_are_refused(weights, trained, tmp_path):
    with h5py.File(weights, "a") as file:
        file["extra"] = np.zeros(3, "f4")
    assert "unexpected: 'extra' (3,)" in refuse("info", weights)
    assert "Invalid value for 'MODEL': Path" in refuse("info", tmp_path / "none", status=2)
    message = refuse("info", trained / "model.ckpt-2", status=2)
    assert f"{trained}/model.ckpt-2 is a checkpoint, which `bilm test` takes as --model" in message
    assert "'char_ids' is not a stored array of floats" in refuse("info", GOLDEN / "char" / "embeddings.hdf5")


# --- a model by its path --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder and an archive; not to be changed."""
    place = tmp_path_factory.mktemp("made")
    write_folder(place / "folder", model_files())
    write_zip(place / "193.zip", model_files())
    return place


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Time flies\n\nthe river sang\n")
    return path


@pytest.mark.slow
def test_test_and_score(run_copy, text, tmp_path):
    options = json.loads((run_copy / "options.json").read_text())
    write_json(run_copy / "options.json", options | {"unroll_steps": 20})  # as of a model without a run
    model = tmp_path / "model"
    run("dump-weights", "--save-dir", run_copy, "--with-softmax", "--model-dir", model)
    test = ("test", "--test-prefix", text, "--json", "--model")
    wanted, found = (json.loads(run(*test, path).splitlines()[-1]) for path in (run_copy, model))
    assert found["perplexity"] == pytest.approx(wanted["perplexity"], rel=1e-6)
    score = ("score", text, "--format", "jsonl")
    assert run(*score, "--model", model) == run(*score, "--save-dir", run_copy)


def test_neither_without_a_softmax(made, text):
    message = refuse("score", text, "--model", made / "193.zip")
    assert message.startswith(f"{made / '193.zip'}/model.hdf5: has no softmax, without which")
    message = refuse("test", "--test-prefix", text, "--model", made / "folder")
    assert "has no softmax" in message and "--with-softmax" in message


# --- what is refused ------------------------------------------------------------------------------------


def test_what_is_no_model(made, text, tmp_path):
    """Each is said by name, and where else it is to be given."""
    archive = made / "193.zip"
    embed = ("embed", text, tmp_path / "out.hdf5")
    for flags, message in (
        (("--save-dir", made / "folder"), f"{made / 'folder'}: not a run directory: its options.json goes "),
        (("--save-dir", archive), f"{archive}: not a run directory: a ZIP archive; if it contains "),
    ):
        assert refuse(*embed, *flags).startswith(message)
    message = refuse(*embed, "--model", archive, "--checkpoint", "best", status=2)
    assert message == f"--checkpoint is for a run, and {archive} is not a run directory"
    message = refuse("restart", "--model", archive, "--train-prefix", text, status=2)
    assert message == f"{archive} is not a run; give --save-to for the new run directory"


# --- from Python ----------------------------------------------------------------------------------------


def test_the_keras_layer(made):
    ids = bilm.batch_to_ids([["Time", "flies"]])
    wanted = bilm.Elmo(OPTIONS, WEIGHTS)(ids)
    np.testing.assert_allclose(bilm.Elmo(model=made / "193.zip")(ids), wanted, atol=1e-6)
    for arguments in ({}, {"model": "x", "weight_file": WEIGHTS}):
        with pytest.raises(OptionsError, match="give options_file and weight_file, or model"):
            bilm.Elmo(**arguments)
