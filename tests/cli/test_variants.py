"""Every kind of model goes the whole road: trained for two steps, tested, dumped."""

from __future__ import annotations

import json

import h5py
import pytest

from tests.helpers import HELDOUT, checkpoint_arrays, newest, run, train_command

ONE_LAYER = {"lstm": {"n_layers": 1}}
FORWARD = {"bidirectional": False}
EVERY_DROPOUT = {
    "variational_dropout": False,
    "word_dropout": 0.3,
    "type_dropout": 0.2,
    "weight_dropout": 0.5,
}
VARIANTS = {
    "shared softmax": {"char_cnn": None, "share_embedding_softmax": True, "dropout": 0.0} | FORWARD,
    "one layer, one direction": {**ONE_LAYER, **FORWARD},
    "every kind of dropout, word-level": {"char_cnn": None, **EVERY_DROPOUT, **ONE_LAYER, **FORWARD},
}
LONGER = {
    "every kind of dropout": {**EVERY_DROPOUT, **ONE_LAYER, **FORWARD},
    "sample no smaller than the vocabulary": {"n_negative_samples_batch": 8192, "char_cnn": None, **FORWARD},
    "one layer, full softmax": {"sample_softmax": False, "char_cnn": None, **ONE_LAYER},
    "shared softmax, two directions": {
        "char_cnn": None,
        "share_embedding_softmax": True,
        "dropout": 0.0,
    },
    "tanh, three layers": {"char_cnn": {"activation": "tanh"}, "lstm": {"n_layers": 3}},
    "no highway, no skip": {"char_cnn": {"n_highway": 0}, "lstm": {"use_skip_connections": False}},
    "no projection, no clip": {"lstm": {"projection_dim": 8, "cell_clip": None, "proj_clip": None}},
}


@pytest.mark.parametrize(
    ("name", "changes"),
    [*VARIANTS.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in LONGER.items())],
    ids=[*VARIANTS, *LONGER],
)
def test_variant(name, changes, tmp_path, small_file):
    save_dir, weights = tmp_path / "run", tmp_path / "weights.hdf5"
    output = run(*train_command(save_dir, small_file(**changes), "--max-steps", 2))
    full = changes.get("sample_softmax") is False or changes.get("n_negative_samples_batch", 16) > 73
    assert ("sampled perplexity" in output) != full

    output = run("test", "--test-prefix", HELDOUT, "--save-dir", save_dir, "--json")
    result = json.loads(output.splitlines()[-1])
    assert result["tokens"] == 747 and 20 < result["perplexity"] < 150

    run("dump-weights", "--save-dir", save_dir, "--outfile", weights)
    variables = checkpoint_arrays(newest(save_dir))
    options = json.loads((tmp_path / "options.json").read_text())
    with h5py.File(weights) as file:
        found = set()
        file.visititems(lambda key, item: found.add(key) if isinstance(item, h5py.Dataset) else None)
    n_weights = sum(
        key.startswith("lm/") and not key.endswith("/Adagrad") and "softmax" not in key for key in variables
    )
    assert len(found) == n_weights

    assert ("char_cnn" in options) == ("lm/embedding" not in variables)
    assert ("lm/softmax/W" in variables) == (not changes.get("share_embedding_softmax"))
    assert any("multi_rnn_cell" in key for key in variables) == (options["lstm"]["n_layers"] > 1)
    if "full softmax" in name:  # TensorFlow 1 leaves MultiRNNCell and the number out
        leaves = ("kernel", "bias", "projection/kernel")
        expected = {f"lm/RNN_{i}/rnn/lstm_cell/{leaf}" for i in (0, 1) for leaf in leaves}
        rnn = {key for key in variables if "rnn" in key}
        assert rnn == expected | {f"{key}/Adagrad" for key in expected}
    assert any("/RNN_1/" in key for key in variables) == changes.get("bidirectional", True)
    assert any("/projection/kernel" in key for key in variables) == (options["lstm"]["projection_dim"] < 8)
    assert any("/CNN_high_" in key for key in variables) == bool(options.get("char_cnn", {}).get("n_highway"))
