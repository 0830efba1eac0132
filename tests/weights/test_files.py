"""Weight files: names, HDF5 and TensorFlow 1 checkpoints, transfer to a model and another vocabulary."""

import os
import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bilm.errors import CheckpointError, WeightsError
from bilm.io import atomic
from bilm.models.language_model import LanguageModel
from bilm.options import Options
from bilm.options.options_file import load_options
from bilm.vocabulary.vocabulary_file import SPECIAL_TOKENS
from bilm.weights.arrays import check_shapes
from bilm.weights.checkpoint_file import CheckpointFile, write_checkpoint
from bilm.weights.distribution import ModelFile
from bilm.weights.hdf5_file import read_hdf5, read_token_embeddings, write_hdf5, write_token_embeddings
from bilm.weights.names import dump_names, weight_names
from bilm.weights.transfer import WORD_ARRAYS, Remapping, set_weights
from tests.helpers import (
    GOLDEN,
    assert_same_arrays,
    checkpoint_arrays,
    invoke,
    largest_file,
    refuse,
    save_arrays,
    small_options,
)


def options_of(**changes):
    return Options.from_json(small_options(n_tokens_vocab=30, **changes))


def random_arrays(names, seed=0):
    rng = np.random.default_rng(seed)
    return {name.own: rng.standard_normal(name.shape).astype(np.float32) for name in names}


# --- names ------------------------------------------------------------------------------------------


def test_one_layer_has_no_multi_rnn_cell():
    names = {name.tf1 for name in weight_names(options_of(lstm={"n_layers": 1}))}
    assert "lm/RNN_0/rnn/lstm_cell/kernel" in names and "multi_rnn_cell" not in " ".join(names)


# --- HDF5 -------------------------------------------------------------------------------------------


def test_check_shapes_names_every_difference():
    found = {"a": (1,), "b": (2, 3), "n": (7, 2), "o": (7, 2), "z": (1,), "x": ()}
    expected = {"m": (4,), "b": (3, 2), "a": (1,), "n": (-1, 2), "o": (-1, 3)}
    with pytest.raises(WeightsError) as caught:
        check_shapes(found, expected, "somewhere")
    assert str(caught.value).splitlines() == [
        "somewhere does not fit the options:",
        "  missing: m (4,)",
        "  misshapen: b has (2, 3), expected (3, 2)",
        "  misshapen: o has (7, 2), expected (-1, 3)",
        "  unexpected: 'x' ()",
        "  unexpected: 'z' (1,)",
    ]


@pytest.fixture(scope="module")
def good_dump(tmp_path_factory):
    """The bytes of a file of weights, and their names."""
    names = weight_names(options_of())
    path = tmp_path_factory.mktemp("dump") / "w.hdf5"
    write_hdf5(path, random_arrays(names), names)
    return path.read_bytes(), names


def test_flipped_bits_are_found(good_dump, tmp_path):
    data, names = good_dump
    path = tmp_path / "w.hdf5"
    path.write_bytes(data)
    for array in read_hdf5(path, names).values():
        damaged = bytearray(data)
        damaged[data.index(array.tobytes()) + array.nbytes - 2] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(WeightsError, match=r"w.hdf5: cannot be read as HDF5: "):
            read_hdf5(path, names)


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f2", ">f8"])
def test_filters_of_published_files_are_read(dtype, tmp_path):
    vectors = np.random.default_rng(1).standard_normal((300, 4)).astype(dtype)
    for settings in ({}, {"shuffle": True}, {"shuffle": True, "compression": 9}, {"compression": 1}):
        path = tmp_path / "v.hdf5"
        for fletcher32 in (False, True):
            with h5py.File(path, "w") as file:
                options = {"chunks": (64, 3)} | settings
                file.create_dataset("embedding", data=vectors, fletcher32=fletcher32, **options)
            np.testing.assert_array_equal(read_token_embeddings(path, 4), vectors.astype("f4"))


