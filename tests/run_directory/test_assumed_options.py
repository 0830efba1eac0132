"""Runs whose options were cut: what the checkpoint tells, what is assumed, and that it is said."""

import json
import shutil

import pytest

from bilm.run_directory.directory import RunDirectory, complete_options
from tests.helpers import GOLDEN, HELDOUT, VOCAB, combined_perplexity, run, write_json


def without(path, *keys):
    """Take keys out of the options of a run."""
    options = json.loads((path / "options.json").read_text())
    write_json(path / "options.json", {key: value for key, value in options.items() if key not in keys})
    return path


@pytest.fixture
def foreign(tmp_path):
    """A run of bilm-tf's."""
    return shutil.copytree(GOLDEN / "char" / "final", tmp_path / "final")


def test_a_checkpoint_of_ours_has_the_options_of_its_training(run_copy, caplog):
    whole = RunDirectory.open(run_copy).options
    keys = ("unroll_steps", "batch_size", "n_negative_samples_batch", "optimizer", "dropout")
    opened = RunDirectory.open(without(run_copy, *keys))
    assert opened.options != whole and complete_options(opened, opened.latest()) == whole
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{run_copy / 'options.json'} lacks some options; taken from the checkpoint: "
        "batch_size 2, unroll_steps 3, n_negative_samples_batch 16"
    )


def test_what_a_foreign_run_lacks_is_assumed_and_said(foreign, caplog):
    whole = RunDirectory.open(foreign)
    assert complete_options(whole, whole.latest()) == whole.options
    opened = RunDirectory.open(without(foreign, "unroll_steps", "batch_size", "n_negative_samples_batch"))
    assert caplog.records == []
    options = complete_options(opened, opened.latest(), given={"batch_size": 7})
    assert options == opened.options
    (record,) = caplog.records
    assert record.getMessage().endswith("assumed: unroll_steps 20, n_negative_samples_batch 8192")
    caplog.clear()
    complete_options(opened, opened.latest(), needed=("n_epochs",))
    assert caplog.records == []


def test_the_number_of_bilm_tf_needs_no_training_options(tmp_path, caplog):
    foreign = shutil.copytree(GOLDEN / "word-shared" / "final", tmp_path / "final")
    recorded = json.loads((GOLDEN / "word-shared" / "expected.json").read_text())
    before = recorded["test_perplexity_by_batch_size"]["2"]
    flags = ("test", "--test-prefix", HELDOUT, "--vocab-file", VOCAB, "--save-dir", foreign)
    flags = (*flags, "--batch-size", 2)
    without(foreign, "unroll_steps", "batch_size", "n_negative_samples_batch", "dropout", "n_epochs")
    assert combined_perplexity(run(*flags, "--compat", "bilm-tf")) == pytest.approx(before, abs=2e-4)
    assert caplog.records == []
    run(*flags)
    assert [record.getMessage().partition("assumed")[2] for record in caplog.records] == [": unroll_steps 20"]
