"""`bilm info`: what a run directory or a weight file is."""

import json
import math
import re
import shutil

import h5py
import pytest

from bilm.run_directory.state import Best, RunState
from tests.helpers import GOLDEN, VARIANTS, newest_arrays, refuse, run, write_json
from tests.records import call_line, heldout_line, train_line, write_lines

WEIGHTS = GOLDEN / "char" / "weights.hdf5"


@pytest.fixture
def weights(tmp_path):
    """A copy of dumped weights, without options beside it."""
    return shutil.copyfile(WEIGHTS, tmp_path / "w.hdf5")


def as_json(path):
    return json.loads(run("info", path, "--json"))


# --- runs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_directory_of_bilm_tf(variant):
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


def test_a_run_and_its_records(run_copy, monkeypatch):
    state = RunState({}, best=Best(1, 250.0))
    monkeypatch.setattr("bilm.run_directory.state.read_state", lambda checkpoint: state)
    first, last = heldout_line(1, best=True, perplexity=250.0), heldout_line(2, perplexity=1260.9)
    write_lines(run_copy / "metrics.jsonl", first, train_line(2, epoch=1.25, tokens=4096), last)
    call = call_line(step=1, seed=8, command="bilm restart \udcff")
    write_lines(run_copy / "calls.jsonl", call_line(), call)
    for file in list(run_copy.glob("model.ckpt-2.*")):
        shutil.copyfile(file, run_copy / file.name.replace("ckpt-2", "ckpt-1"))
    output = run("info", "--model", run_copy)
    assert "trained: to step 2; in the last command 1.25 epochs, 4,096 tokens" in output
    assert "heldout perplexity: 1,260.90 at step 2, best 250.00 at step 1" in output
    assert "last command: bilm restart \\udcff\n" in output
    assert "from step 1, seed 8; bilm 0.1.0, tensorflow 2.21.0" in output
    assert re.search(r"^  step 1 .* best\n  step 2 .* newest$", output, re.MULTILINE)
    assert re.search(r"^vocabulary: \d+ words, vocab.txt$", output, re.MULTILINE)
    found = as_json(run_copy)
    marks = [(one["step"], one["is_newest"], one["is_best"]) for one in found["checkpoints"]]
    assert marks == [(1, False, True), (2, True, False)]
    data = [size for name, size in found["files"].items() if name.startswith("model.ckpt-1.")]
    assert found["checkpoints"][0]["n_bytes"] == sum(data) > 0


# --- weights ------------------------------------------------------------------------------------------


def test_weights_alone_tell_their_shapes(weights):
    output = run("info", weights, "--arrays")
    assert "options: none next to it; the above is inferred from the arrays' shapes" in output
    assert "characters: 44 filters of widths 1-4 over 4 dimensions; highways: 2\n" in output
    assert "LSTM: 2 x 24 projected to 12, both directions\n" in output
    assert re.search(r"^  CNN/W_cnn_3 +1 x 4 x 4 x 16$", output, re.MULTILINE)
    found = as_json(weights)
    assert found["inferred"] and found["options_file"] is None
    assert found["options"]["lstm"] == {"dim": 24, "projection_dim": 12, "n_layers": 2}


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_is_inferred_as_its_options_have_it(variant, tmp_path):
    weights = tmp_path / "w.hdf5"
    flags = ("--outfile", weights, "--with-softmax")
    run("dump-weights", "--save-dir", GOLDEN / variant / "final", *flags)
    with_options = as_json(weights)
    (tmp_path / "options.json").unlink()
    alone = as_json(weights)
    assert alone["inferred"] and not with_options["inferred"]
    assert alone["arrays"] == with_options["arrays"] and alone["parts"] == with_options["parts"]
    assert alone["vocabulary"] == 73


def test_options_of_another_model_are_told(weights, tmp_path):
    options = json.loads(WEIGHTS.with_name("options.json").read_text())
    options["lstm"]["n_layers"] = 1000  # the most there may be
    file = write_json(tmp_path / "options.json", options)
    output = run("info", weights)
    assert f"options: {file} does not fit; the above is inferred from the arrays' shapes\n" in output
    assert output.endswith("  to fit, change lstm.n_layers (1000 to 2)\n")
    file.write_text("{")
    assert f"  {file}: not JSON" in run("info", weights)


def test_what_is_neither(tmp_path):
    assert refuse("info", tmp_path / "none") == f"{tmp_path}/none: no such file or directory"
    of_words = GOLDEN / "char" / "token_embeddings.hdf5"
    assert "no LSTM among its arrays (embedding (" in refuse("info", of_words)
    assert "char_ids is not an array of floats" in refuse("info", GOLDEN / "char" / "embeddings.hdf5")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("RNN_0/RNN/MultiRNNCell/Cell999999999/LSTMCell/W_0", (24, 96)),
        ("CNN_high_0/W_carry", (44, 45)),
        ("CNN/W_cnn_0", (4,)),
        ("CNN/W_cnn_" + "9" * 5000, (3,)),
        ("char_embed", (10**9, 10**9)),
        ("softmax/b", ()),
    ],
    ids=["cell", "highway", "filter", "long-number", "large", "softmax"],
)
def test_arrays_that_do_not_go_together(weights, name, shape):
    with h5py.File(weights, "a") as file:
        if name in file:
            del file[name]
        file.create_dataset(name, shape, "float32", chunks=(1,) * len(shape) or None)
    assert refuse("info", weights).startswith(f"{weights}: the arrays do not form a biLM:\n  ")