def test_large_arrays_are_written_in_chunks(tmp_path):
    vectors = np.random.default_rng(1).standard_normal((1001, 1 << 10)).astype("f4")
    write_token_embeddings(tmp_path / "v.hdf5", vectors)
    with h5py.File(tmp_path / "v.hdf5") as file:
        assert file["embedding"].chunks == (251, 1 << 10) and file["embedding"].fletcher32
        np.testing.assert_array_equal(file["embedding"][()], vectors)


def put(name, *shape_and_type, **settings):
    """Damage: another array in the place of one."""

    def damage(file):
        if name in file:
            del file[name]
        file.create_dataset(name, *shape_and_type, **settings)

    return damage


NAN, BEYOND = np.zeros((261, 4)), np.zeros((261, 4))
NAN[3, 2], BEYOND[3, 2] = np.nan, 1e39


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        pytest.param(lambda file: file.pop("CNN/b_cnn_0"), r"missing: CNN/b_cnn_0 \(4,\)", id="missing"),
        pytest.param(put("char_embed", (261, 5), "f4"), r"misshapen: char_embed has \(261, 5\)", id="wide"),
        pytest.param(put("CNN/extra", (3,), "f4"), r"unexpected: 'CNN/extra' \(3,\)", id="unexpected"),
        pytest.param(
            put("char_embed", (261, 4), "i4"),
            "is not a stored array of floats, as weights are",
            id="integers",
        ),
        pytest.param(
            put("char_embed", data=h5py.Empty("f4")), "is not a stored array of floats", id="no shape"
        ),
        pytest.param(put("char_embed", data=NAN), r"holds nan at \[3, 2\], expected finite", id="nan"),
        pytest.param(put("char_embed", data=BEYOND), r"holds 1e\+39 at", id="beyond float32"),
        pytest.param(put("char_embed", (261, 4), "f4"), "has only 0 bytes there", id="nothing stored"),
    ],
)
def test_damaged_dumps_are_refused(tmp_path, good_dump, damage, problem):
    path, (data, names) = tmp_path / "w.hdf5", good_dump
    path.write_bytes(data)
    with h5py.File(path, "a") as file:
        damage(file)
    with pytest.raises(WeightsError, match=f"(?s)^{path}.*{problem}"):
        read_hdf5(path, names)


def test_nested_groups_are_refused(tmp_path):
    with h5py.File(tmp_path / "round.hdf5", "w") as file:
        file["again"] = file["/"]
    assert ModelFile(tmp_path / "round.hdf5").shapes == {}
    with h5py.File(tmp_path / "deep.hdf5", "w") as file:
        file.create_group("a/" * 1000)
    with pytest.raises(WeightsError, match="too many arrays or groups; these are not the weights of a"):
        _ = ModelFile(tmp_path / "deep.hdf5").shapes


def test_missing_chunks_are_refused(tmp_path):
    """For which HDF5 has zeros."""
    with h5py.File(tmp_path / "v.hdf5", "w") as file:
        file.create_dataset("embedding", (1, 7), "f4", chunks=(1, 4))[0, 4:] = 1.0
    with pytest.raises(WeightsError, match=r"'/embedding' is \(1, 7\), and only 1 of its 2 chunks are there"):
        read_token_embeddings(tmp_path / "v.hdf5", 7)


def test_absent_word_vectors_are_refused(tmp_path):
    path = tmp_path / "vectors.hdf5"
    with h5py.File(path, "w") as file:
        file.create_dataset("embedding", (1 << 40, 4), "f4", chunks=(1, 4))
    with pytest.raises(WeightsError, match="'/embedding' is .1099511627776, 4., and has only 0 bytes there"):
        read_token_embeddings(path, 4)
    with h5py.File(tmp_path / "other.hdf5", "w") as file:
        file["embedding"] = h5py.ExternalLink("vectors.hdf5", "/embedding")
    with pytest.raises(WeightsError, match="has no array 'embedding'"):
        read_token_embeddings(tmp_path / "other.hdf5", 4)


