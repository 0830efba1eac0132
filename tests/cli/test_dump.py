"""`bilm dump-weights`."""

import errno
import json
import os
import shutil
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
import tensorflow as tf

from bilm.options import Options
from bilm.options.options_file import load_options
from bilm.weights.hdf5_file import read_hdf5, write_hdf5
from bilm.weights.names import ADAGRAD, weight_names
from tests.distributed import OPTIONS, VOCABULARY, bilm_tf_run, model_files, write_folder, write_zip
from tests.helpers import (
    GOLDEN,
    HELDOUT,
    VOCAB,
    assert_same_arrays,
    refuse,
    run,
    small_options,
    snapshot,
    write_json,
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return write_zip(tmp_path_factory.mktemp("archive") / "193.zip", model_files())


def dump(save_dir, outfile, *flags):
    return run("dump-weights", "--save-dir", save_dir, "--outfile", outfile, *flags)


def test_beside_a_run_its_own_options_stay(run_copy):
    before = snapshot(run_copy)
    dump(run_copy, run_copy / "w.hdf5")
    after = snapshot(run_copy)
    assert after.keys() - before.keys() == {"w.hdf5", "w.options.json"}
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("dump-weights", "--outfile", "w.hdf5"),
        ("restart", "--train-prefix", HELDOUT, "--vocab-file", VOCAB, "--save-to", "to", "--max-steps", 1),
    ],
    ids=["dump", "restart"],
)
def test_checkpoint_of_bilm_tf_is_read_once(command, tmp_path, monkeypatch):
    final, read = GOLDEN / "char-forward" / "final", Counter()
    reader = type(tf.train.load_checkpoint(str(final)))
    get = reader.get_tensor
    monkeypatch.setattr(reader, "get_tensor", lambda self, name: read.update([name]) or get(self, name))
    monkeypatch.chdir(tmp_path)
    run(*command, "--save-dir", shutil.copytree(final, "run"))
    weights = {name.tf1 for name in weight_names(load_options("run/options.json"))}
    needed = {name + ADAGRAD for name in weights if command[0] == "restart"} | weights
    assert {name: n for name, n in read.items() if name.startswith("lm/")} == dict.fromkeys(needed, 1)


def test_damaged_checkpoint_gives_way_to_the_one_before(run_copy, tmp_path, caplog):
    for file in [*run_copy.glob("model.ckpt-2.*")]:
        shutil.copy(file, file.with_name(file.name.replace("ckpt-2", "ckpt-1")))
    [data] = run_copy.glob("model.ckpt-2.data-*")
    data.write_bytes(bytes(byte ^ 1 for byte in data.read_bytes()))
    assert f"{run_copy}/model.ckpt-1 -> " in dump(run_copy, tmp_path / "w.hdf5")
    assert f"using {run_copy}/model.ckpt-1 instead" in caplog.text


def test_overwrites_only_when_told(trained, tmp_path):
    weights, options = tmp_path / "w.hdf5", tmp_path / "options.json"
    dump(trained, weights)
    dump(trained, tmp_path / "again.hdf5")  # the same options may be there
    command = ("dump-weights", "--save-dir", trained, "--outfile")
    assert refuse(*command, ".") == ".: is a directory; give the name of a file to write"
    weights.write_text("damaged")
    assert refuse(*command, weights) == f"{weights}: exists; --overwrite replaces it"
    dump(trained, weights, "--overwrite")
    assert weights.read_bytes() != b"damaged"
    options.write_text('{"of": "another model"}')
    for name in ("w.hdf5", "again.hdf5"):
        (tmp_path / name).unlink()
    assert refuse(*command, weights) == f"{options}: exists; --overwrite replaces it"
    assert not weights.exists()
    assert "is the name of the options file" in refuse(*command, options)


@pytest.mark.parametrize("first", ["a.hdf5", "a_weights.hdf5"])
def test_two_models_in_a_folder_have_their_own_options(archive, trained, tmp_path, first):
    """Each is read with its own, also when one is written anew."""
    a, b = tmp_path / first, tmp_path / "b.hdf5"
    dump(trained, a)
    run("dump-weights", "--model", archive, "--outfile", b)
    dump(trained, a, "--overwrite")
    run("dump-weights", "--model", archive, "--outfile", b, "--overwrite")
    assert {file.name for file in tmp_path.iterdir()} == {first, "b.hdf5", "options.json", "b.options.json"}
    for model in (a, b):
        is_of_words = "vocabulary: 73 words" in run("info", model)  # which refuses options of another model
        assert is_of_words == (model == a)


def test_options_of_allennlp_weights_stay(trained, tmp_path):
    (tmp_path / "weights.th").touch()
    options = write_json(tmp_path / "options.json", {})
    dump(trained, tmp_path / "w.hdf5", "--overwrite")
    assert options.read_text() == "{}" and (tmp_path / "w.options.json").exists()


def test_options_that_are_read_with_the_weights_are_replaced(trained, tmp_path):
    (tmp_path / "a_options.json").write_text("{}")
    command = ("dump-weights", "--save-dir", trained, "--outfile", tmp_path / "a_weights.hdf5")
    assert refuse(*command) == f"{tmp_path / 'a_options.json'}: exists; --overwrite replaces it"
    run(*command, "--overwrite")
    assert snapshot(tmp_path).keys() == {"a_options.json", "a_weights.hdf5"}


