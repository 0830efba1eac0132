"""Every kind of model goes the whole road: trained for two steps, tested, dumped."""

import re

import pytest

from tests.helpers import HELDOUT, checkpoint_arrays, combined_perplexity, newest, run, train_command

FORWARD = {"bidirectional": False}
WORDS = {"char_cnn": None}
SHARED = {"share_embedding_softmax": True, "dropout": 0.0} | WORDS
EVERY_DROPOUT = {
    "variational_dropout": False,
    "word_dropout": 0.3,
    "type_dropout": 0.2,
    "weight_dropout": 0.5,
}
OTHER_LAYERS = {
    "char_cnn": {"activation": "tanh", "n_highway": 0},
    "lstm": {"n_layers": 3, "use_skip_connections": False, "projection_dim": 8, "cell_clip": None},
}
VARIANTS = [
    pytest.param(SHARED | FORWARD, id="shared softmax, one direction"),
    pytest.param({"lstm": {"n_layers": 1}} | FORWARD, id="one layer", marks=pytest.mark.slow),
    pytest.param(EVERY_DROPOUT | WORDS | FORWARD, id="every kind of dropout, word-level"),
    pytest.param({"n_negative_samples_batch": 8192} | SHARED, id="large sample", marks=pytest.mark.slow),
    pytest.param(OTHER_LAYERS, id="tanh, no highway, skip or projection", marks=pytest.mark.slow),
    pytest.param({"sample_softmax": False, "lstm": {"n_layers": 1}} | WORDS, id="full softmax, one layer"),
]


@pytest.mark.parametrize("changes", VARIANTS)
def test_variant(changes, tmp_path, small_file):
    save_dir = tmp_path / "run"
    output = run(*train_command(save_dir, small_file(**changes), "--max-steps", 2))
    full = changes.get("sample_softmax") is False or changes.get("n_negative_samples_batch", 16) > 73
    assert ("sampled perplexity" in output) != full

    output = run("test", "--test-prefix", HELDOUT, "--save-dir", save_dir)
    assert 20 < combined_perplexity(output) < 150

    variables = checkpoint_arrays(newest(save_dir))
    n_weights = sum(re.match("lm/(?!softmax)(?!.*/Adagrad)", key) is not None for key in variables)
    output = run("dump-weights", "--save-dir", save_dir, "--outfile", tmp_path / "weights.hdf5")
    assert f"{n_weights} arrays, " in output