def test_write_hdf5_keeps_no_damaged_file(tmp_path, monkeypatch):
    names = weight_names(options_of())
    monkeypatch.setattr("bilm.weights.hdf5_file.read_hdf5", lambda path, names: random_arrays(names, 1))
    with pytest.raises(WeightsError, match="read back differently from what was written: char_embed"):
        write_hdf5(tmp_path / "w.hdf5", random_arrays(names), names)
    assert list(tmp_path.iterdir()) == []


# --- checkpoints ------------------------------------------------------------------------------------


def test_write_hdf5_leaves_nothing_above_the_limit(tmp_path):
    """HDF5 ends the process if a file cannot grow as it closes it."""
    names = dump_names(options_of(lstm={"dim": 256, "projection_dim": 128}))
    arrays = {name.own: np.zeros([30 if size < 0 else size for size in name.shape], "f4") for name in names}
    with (
        largest_file(100_000),
        pytest.raises(WeightsError, match=r"x\.hdf5: cannot be written: File too large"),
    ):
        write_hdf5(tmp_path / "x.hdf5", arrays, names)
    assert not [*tmp_path.iterdir()]


def test_all_accumulators_are_there_or_none(tmp_path):
    names = weight_names(options_of())
    arrays = random_arrays(names)
    write_checkpoint(tmp_path / "model.ckpt-1", names, arrays, {}, 1, 1.0)
    assert CheckpointFile(tmp_path / "model.ckpt-1").accumulators(names) == {}
    slots = {name: array for name, array in arrays.items() if name != "encoder/char_cnn/W_cnn_1"}
    write_checkpoint(tmp_path / "model.ckpt-1", names, arrays, slots, 1, 1.0)
    with pytest.raises(WeightsError, match="missing: lm/CNN/W_cnn_1/Adagrad"):
        CheckpointFile(tmp_path / "model.ckpt-1").accumulators(names)


# --- model ------------------------------------------------------------------------------------------


def test_setting_weights_is_all_or_nothing():
    model = LanguageModel(options_of())
    names = weight_names(model.options)
    variables, arrays = model.named_weights(), random_arrays(names)
    set_weights(variables, arrays, "here")
    assert_same_arrays({name: variable.numpy() for name, variable in variables.items()}, arrays)
    broken = random_arrays(names, 1)
    broken["softmax/b"] = broken["softmax/b"][:-1]
    with pytest.raises(WeightsError, match=r"misshapen: softmax/b has \(29,\), expected \(30,\)"):
        set_weights(variables, broken, "here")
    assert_same_arrays({name: variable.numpy() for name, variable in variables.items()}, arrays)


def test_what_a_process_left_that_was_killed_while_it_saved_goes_with_the_next_checkpoint(tmp_path):
    """Of whatever step."""
    left = tmp_path / ".model.ckpt.tmp"
    (left / "new").mkdir(parents=True)
    (left / "new" / "model.ckpt-1.data-00000-of-00001").write_text("half")
    (left / "lock").write_text("host gone, process 1\n")
    write_checkpoint(tmp_path / "model.ckpt-2", [], {}, {}, 2, 1.0)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"model.ckpt-2.index", "model.ckpt-2.data-00000-of-00001"}


def test_write_checkpoint_places_data_before_index(tmp_path, monkeypatch):
    """Both are on the disk before they have their names."""
    done, replace = [], os.replace

    def place(source, target):
        done.append(("place", Path(target).suffix))
        replace(source, target)

    monkeypatch.setattr(os, "replace", place)
    monkeypatch.setattr(atomic, "sync", lambda path: done.append(("sync", path.suffix or path.name)))
    write_checkpoint(tmp_path / "model.ckpt-2", [], {}, {}, 2, 1.0)
    files = [(what, file) for what in ("sync", "place") for file in (".data-00000-of-00001", ".index")]
    assert done == [*files, ("sync", tmp_path.name)]


# --- damaged and foreign checkpoints --------------------------------------------------------------


