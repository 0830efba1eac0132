"""The commands on bilm-tf's own run directories, as they are."""

import json
import re
import shutil

import numpy as np
import pytest

import bilm
from bilm.run_directory.records import read_calls
from tests.helpers import GOLDEN, VARIANTS, hdf5_arrays, newest_arrays, run, snapshot, write_json

COMPAT = [
    pytest.param(variant, batch_size, perplexity, marks=[] if batch_size == "2" else [pytest.mark.slow])
    for variant in VARIANTS
    for batch_size, perplexity in json.loads((GOLDEN / variant / "expected.json").read_text())[
        "test_perplexity_by_batch_size"
    ].items()
]


@pytest.fixture
def shorter(tmp_path):
    """A copy of a directory with another window, which compiles faster and changes no perplexity."""

    def copy(variant):
        save_dir = shutil.copytree(GOLDEN / variant / "final", tmp_path / variant)
        options = json.loads((save_dir / "options.json").read_text())
        write_json(save_dir / "options.json", options | {"unroll_steps": 3})
        return save_dir

    return copy


@pytest.mark.parametrize(("variant", "batch_size", "perplexity"), COMPAT)
def test_compat_matches_bilm_tf(variant, batch_size, perplexity, shorter):
    folder = GOLDEN / variant
    output = run(
        *("test", "--test-prefix", folder / "heldout.txt", "--vocab-file", folder / "vocab.txt", "--json"),
        *("--save-dir", folder / "final" if batch_size == "4" else shorter(variant)),
        *("--compat", "bilm-tf", "--batch-size", batch_size),
    )
    result = json.loads(output.splitlines()[-1])
    assert result["perplexity"] == pytest.approx(perplexity, rel=1e-5)
    sides = {side: result[f"{side}_perplexity"] for side in ("forward", "backward")}
    shown = ", ".join(f"{side} {value:.4f}" for side, value in sides.items() if value is not None)
    assert f"perplexity: {shown}, combined {result['perplexity']:.4f} (" in output
    assert (sides["backward"] is None) == (variant == "char-forward")
    assert output.splitlines()[-2] == f"FINISHED!  AVERAGE PERPLEXITY = {result['perplexity']}"
    assert "model.ckpt-12, step 12" in output


@pytest.mark.slow
def test_compat_counts_blank_lines_as_bilm_tf(shorter, tmp_path):
    (tmp_path / "text").write_text("the\n\n" * 6)
    vocabulary, run_dir = GOLDEN / "word-shared" / "vocab.txt", shorter("word-shared")
    for how, n_tokens in (({"compat": "bilm-tf", "batch_size": 1}, 18), ({}, 12)):
        assert bilm.test(tmp_path / "text", run_dir, vocab_file=vocabulary, **how).tokens == n_tokens


@pytest.mark.parametrize("variant", VARIANTS)
def test_dump_matches_bilm_tf(variant, tmp_path):
    folder = GOLDEN / variant
    output = run("dump-weights", "--save-dir", folder / "final", "--outfile", tmp_path / "weights.hdf5")
    assert "read back and equal" in output
    arrays = hdf5_arrays(tmp_path / "weights.hdf5")
    if not (folder / "weights.hdf5").is_file():
        with np.load(folder / "final_variables.npz") as variables:
            expected = [name for name in variables if re.match("lm/(?!softmax/)(?!.*/Adagrad)", name)]
        assert len(arrays) == len(expected)
        return
    expected = hdf5_arrays(folder / "weights.hdf5")
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array, err_msg=name)
    options = json.loads((tmp_path / "options.json").read_text())
    assert options == json.loads((folder / "options.json").read_text())


@pytest.mark.parametrize("variant", ["char-forward", "word-shared"])
def test_restart_keeps_weights_and_step(variant, tmp_path):
    folder = GOLDEN / variant
    save_dir = shutil.copytree(folder / "final", tmp_path / "run")

    output = run(
        *("restart", "--train-prefix", folder / "train.txt", "--vocab-file", folder / "vocab.txt"),
        # A short window compiles fast; next to no learning rate leaves the weights as they were restored.
        *("--save-dir", save_dir, "--max-steps", 1, "--set", "unroll_steps=2", "--learning-rate", 1e-9),
    )
    assert "model.ckpt-12, step 12" in output and "\nstep 13 " in output
    after = newest_arrays(save_dir)
    assert after["global_step"] == 13
    (call,) = read_calls(save_dir / "calls.jsonl")
    assert call.options["variational_dropout"] is False  # as in bilm-tf, whose options have no such key
    with np.load(folder / "final_variables.npz") as before:
        assert {name for name in before if name.startswith("lm/")} < after.keys()
        for name in before:
            if name.endswith("/Adagrad"):
                assert (after[name] >= before[name]).all()
            elif name.startswith("lm/"):
                np.testing.assert_allclose(after[name], before[name], atol=1e-7, err_msg=name)
    # The checkpoint that was there is still there, and the options too.
    kept, there = snapshot(folder / "final"), snapshot(save_dir)
    assert {name for name, data in kept.items() if there[name] != data} == {"checkpoint"}
