"""`bilm restart` into a new run: another vocabulary, dumped weights, parts that do not learn."""

import json
import shutil

import numpy as np
import pytest

from bilm.cli.process import STOPPED_STATUS
from bilm.options.options_file import load_inference_options
from bilm.weights.hdf5_file import read_hdf5
from bilm.weights.names import dump_names
from tests.helpers import GOLDEN, TRAIN, VOCAB, invoke, newest_arrays, refuse, run, snapshot, write_json

# A window of three steps compiles fast; next to no learning rate leaves what was begun with in view.
STILL = ("--max-steps", 1, "--learning-rate", 1e-9, "--seed", 1)
SHORT = ("--set", "unroll_steps=3", "--batch-size", 2, "--set", "n_negative_samples_batch=16")
OLD_WORDS = VOCAB.read_text().split()
NEW_WORDS = [*OLD_WORDS[:3], "zebra", *OLD_WORDS[40:10:-1], "quagga"]


@pytest.fixture
def new_vocabulary(tmp_path):
    path = tmp_path / "new.txt"
    path.write_text("".join(f"{word}\n" for word in NEW_WORDS))
    return path


def restart(save_dir, save_to, *flags):
    return ("restart", "--train-prefix", TRAIN, "--save-dir", save_dir, "--save-to", save_to, *flags)


def assert_rows_followed(after, before, name, atol=1e-6):
    """The rows of shared words are those they had; all are numbers."""
    assert len(after[name]) == len(NEW_WORDS) and np.isfinite(after[name]).all()
    kept = [(i, OLD_WORDS.index(word)) for i, word in enumerate(NEW_WORDS) if word in OLD_WORDS]
    here, there = map(list, zip(*kept, strict=True))
    np.testing.assert_allclose(after[name][here], before[name][there], atol=atol, err_msg=name)


# --- another vocabulary -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["trained", "trained_whole"])
def test_remapped_restart_resumes(kind, request, new_vocabulary, tmp_path, monkeypatch):
    """A model over words, whose embedding follows, and one over characters, whose encoder stays."""
    trained = request.getfixturevalue(kind)
    before, old = snapshot(trained), newest_arrays(trained)
    save_to = tmp_path / "to"
    remap = ("--vocab-file", new_vocabulary, "--remap-vocab")
    still = ("--max-steps", 2, "--learning-rate", 1e-9, "--seed", 1)
    arguments = restart(trained, save_to, *remap, *still, "--resume")
    with monkeypatch.context() as patched:
        patched.setattr("bilm.runs.loop.Ending.should_stop", lambda self: setattr(self, "_is_stopping", True))
        stopped = invoke(*arguments)
    assert stopped.exit_code == STOPPED_STATUS, stopped.output
    assert "\nvocabulary: 33 words kept, 2 new, 40 dropped\n" in stopped.output
    assert f"restarting: {trained / 'model.ckpt-2'}, step 2\n" in stopped.output
    after = newest_arrays(save_to)
    for name in old:
        if name in ("lm/softmax/W", "lm/embedding"):
            assert_rows_followed(after, old, name)
        elif name.startswith("lm/") and not name.endswith(("/Adagrad", "softmax/b")):
            np.testing.assert_allclose(after[name], old[name], atol=1e-6, err_msg=name)
    assert_rows_followed(after, old, "lm/softmax/W/Adagrad", atol=1.0)  # one step more
    assert after["lm/softmax/W/Adagrad"].min() >= 1.0  # where new words begin
    assert json.loads((save_to / "options.json").read_text())["n_tokens_vocab"] == len(NEW_WORDS)
    assert (save_to / "vocab.txt").read_text() == new_vocabulary.read_text()

    output = run(*arguments)
    assert f"resuming: {save_to / 'model.ckpt-3'}, step 3, 1 of 2 done" in output
    assert "vocabulary:" not in output and newest_arrays(save_to)["global_step"] == 4
    assert snapshot(trained) == before


# --- parts that do not learn ------------------------------------------------------------------------


def test_freeze_refuses_shared_table(tmp_path):
    for part in "encoder", "softmax":
        flags = ("--vocab-file", VOCAB, "--freeze", part)
        message = refuse(*restart(GOLDEN / "word-shared" / "final", tmp_path / "to", *flags))
        assert message.startswith(f"--freeze {part}: the softmax of this model is its word embedding")


# --- dumped weights ---------------------------------------------------------------------------------


def from_dump(folder, vocabulary, tmp_path, *flags):
    pair = ("--weight-file", folder / "weights.hdf5", "--options-file", folder / "options.json")
    new = ("--vocab-file", vocabulary, "--save-to", tmp_path / "to")
    return ("restart", "--train-prefix", TRAIN, *pair, *new, *flags)


@pytest.mark.slow
def test_restart_from_bilm_tf_dump_learns_softmax(new_vocabulary, tmp_path):
    folder = GOLDEN / "char"
    output = run(*from_dump(folder, new_vocabulary, tmp_path, *STILL, *SHORT))
    assert f"starting: {folder / 'weights.hdf5'}, with a new softmax\n" in output
    assert "\noptimizer: adagrad, learning rate 1e-09\n" in output
    after = newest_arrays(tmp_path / "to")
    assert after["global_step"] == 1
    names = dump_names(load_inference_options(folder / "options.json"))
    dumped = read_hdf5(folder / "weights.hdf5", names)
    assert len(dumped) > 20
    for name in names:
        if name.own in dumped:
            np.testing.assert_allclose(after[name.tf1], dumped[name.own], atol=1e-6, err_msg=name.own)
    biases = np.exp(after["lm/softmax/b"])
    assert biases.sum() == pytest.approx(1, abs=1e-4) and biases[2] == biases.max()  # most words are unknown
    assert "its rows start from the words' neighbours" not in output
    flags = (*STILL, *SHORT, "--recipe", "one-pass", "--overwrite")
    assert "its rows start from the words' neighbours" in run(*from_dump(folder, VOCAB, tmp_path, *flags))
    lengths = np.linalg.norm(newest_arrays(tmp_path / "to")["lm/softmax/W"], axis=1)
    np.testing.assert_allclose(lengths, 1, atol=0.01)
    message = refuse(*from_dump(folder, VOCAB, tmp_path, "--remap-vocab"), status=2)
    assert "has no softmax to carry over; leave it out" in message
    message = refuse(*from_dump(folder, VOCAB, tmp_path, "--freeze", "softmax"))
    assert message == "--freeze softmax: there is no trained softmax for this vocabulary to freeze"