FINAL = GOLDEN / "char" / "final"
BIAS = "lm/softmax/b"
NAMES = weight_names(load_options(FINAL / "options.json"))


@pytest.fixture
def prefix(tmp_path):
    """A checkpoint to be damaged."""
    for file in FINAL.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path / "model.ckpt-12"


def test_damaged_array_fails_when_read(prefix):
    path = Path(f"{prefix}.data-00000-of-00001")
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(data)
    checkpoint = CheckpointFile(prefix)
    checkpoint.check(NAMES)
    with pytest.raises(CheckpointError, match=f"^{prefix}: damaged, .*Checksum does not match.*$"):
        checkpoint.verify()
    os.truncate(path, 1000)
    with pytest.raises(CheckpointError, match=f"^{prefix}: damaged, .*, its data files have 1,000$"):
        CheckpointFile(prefix)


@pytest.mark.parametrize(("dtype", "value"), [(tf.bfloat16, 2), (tf.float64, 2), (tf.float64, 1e30)])
def test_weights_are_converted_from_other_floats(tmp_path, dtype, value):
    checkpoint = CheckpointFile(write_with(tmp_path, tf.fill([73], tf.constant(value, dtype))))
    np.testing.assert_array_equal(checkpoint.read(NAMES)["softmax/b"], np.float32([value] * 73))
    checkpoint.verify()


@pytest.mark.parametrize("value", [np.nan, 1e39])
def test_infinite_weights_are_refused(tmp_path, value):
    values = np.zeros(73)
    values[7] = value
    checkpoint = CheckpointFile(write_with(tmp_path, tf.constant(values)))
    problem = rf"x: {BIAS} holds .* at \[7\], expected finite float32 numbers"
    for read in (lambda: checkpoint.read(NAMES), checkpoint.verify):
        with pytest.raises(CheckpointError, match=problem):
            read()


def test_weights_of_integers_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=f"x: '{BIAS}' is int32, expected floats"):
        CheckpointFile(write_with(tmp_path, tf.zeros(73, tf.int32))).read(NAMES)


def write_with(directory, bias):
    """The checkpoint of a diverged run, with another bias of the softmax."""
    arrays = checkpoint_arrays(FINAL / "model.ckpt-12")
    save_arrays(directory / "x", arrays | {BIAS: bias, "train_perplexity": tf.constant(np.inf)})
    return directory / "x"


# --- names that TensorFlow takes for patterns --------------------------------------------------------


@pytest.mark.parametrize("name", ["a\\b", "[!x]*?", "jos\udce9"], ids=["backslash", "pattern", "not UTF-8"])
def test_checkpoint_takes_names_that_are_patterns(tmp_path, name, monkeypatch):
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(links))
    run = shutil.copytree(FINAL, tmp_path / name)
    assert "step 12" in invoke("info", run).output
    assert list(links.iterdir()) == []  # they go with the checkpoint


def test_export_refuses_names_that_are_patterns(tmp_path, trained):
    message = refuse("export", "--save-dir", trained, "--saved-model", tmp_path / "a[1]")
    assert "TensorFlow cannot load a SavedModel from a path with [ or \\ in it" in message
    assert list(tmp_path.iterdir()) == []


# --- another vocabulary ---------------------------------------------------------------------------


WORDS = st.lists(st.integers(0, 99).map("w{}".format), max_size=60, unique=True)
VOCABULARIES = st.tuples(st.sampled_from([2, 3]), WORDS).map(lambda v: [*SPECIAL_TOKENS[: v[0]], *v[1]])


def arrays_of(words, dim=3):
    rng = np.random.default_rng(len(words))
    shapes = {"encoder/embedding": (dim,), "softmax/W": (dim,), "softmax/b": ()}
    return {name: rng.normal(size=(len(words), *shape)).astype(np.float32) for name, shape in shapes.items()}


def remapping(old, new, counts=None):
    return Remapping(old, new, np.ones(len(new), np.int64) if counts is None else counts)


