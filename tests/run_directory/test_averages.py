"""A run that keeps the moving average of its weights: trained, and used by every command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bilm
from bilm.errors import CheckpointError, OptionsError, WeightsError
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.state import read_weights
from bilm.weights.checkpoint_file import CheckpointFile, write_checkpoint
from bilm.weights.hdf5_file import read_hdf5
from tests.helpers import (
    HELDOUT,
    TRAIN,
    assert_same_arrays,
    checkpoint_arrays,
    combined_perplexity,
    refuse,
    run,
    smallest_options,
    train_command,
    write_json,
)

DECAY = 0.2


@pytest.fixture(scope="module")
def averaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps, of which each has a checkpoint, and a validation after the last."""
    directory = tmp_path_factory.mktemp("averaged")
    options = write_json(directory / "options.json", smallest_options(weight_averaging=DECAY))
    flags = ("--seed", 7, "--max-steps", 4, "--save-every", 1, "--keep", 9)
    run(*train_command(directory / "run", options, *flags, "--heldout-prefix", HELDOUT, "--eval-every", 4))
    return directory / "run"


def test_the_averages_in_checkpoints_are_those_of_the_weights_in_them(averaged):
    opened = RunDirectory.open(averaged)
    expected = opened.weights("1")
    for t in range(2, 5):
        left = min(DECAY, t / (9 + t))
        raw, found = opened.weights(str(t), "raw"), opened.weights(str(t), "averaged")
        for name, weight in raw.items():
            expected[name] = left * expected[name] + (1 - left) * weight
            np.testing.assert_allclose(found[name], expected[name], atol=1e-6, err_msg=name)
    assert not np.allclose(found["softmax/b"], raw["softmax/b"], atol=1e-5)
    assert_same_arrays(opened.weights(), found)
    tf1 = checkpoint_arrays(averaged / "model.ckpt-4")
    assert all(np.array_equal(tf1[name.tf1], raw[name.own]) for name in opened.names)


def test_commands_take_the_averages_unless_told_otherwise(averaged, tmp_path):
    text = ("test", "--test-prefix", HELDOUT, "--save-dir", averaged, "--batch-size", 2)
    by_default, asked, raw = (
        run(*text, *flags) for flags in ((), ("--weights", "averaged"), ("--weights", "raw"))
    )
    assert combined_perplexity(by_default) == combined_perplexity(asked) != combined_perplexity(raw)
    assert "step 4, averaged weights\n" in by_default and "averaged weights" not in raw
    records = [json.loads(line) for line in (averaged / "metrics.jsonl").read_text().splitlines()]
    (heldout,) = (record["perplexity"] for record in records if record["kind"] == "heldout")
    assert combined_perplexity(asked) == pytest.approx(heldout, rel=1e-5)

    opened = RunDirectory.open(averaged)
    names = [name for name in opened.names if not name.is_softmax]
    for flags, weights in (((), "averaged"), (("--weights", "raw"), "raw")):
        run("dump-weights", "--save-dir", averaged, "--outfile", tmp_path / f"{weights}.hdf5", *flags)
        expected = {name.own: opened.weights(weights=weights)[name.own] for name in names}
        assert_same_arrays(read_hdf5(tmp_path / f"{weights}.hdf5", names), expected)
    by_default, asked, raw = (
        bilm.ElmoEmbedder.from_run(averaged, weights=weights).fingerprint
        for weights in (None, "averaged", "raw")
    )
    assert by_default == asked != raw


@pytest.mark.parametrize("weights", ["averaged", "raw"])
def test_a_restart_begins_at_them(averaged, weights, tmp_path):
    flags = ("--max-steps", 1, "--learning-rate", 1e-9, "--seed", 1, "--freeze", "softmax")
    chosen = () if weights == "averaged" else ("--weights", weights)
    run(
        *("restart", "--train-prefix", TRAIN, "--save-dir", averaged, "--save-to", tmp_path / "to"),
        *(*flags, *chosen),
    )
    before, after = RunDirectory.open(averaged), RunDirectory.open(tmp_path / "to")
    expected = before.weights(weights=weights)
    for name, array in after.weights(weights="raw").items():
        np.testing.assert_allclose(array, expected[name], atol=1e-6, err_msg=name)
    # What was frozen has no average, and is its own.
    assert "bilm/average/softmax/W" not in checkpoint_arrays(tmp_path / "to" / "model.ckpt-5", extras=True)
    np.testing.assert_array_equal(after.weights()["softmax/W"], expected["softmax/W"])


def test_averages_that_are_not_there(trained):
    opened = RunDirectory.open(trained.path)
    assert_same_arrays(opened.weights(), opened.weights(weights="raw"))
    with pytest.raises(OptionsError, match="`weights` is 'mean', not one of raw, averaged"):
        opened.weights(weights="mean")
    message = refuse("test", "--test-prefix", HELDOUT, "--save-dir", trained.path, "--weights", "averaged")
    assert message.startswith(f"{trained.path / 'model.ckpt-2'}: has no averages of its weights")
    message = refuse(*("embed", HELDOUT, trained.path.with_name("none.hdf5"), "--weights", "raw"), status=2)
    assert "--checkpoint and --weights are for a run" in message


@pytest.mark.parametrize(
    ("name", "damaged", "error"),
    [
        ("bilm/average_updates", np.int64(-1), CheckpointError),
        ("bilm/average_decay", np.float64("nan"), CheckpointError),
        ("bilm/average_decay", np.zeros(3), CheckpointError),
        ("bilm/average_counts/softmax/b", np.full(73, 9), CheckpointError),
        ("bilm/average_counts/softmax/b", np.zeros(73), CheckpointError),
        ("bilm/average_counts/softmax/b", np.full(72, 1), WeightsError),
        ("bilm/average/softmax/b", np.zeros(72, np.float32), WeightsError),
        ("bilm/average/softmax/b", np.full(73, np.inf, np.float32), CheckpointError),
    ],
)
def test_damaged_averages(averaged, name, damaged, error, tmp_path):
    opened = RunDirectory.open(averaged)
    extras = checkpoint_arrays(averaged / "model.ckpt-4", extras=True)
    extras = {key: array for key, array in extras.items() if key.startswith("bilm/average")}
    assert name in extras
    write_checkpoint(
        tmp_path / "model.ckpt-4",
        opened.names,
        opened.weights("4", "raw"),
        {},
        4,
        1.0,
        extras | {name: damaged},
    )
    with pytest.raises(error, match="model.ckpt-4"):
        read_weights(CheckpointFile(tmp_path / "model.ckpt-4"), opened.names, None)
