"""Models as they are distributed: which files make one, and what is said of what makes none."""

import gzip
import os
from pathlib import Path

import pytest

from bilm.errors import BilmError
from bilm.options.options_file import load_inference_options
from bilm.weights.distribution import ModelFile, find_distribution
from bilm.weights.hdf5_file import read_hdf5
from bilm.weights.names import dump_names
from tests import helpers
from tests.distributed import OPTIONS, VOCABULARY, WEIGHTS, model_files, write_folder, write_zip
from tests.helpers import assert_same_arrays, snapshot

ELMO = "elmo_2x4096_512_2048cnn_2xhighway"


def refused(path):
    return helpers.refused(lambda path: find_distribution(path).arrays(), path)


def assert_is_the_model(found):
    options = load_inference_options(OPTIONS)
    assert found.options == options
    assert_same_arrays(found.arrays(), read_hdf5(WEIGHTS, dump_names(options)))
    assert found.weight_file.shapes == ModelFile(WEIGHTS).shapes


@pytest.mark.parametrize(
    ("weights", "options"),
    [
        ("weights.hdf5", "options.json"),
        (f"{ELMO}_weights.hdf5", f"{ELMO}_options.json"),
        ("lm.h5", "lm.options.json"),
        ("fta/model.elmo.weight_file", "fta/model.elmo.options_file"),
    ],
)
def test_folders_and_archives_are_found(weights, options, tmp_path):
    files, hidden = model_files(weights, options), str(Path(weights).with_name(f"._{Path(weights).name}"))
    assert_is_the_model(find_distribution(write_folder(tmp_path / "folder", files | {hidden: b"x"})))
    litter = {"__MACOSX/model/._options.json": b"x", ".DS_Store": b"x", f"old/{Path(weights).name}": b"x"}
    litter[f"model/{hidden}"] = b"x"
    path = write_zip(tmp_path / "x.zip", {f"model/{name}": data for name, data in files.items()} | litter)
    before = snapshot(tmp_path)
    found = find_distribution(path)
    assert_is_the_model(found)
    assert found.source == f"{path}/model/{weights}"
    assert str(found.options_file) == f"{path}/model/{options}"
    assert set(found.files) == {path} and snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["vocab.txt", "vocab.txt.gz"])
def test_vocabularies_are_found(name, tmp_path):
    files = model_files()
    words = VOCABULARY.read_text().split()
    data = files.pop("vocab.txt")
    files[name] = gzip.compress(data) if name.endswith(".gz") else data
    for path in (write_folder(tmp_path / "m", files), write_zip(tmp_path / "m.zip", files)):
        assert list(find_distribution(path).vocabulary(20).words) == words
    del files[name]
    assert find_distribution(write_folder(tmp_path / "none", files)).vocabulary() is None


def test_file_finds_the_other_beside_it(tmp_path):
    files = {"x_weights.hdf5": WEIGHTS.read_bytes(), "x_options.json": OPTIONS.read_bytes(), "y.hdf5": b""}
    folder = write_folder(tmp_path / "pair", files | {"x_softmax_weights.hdf5": b""})
    assert_is_the_model(find_distribution(folder))
    for name in ("x_weights.hdf5", "x_options.json"):
        assert_is_the_model(find_distribution(folder / name))
    files = model_files("a.weight_file", "a.options_file") | {"b.weight_file": b"", "b.options_file": b""}
    folder = write_folder(tmp_path / "fta", files)
    for name in ("a.weight_file", "a.options_file"):
        assert_is_the_model(find_distribution(folder / name))
    assert "more than one file of weights; give one of a.weight_file, b.weight_file" in refused(tmp_path)
    folder = write_folder(tmp_path / "m", model_files(".w"))
    assert_is_the_model(find_distribution(folder / ".w"))


def test_options_take_261_characters_and_unknown_keys(tmp_path):
    options = OPTIONS.read_text().replace("262", "261").replace("{", '{"n_tokens_vocab": 9, "note": "x",', 1)
    found = find_distribution(
        write_zip(tmp_path / "x.zip", model_files() | {"options.json": options.encode()})
    )
    assert found.options.char_cnn == load_inference_options(OPTIONS).char_cnn
    assert len(found.arrays()) == len(dump_names(found.options)) - 2


# --- what is no model -----------------------------------------------------------------------------------


def test_files_that_are_missing(tmp_path):
    assert refused(tmp_path / "none") == ": No such file or directory"
    (tmp_path / "model.ckpt-7.index").touch()
    message = f": is a checkpoint, which `bilm test` takes as `model` {tmp_path} `checkpoint` 7"
    assert refused(tmp_path / "model.ckpt-7") == message
    for name, message in {"model.hdf5": "no file of weights", "options.json": "no options.json"}.items():
        files = model_files()
        del files[name]
        for path in (write_folder(tmp_path / name, files), write_zip(tmp_path / f"{name}.zip", files)):
            assert refused(path).startswith(f": not a model: {message}; found ")
    weights = write_folder(tmp_path / "w", {"w.hdf5": WEIGHTS.read_bytes()}) / "w.hdf5"
    assert refused(weights) == ": not a model: no options.json; found w.hdf5"
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path / "pipe") == ": is a device, a pipe or a socket, expected a file"
    archive = bytearray(write_zip(tmp_path / "new.zip", model_files()).read_bytes())
    archive[archive.index(b"PK\1\2") + 6] = 255  # a version of ZIP that Python does not know
    (tmp_path / "new.zip").write_bytes(archive)
    assert refused(tmp_path / "new.zip").startswith(": the ZIP archive cannot be read")
    (tmp_path / "text.txt").write_text("text")
    assert refused(tmp_path / "text.txt").endswith("expected a folder, an archive or a file of weights")
    for name in ("metrics.jsonl", "checkpoint"):
        (tmp_path / name).touch()
    assert refused(tmp_path / "metrics.jsonl").endswith(f"or a file of weights; give the run {tmp_path}")


def test_several_candidates_are_refused(tmp_path):
    files = model_files() | {"weights.hdf5": b""}
    assert refused(write_folder(tmp_path / "two", files)) == (
        ": not a model: more than one file of weights; give one of model.hdf5, weights.hdf5"
    )
    files = {"a/options.json": b"{}", "b/options.json": b"{}"}
    assert ": several folders hold an options.json: a, b" in refused(write_zip(tmp_path / "x.zip", files))


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("model.hdf5", WEIGHTS.read_bytes()[:3000], "/model.hdf5: cannot be read as HDF5"),
        ("options.json", b"{", "/options.json: not JSON"),
        ("vocab.txt", b"a\n", "/vocab.txt: missing special tokens"),
    ],
    ids=["weights", "options", "vocabulary"],
)
def test_damage_names_place_in_archive(tmp_path, name, data, message):
    path = write_zip(tmp_path / "x.zip", model_files() | {name: data})
    with pytest.raises(BilmError, match=f"^{path}{message}"):
        found = find_distribution(path)
        found.arrays()
        found.vocabulary()