@pytest.mark.parametrize("name", ["options.json", "w.hdf5"])
def test_both_files_are_replaced_or_neither(trained, tmp_path, monkeypatch, name):
    """As where one of them is a mount point."""
    before = {"w.hdf5": b"old weights", "options.json": b"old options"}
    for file, data in before.items():
        (tmp_path / file).write_bytes(data)

    def busy(source, target, replace=os.replace):
        if Path(target) == tmp_path / name and Path(source).name == "new":
            raise OSError(errno.EBUSY, "Device or resource busy")
        replace(source, target)

    monkeypatch.setattr(os, "replace", busy)
    command = ("dump-weights", "--save-dir", trained, "--outfile", tmp_path / "w.hdf5", "--overwrite")
    message = refuse(*command)
    assert message.startswith(f"{tmp_path / 'w.hdf5'}: cannot be written: ") and name in message
    assert snapshot(tmp_path) == before


def test_the_only_layer_has_the_name_that_others_read(tmp_path):
    names = weight_names(Options.from_json(small_options(lstm={"n_layers": 1})))
    arrays = {name.own: np.full(name.shape, 0.5, np.float32) for name in names}
    write_hdf5(tmp_path / "ours.hdf5", arrays, names)
    with h5py.File(tmp_path / "theirs.hdf5", "w") as file:
        for name in names:
            file[name.hdf5.replace("MultiRNNCell/Cell0/", "")] = arrays[name.own]
        assert "RNN_1/RNN/LSTMCell/W_P_0" in file
    with h5py.File(tmp_path / "ours.hdf5") as file:
        assert "RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/W_P_0" in file
    assert_same_arrays(*(read_hdf5(tmp_path / name, names) for name in ("ours.hdf5", "theirs.hdf5")))


# --- a directory of a model ---------------------------------------------------------------------------


def test_a_model_directory(tmp_path):
    run_of_bilm_tf = bilm_tf_run(tmp_path / "run")
    flags = ("--model", run_of_bilm_tf, "--model-dir", tmp_path / "model")
    assert refuse("dump-weights", *flags, status=2).endswith("holds no vocabulary; give --vocab-file")
    output = run("dump-weights", *flags, "--vocab-file", VOCAB)
    assert "31 arrays" in output and f"vocabulary -> {tmp_path / 'model' / 'vocab.txt'}" in output
    files = snapshot(tmp_path / "model")
    assert files.keys() == {"model.hdf5", "options.json", "vocab.txt", "README.md"}
    assert files["vocab.txt"] == VOCABULARY.read_bytes()
    assert "\nvocabulary: 73 words, not needed for embedding\n" in run("info", tmp_path / "model")


def test_a_model_is_written_anew(archive, tmp_path):
    run("dump-weights", "--model", archive, "--model-dir", tmp_path / "model")
    assert snapshot(tmp_path / "model")["vocab.txt"] == VOCABULARY.read_bytes()
    run("dump-weights", "--model", archive, "--outfile", tmp_path / "w.hdf5")
    assert json.loads((tmp_path / "options.json").read_text()) == json.loads(OPTIONS.read_text())
    flags = ("--model", archive, "--model-dir", tmp_path / "x", "--with-softmax")
    assert "has no softmax; leave out --with-softmax" in refuse("dump-weights", *flags)


def test_a_directory_that_is_there(archive, tmp_path):
    model, flags = tmp_path / "model", ("--model", archive, "--model-dir", tmp_path / "model")
    model.mkdir()
    run("dump-weights", *flags)
    assert refuse("dump-weights", *flags) == f"{model}: exists; --overwrite replaces it"
    (model / "README.md").write_text((model / "README.md").read_text() + "edited")
    run("dump-weights", *flags, "--overwrite", "--language", "nn")
    card = (model / "README.md").read_text()
    assert '\nlanguage: "nn"\n' in card and "edited" not in card
    not_ours = f"{model}: exists and is not a model that bilm wrote, with nothing else"
    card = (model / "README.md").read_bytes()
    (model / "README.md").write_bytes(card.replace(b"library_name", b"library"))
    assert refuse("dump-weights", *flags, "--overwrite").startswith(not_ours)
    (model / "README.md").write_bytes(card)
    words = (model / "vocab.txt").rename(tmp_path / "words.txt")
    (model / "vocab.txt").symlink_to(words)
    assert refuse("dump-weights", *flags, "--overwrite").startswith(not_ours)
    (model / "vocab.txt").unlink()
    (model / "notes.txt").write_text("mine")
    before = snapshot(tmp_path)
    assert refuse("dump-weights", *flags, "--overwrite").startswith(not_ours)
    assert snapshot(tmp_path) == before


def test_the_model_itself_is_not_written_over(tmp_path):
    folder = write_folder(tmp_path / "model", model_files())
    before = snapshot(tmp_path)
    command = ("dump-weights", "--model", folder, "--overwrite")
    assert "is not a model that bilm wrote" in refuse(*command, "--model-dir", folder)
    assert "is an input and would be lost" in refuse(*command, "--outfile", folder / "model.hdf5")
    command = ("dump-weights", "--model", folder / "model.hdf5", "--overwrite", "--outfile")
    assert "is an input and would be lost" in refuse(*command, folder / "vocab.txt")
    assert snapshot(tmp_path) == before


def test_flags_that_contradict_each_other(archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for flags, message in (
        ((), "give one of --outfile and --model-dir"),
        (("--model-dir", "x", "--save-dir", "y"), "give one model only,"),
        (("--outfile", "x", "--license", "mit"), "--license is for --model-dir"),
        (("--model-dir", "x", "--license", "CC BY 4.0"), "--license is 'CC BY 4.0'; give it as"),
    ):
        assert message in refuse("dump-weights", "--model", archive, *flags, status=2)
    assert not any(tmp_path.iterdir())