@given(old=VOCABULARIES, new=VOCABULARIES, data=st.data())
def test_kept_words_keep_rows(old, new, data):
    counts = np.array(data.draw(st.lists(st.integers(0, 50), min_size=len(new), max_size=len(new))))
    found = remapping(old, new, counts)
    kept = set(old) & set(new)
    counted = len(kept), len(set(new) - kept), len(set(old) - kept)
    assert (found.n_kept, found.n_new, found.n_dropped) == counted
    before = {**arrays_of(old), "encoder/other": np.arange(4.0)}
    weights = found.weights(before)
    accumulators = {name: found.rows(before[name], 1.0) for name in WORD_ARRAYS}
    assert weights["encoder/other"] is before["encoder/other"]
    for name in WORD_ARRAYS:
        assert weights[name].dtype == accumulators[name].dtype == np.float32
        assert len(weights[name]) == len(accumulators[name]) == len(new)
        for i, word in enumerate(new):
            if word in kept:
                there = old.index(word)
                np.testing.assert_array_equal(accumulators[name][i], before[name][there])
                if name != "softmax/b":
                    np.testing.assert_array_equal(weights[name][i], before[name][there])
            else:
                assert (accumulators[name][i] == 1.0).all()
                assert np.isfinite(weights[name][i]).all()
    np.testing.assert_array_equal(weights["softmax/b"][:2], before["softmax/b"][:2])


def test_repeated_word_has_weights_of_its_last_row():
    old, new = [*SPECIAL_TOKENS, "a", "", "a"], [*SPECIAL_TOKENS, "a", "a", "b"]
    found = remapping(old, new)
    assert (found.n_kept, found.n_new, found.n_dropped) == (5, 1, 2)
    assert found.old_ids.tolist() == [0, 1, 2, 5, 5, -1]


def test_new_word_starts_at_mean_of_its_frequency():
    old = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(100))]
    new = [*SPECIAL_TOKENS, "rare", "w7", "often", *(f"w{i}" for i in range(20, 60))]
    counts = np.array([500, 500, 9, 1, 70, 80, *range(60, 20, -1)])
    rows = np.arange(103, dtype=np.float32)[:, None] * [1, -1]
    found = remapping(old, new, counts).weights({"softmax/W": rows.astype(np.float32)})["softmax/W"]
    # By rank, from 0: "often" is among the first 16 of the old words, "rare" is the 42nd, in 32..64.
    np.testing.assert_allclose(found[5], rows[3 : 3 + 16].mean(axis=0))
    np.testing.assert_allclose(found[3], rows[3 + 32 :].mean(axis=0))
    np.testing.assert_array_equal(found[4], rows[10])
    longer = [*SPECIAL_TOKENS, *(f"new{i}" for i in range(101))]  # whose last word is rarer than any old one
    found = remapping(old, longer).weights({"softmax/W": rows.astype(np.float32)})["softmax/W"]
    np.testing.assert_allclose(found[-1], rows[3 + 32 :].mean(axis=0))


def test_biases_move_along_line_of_ranks():
    """Zipf's law with noise on it: the noise stays with its word, the rest is of the rank."""
    n = 200
    noise = np.random.default_rng(0).normal(0, 1e-3, n)
    old = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(n))]
    biases = np.concatenate([[-3.0, -4.0, -20.0], -2 - 1.1 * np.log1p(np.arange(n)) + noise])
    new = ["w150", *SPECIAL_TOKENS, "w3", "other"]
    counts = [90, 100, 100, 50, 20, 60]
    found = remapping(old, new, counts).weights({"softmax/b": biases.astype(np.float32)})["softmax/b"]
    at = lambda rank: -2 - 1.1 * np.log1p(rank)  # noqa: E731
    np.testing.assert_array_equal(found[1:3], [-3.0, -4.0])
    np.testing.assert_allclose(
        found[[0, 3, 4, 5]], [at(0) + noise[150], at(2), at(2) + noise[3], at(1)], atol=5e-3
    )