@pytest.mark.slow
def test_restart_from_dump_keeps_softmax(trained, tmp_path):
    """And replaces the run that was where it is told to save."""
    run("dump-weights", "--save-dir", trained, "--outfile", tmp_path / "weights.hdf5", "--with-softmax")
    shutil.copytree(trained, tmp_path / "to")
    output = run(*from_dump(tmp_path, VOCAB, tmp_path, *STILL, *SHORT, "--overwrite"))
    assert [file.name for file in (tmp_path / "to").glob("*.index")] == ["model.ckpt-1.index"]
    assert f"starting: {tmp_path / 'weights.hdf5'}\n" in output
    before, after = newest_arrays(trained), newest_arrays(tmp_path / "to")
    for name in before:
        if name.startswith("lm/") and not name.endswith("/Adagrad"):
            np.testing.assert_allclose(after[name], before[name], atol=1e-6, err_msg=name)


# --- bad input --------------------------------------------------------------------------------------


def test_restart_refuses_other_words(trained, new_vocabulary, tmp_path):
    start = ("restart", "--train-prefix", TRAIN, "--save-dir", trained, "--vocab-file", new_vocabulary)
    assert refuse(*start).endswith("--remap-vocab adapts the model to another")
    assert "--remap-vocab needs --save-to: a run keeps its" in refuse(*start, "--remap-vocab", status=2)
    old = ("--old-vocab-file", new_vocabulary)
    message = refuse(*start, "--remap-vocab", "--save-to", tmp_path / "to", *old)
    assert message.endswith("give it as --old-vocab-file") and not (tmp_path / "to").exists()
    char, weights = GOLDEN / "char" / "final", tmp_path / "w.hdf5"
    run("dump-weights", "--save-dir", char, "--outfile", weights, "--with-softmax")
    from_dump = ("restart", "--train-prefix", TRAIN, "--model", weights, "--vocab-file", VOCAB, *old)
    message = refuse(*from_dump, "--remap-vocab", "--save-to", tmp_path / "to")
    assert message.endswith("give it as --old-vocab-file") and not (tmp_path / "to").exists()
    to = ("--save-to", tmp_path / "to")
    message = refuse("restart", "--train-prefix", TRAIN, "--model", weights, *start[-2:], *to)
    assert message.endswith("--remap-vocab adapts the model to another")


def test_restart_refuses_other_network_than_dump(trained, tmp_path):
    """Before it reads the text."""
    run("dump-weights", "--save-dir", trained, "--outfile", tmp_path / "weights.hdf5", "--with-softmax")
    start = from_dump(tmp_path, VOCAB, tmp_path)
    message = refuse(*start, "--set", "share_embedding_softmax=true")
    assert message.startswith("a restart cannot change share_embedding_softmax (false to true)")
    options = json.loads((tmp_path / "options.json").read_text())
    options["lstm"]["dim"] *= 2
    write_json(tmp_path / "options.json", options)
    result = invoke(*start)
    assert result.exit_code == 1 and "corpus:" not in result.output and "misshapen" in result.output


def test_restart_replaces_only_with_overwrite(trained, run_copy):
    before = snapshot(run_copy)
    message = refuse("restart", "--train-prefix", TRAIN, "--save-dir", trained, "--save-to", run_copy)
    assert message == (
        f"{run_copy}: already holds a run; finish it with --resume if it was interrupted, continue it with "
        "`bilm restart`, give another directory, or replace it with --overwrite"
    )
    own = ("restart", "--train-prefix", TRAIN, "--save-dir", run_copy, "--save-to", run_copy)
    for flags in ((), ("--overwrite",)):
        message = refuse(*own, *flags)
        assert message == f"{run_copy}: is an input of this command; give another directory for the run"
    in_place = refuse("restart", "--train-prefix", TRAIN, "--save-dir", run_copy, "--overwrite", status=2)
    assert "--overwrite needs --save-to" in in_place and snapshot(run_copy) == before


def test_restart_remaps_word_level_dump(trained, new_vocabulary, tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    run("dump-weights", "--save-dir", trained, "--outfile", folder / "weights.hdf5")
    message = refuse(*from_dump(folder, new_vocabulary, tmp_path))
    assert f"the vocabulary has 35 words, the model in {folder / 'weights.hdf5'} 73;" in message
    remap = ("--remap-vocab", "--old-vocab-file", VOCAB, "--set", "share_embedding_softmax=true")
    output = run(*from_dump(folder, new_vocabulary, tmp_path, *remap, *STILL, *SHORT))
    assert "vocabulary: 33 words kept, 2 new, 40 dropped\n" in output
    before, after = newest_arrays(trained), newest_arrays(tmp_path / "to")
    assert "lm/softmax/W" not in after
    assert_rows_followed(after, before, "lm/embedding")
