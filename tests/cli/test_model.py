"""Commands that take a model by its path, ``--model``, and what they say of what is none."""

from __future__ import annotations

import gzip
import json
import pickle

import h5py
import numpy as np
import pytest

import bilm
from bilm.errors import BilmError, OptionsError
from tests.distributed import (
    CHAR,
    OPTIONS,
    VOCABULARY,
    WEIGHTS,
    bilm_tf_run,
    model_files,
    write_folder,
    write_zip,
)
from tests.helpers import (
    GOLDEN,
    HELDOUT,
    TRAIN,
    VOCAB,
    combined_perplexity,
    refuse,
    run,
    snapshot,
    write_json,
)

PAIR = ("--options-file", OPTIONS, "--weight-file", WEIGHTS)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder, an archive, AllenNLP's pair and a run of bilm-tf; not to be changed."""
    place = tmp_path_factory.mktemp("made")
    write_folder(place / "folder", model_files())
    write_zip(place / "193.zip", model_files())
    write_folder(place / "pair", model_files("elmo_2x_weights.hdf5", "elmo_2x_options.json"))
    bilm_tf_run(place / "run")
    return place


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("Time flies\n\nthe river sang\n")
    return path


def vectors(path):
    with h5py.File(path) as file:
        return [file[str(i)][...] for i in range(3)]


# --- what is taken --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected(made, tmp_path_factory):
    place = tmp_path_factory.mktemp("expected")
    (place / "text.txt").write_text("Time flies\n\nthe river sang\n")
    run("embed", place / "text.txt", place / "out.hdf5", *PAIR)
    return vectors(place / "out.hdf5")


@pytest.mark.parametrize(
    "name", ["folder", "193.zip", "folder/model.hdf5", "pair", "pair/elmo_2x_weights.hdf5", "run"]
)
@pytest.mark.usefixtures("compiled_once")
def test_embed(name, made, expected, text, tmp_path):
    before = snapshot(made)
    run("embed", text, tmp_path / "out.hdf5", "--model", made / name)
    for found, wanted in zip(vectors(tmp_path / "out.hdf5"), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert snapshot(made) == before


@pytest.mark.usefixtures("compiled_once")
def test_the_newest_checkpoint_and_others_of_a_run(made, text, tmp_path):
    run("embed", text, tmp_path / "out.hdf5", "--model", made / "run", "--checkpoint", 12)
    assert "no such checkpoint" in refuse(
        "embed", text, tmp_path / "x", "--model", made / "run", "--checkpoint", 3
    )


@pytest.mark.slow
def test_a_word_level_model_brings_its_vocabulary(text, tmp_path):
    word = GOLDEN / "word-shared"
    run(
        *("dump-weights", "--save-dir", word / "final", "--vocab-file", word / "vocab.txt"),
        *("--model-dir", tmp_path / "model", "--with-softmax"),
    )
    files = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    files["vocab.txt.gz"] = gzip.compress(files.pop("vocab.txt"))
    archive = write_zip(tmp_path / "word.zip", files)
    run("embed", text, tmp_path / "1.hdf5", "--model", archive)
    run("embed", text, tmp_path / "2.hdf5", "--save-dir", word / "final", "--vocab-file", word / "vocab.txt")
    for found, wanted in zip(vectors(tmp_path / "1.hdf5"), vectors(tmp_path / "2.hdf5"), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    del files["vocab.txt.gz"]
    message = refuse(
        "embed", text, tmp_path / "3.hdf5", "--model", write_zip(tmp_path / "no.zip", files), status=2
    )
    assert message.endswith("holds no vocabulary; give --vocab-file")
    files["vocab.txt"] = b"<S>\n</S>\n<UNK>\n"
    message = refuse("embed", text, tmp_path / "3.hdf5", "--model", write_zip(tmp_path / "few.zip", files))
    assert message.startswith("the vocabulary has 3 words, the model ")
    outputs = [
        run("test", "--test-prefix", word / "heldout.txt", *model)
        for model in (
            ("--model", archive),
            ("--save-dir", word / "final", "--vocab-file", word / "vocab.txt"),
        )
    ]
    assert combined_perplexity(outputs[0]) == pytest.approx(combined_perplexity(outputs[1]), rel=1e-6)


def test_info(made):
    for name in ("folder", "193.zip"):
        output = run("info", made / name)
        assert output.startswith(f"{made / name}/model.hdf5: weights, 31 arrays")
        assert f"options: {made / name}/options.json fits" in output
        assert "vocabulary: 73 words" in output
    found = json.loads(run("info", made / "193.zip", "--json"))
    assert (found["kind"], found["words"], found["inferred"]) == ("weights", 73, False)
    assert run("info", made / "run").startswith(f"{made / 'run'}: run directory")
    assert "elmo_2x_options.json fits" in run("info", made / "pair" / "elmo_2x_weights.hdf5")


def test_info_of_options_that_do_not_fit(tmp_path):
    files = model_files() | {"options.json": OPTIONS.read_bytes().replace(b'"dim": 24', b'"dim": 25')}
    output = run("info", write_zip(tmp_path / "x.zip", files))
    assert f"options: {tmp_path}/x.zip/options.json does not fit; the above is inferred" in output


@pytest.mark.slow
def test_restart(made, tmp_path):
    flags = ("--train-prefix", TRAIN, "--max-steps", 1, "--batch-size", 2, "--set", "unroll_steps=3")
    message = refuse("restart", "--model", made / "193.zip", *flags, status=2)
    assert message == f"{made / '193.zip'} is not a run; give --save-to for the new run directory"
    output = run("restart", "--model", made / "193.zip", "--save-to", tmp_path / "new", *flags)
    assert f"starting: {made / '193.zip'}/model.hdf5, with a new softmax" in output
    assert (tmp_path / "new" / "vocab.txt").read_bytes() == VOCABULARY.read_bytes()


def test_restart_does_not_write_into_the_model(tmp_path):
    folder = write_folder(tmp_path / "model", model_files())
    before = snapshot(tmp_path)
    flags = ("--train-prefix", TRAIN, "--max-steps", 1, "--save-to", folder)
    refuse("restart", "--model", folder, *flags)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("kind", ["words", pytest.param("characters", marks=pytest.mark.slow)])
def test_test_and_score(kind, made, run_copy, text, tmp_path):
    directory = made / "run" if kind == "characters" else run_copy
    options = json.loads((directory / "options.json").read_text())
    write_json(directory / "options.json", options | {"unroll_steps": 20})  # as of a model without a run
    flags = ("--save-dir", directory, "--vocab-file", VOCAB, "--with-softmax")
    run("dump-weights", *flags, "--model-dir", tmp_path / "model")
    test = ("test", "--test-prefix", HELDOUT, "--batch-size", 2)
    wanted = run(*test, "--model", directory, "--vocab-file", VOCAB)
    found = run(*test, "--model", tmp_path / "model")
    assert combined_perplexity(found) == pytest.approx(combined_perplexity(wanted), rel=1e-6)
    scores = [
        run("score", text, "--format", "jsonl", *model)
        for model in (("--model", tmp_path / "model"), ("--save-dir", directory, "--vocab-file", VOCAB))
    ]
    assert scores[0] == scores[1]


def test_neither_without_a_softmax(made, text):
    message = refuse("score", text, "--model", made / "193.zip")
    assert message.startswith(f"{made / '193.zip'}/model.hdf5: has no softmax, without which")
    message = refuse("test", "--test-prefix", HELDOUT, "--model", made / "folder")
    assert "has no softmax" in message and "--with-softmax" in message


# --- what is written ------------------------------------------------------------------------------------


def test_dump_a_model_directory(made, tmp_path):
    output = run(
        *("dump-weights", "--model", made / "run", "--vocab-file", VOCAB, "--model-dir", tmp_path / "model")
    )
    assert "31 arrays" in output and f"vocabulary -> {tmp_path / 'model' / 'vocab.txt'}" in output
    files = snapshot(tmp_path / "model")
    assert files.keys() == {"model.hdf5", "options.json", "vocab.txt"}
    assert files["vocab.txt"] == VOCABULARY.read_bytes()
    assert json.loads(files["options.json"])["char_cnn"]["n_characters"] == 262
    with h5py.File(tmp_path / "model" / "model.hdf5") as found, h5py.File(WEIGHTS) as wanted:
        np.testing.assert_array_equal(found["char_embed"], wanted["char_embed"])


def test_a_model_is_written_anew(made, tmp_path):
    run("dump-weights", "--model", made / "193.zip", "--model-dir", tmp_path / "model")
    assert snapshot(tmp_path / "model")["vocab.txt"] == VOCABULARY.read_bytes()
    run("dump-weights", "--model", made / "193.zip", "--outfile", tmp_path / "w.hdf5")
    assert json.loads((tmp_path / "options.json").read_text()) == json.loads(OPTIONS.read_text())


def test_a_directory_that_is_there(made, tmp_path):
    model, flags = tmp_path / "model", ("--model", made / "193.zip", "--model-dir", tmp_path / "model")
    model.mkdir()
    run("dump-weights", *flags)
    assert refuse("dump-weights", *flags) == f"{model}: exists; --overwrite replaces it"
    run("dump-weights", *flags, "--overwrite")
    options = (model / "options.json").read_bytes()
    (model / "options.json").write_bytes(options.replace(b"\n", b"\n "))
    message = refuse("dump-weights", *flags, "--overwrite")
    not_ours = (
        f"{model}: exists and is not a model that bilm wrote, with nothing else in it; give another name"
    )
    assert message == not_ours
    (model / "options.json").write_bytes(options)
    (model / "notes.txt").write_text("mine")
    before = snapshot(tmp_path)
    message = refuse("dump-weights", *flags, "--overwrite")
    assert message == not_ours
    assert snapshot(tmp_path) == before


def test_the_model_itself_is_not_written_over(made, text, tmp_path):
    folder = write_folder(tmp_path / "model", model_files())
    before = snapshot(tmp_path)
    assert "is not a model that bilm wrote" in refuse(
        "dump-weights", "--model", folder, "--model-dir", folder, "--overwrite"
    )
    for command in (
        ("dump-weights", "--model", folder, "--outfile", folder / "model.hdf5", "--overwrite"),
        ("embed", text, folder / "model.hdf5", "--model", folder, "--overwrite"),
        ("embed", text, folder / "vocab.txt", "--model", folder, "--overwrite"),
    ):
        assert "is an input and would be lost" in refuse(*command)
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "give one of --outfile and --model-dir"),
        (("--outfile", "x", "--model-dir", "y"), "give one of --outfile and --model-dir"),
        (("--outfile", "x", "--vocab-file", "y"), "--vocab-file is for --model-dir"),
        (("--model-dir", "x"), "holds no vocabulary; give --vocab-file"),
        (("--model-dir", "x", "--save-dir", "y"), "give --model or --save-dir, and only one of them"),
    ],
)
def test_dump_flags(flags, message, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in refuse("dump-weights", "--model", made / "run", *flags, status=2)
    assert not any(tmp_path.iterdir())


def test_no_softmax_to_write(made, tmp_path):
    flags = ("--model", made / "193.zip", "--model-dir", tmp_path / "x", "--with-softmax")
    assert "has no softmax; leave out --with-softmax" in refuse("dump-weights", *flags)


# --- what is refused ------------------------------------------------------------------------------------


def test_save_dir_that_is_no_run(made, text, tmp_path):
    out = tmp_path / "out.hdf5"
    assert refuse("embed", text, out, "--save-dir", made / "folder") == (
        f"{made / 'folder'}: not a run directory: its options.json goes with dumped weights, and it has no "
        "checkpoints; give it as --model"
    )
    assert refuse("test", "--test-prefix", HELDOUT, "--save-dir", made / "193.zip") == (
        f"{made / '193.zip'}: not a run directory: it is a ZIP archive; if it is that of a model, give it as "
        "--model"
    )
    message = refuse("score", text, "--save-dir", WEIGHTS)
    assert message.endswith("not a run directory: a file; a model that is a file is given as --model")


def test_options_and_weights_that_are_archives(made, text, tmp_path):
    archive = made / "193.zip"
    wanted = f"{archive}: is a ZIP archive; if it is that of a model, give it as --model"
    for files in ((archive, WEIGHTS), (OPTIONS, archive)):
        flags = ("--options-file", files[0], "--weight-file", files[1])
        assert refuse("embed", text, tmp_path / "out.hdf5", *flags) == wanted
        assert refuse("restart", *flags, "--save-to", tmp_path / "new", "--train-prefix", TRAIN) == wanted


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("model.tar.gz", b"\x1f\x8b", "is a tar archive"),
        ("weights.th", pickle.dumps({}, protocol=2), "is a Python pickle, as PyTorch's weights are"),
    ],
    ids=["tar", "pickle"],
)
def test_files_of_others(name, data, message, text, tmp_path):
    path, out = tmp_path / name, tmp_path / "out.hdf5"
    path.write_bytes(data)
    for flags in (
        ("--options-file", OPTIONS, "--weight-file", path),
        ("--options-file", path, "--weight-file", WEIGHTS),
        ("--model", path),
    ):
        assert refuse("embed", text, out, *flags).startswith(f"{path}: {message}")
    assert refuse("info", path).startswith(f"{path}: {message}")
    with pytest.raises(BilmError, match=message.split(";")[0]):
        bilm.BidirectionalLanguageModel(OPTIONS, path)


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["config.json", "encoder.pkl"], "is a model of ELMoForManyLangs"),
        (["tfhub_module.pb", "saved_model.pb"], "is a module of TF-Hub"),
        (["config.json", "model.safetensors"], "is a transformer"),
        (["config.json", "tf_model.h5"], "is a transformer"),
        (["config.json", "weights.th"], "is an AllenNLP archive"),
    ],
)
def test_folders_and_archives_of_others(names, what, text, tmp_path):
    files = dict.fromkeys(names, b"{}")
    for path in (write_folder(tmp_path / "model", files), write_zip(tmp_path / "x.zip", files)):
        assert refuse("embed", text, tmp_path / "out.hdf5", "--model", path).startswith(f"{path}: {what}")
        assert refuse("info", path).startswith(f"{path}: {what}")


def test_flags_that_contradict_each_other(made, text, tmp_path):
    model, out = ("--model", made / "193.zip"), tmp_path / "out.hdf5"
    wanted = "give --model, --save-dir, or --options-file and --weight-file, and only one of them"
    for flags in (("--save-dir", "x"), PAIR, ("--weight-file", WEIGHTS)):
        assert wanted in refuse("embed", text, out, *model, *flags, status=2)
    assert "give --model or --save-dir" in refuse("score", text, status=2)
    assert "give --model or --save-dir" in refuse(
        "test", "--test-prefix", HELDOUT, *model, "--save-dir", "x", status=2
    )
    for flag, value in (("--checkpoint", "latest"), ("--weights", "raw")):
        message = refuse("embed", text, out, *model, flag, value, status=2)
        assert message == f"{flag} is for a run, and {made / '193.zip'} is not a run directory"


def test_bombs_and_members_outside(text, tmp_path):
    path = write_zip(tmp_path / "x.zip", model_files() | {"model.hdf5": bytes(100 << 20)})
    message = refuse("embed", text, tmp_path / "out.hdf5", "--model", path)
    assert message.startswith(f"{path}/model.hdf5: ") and message.endswith("; this is no model")
    path = write_zip(tmp_path / "y.zip", model_files() | {"../x": b""})
    for command in (("embed", text, tmp_path / "out.hdf5", "--model", path), ("info", path)):
        assert "its member ../x lies outside of the archive" in refuse(*command)
    assert {one.name for one in tmp_path.iterdir()} == {"text.txt", "x.zip", "y.zip"}


# --- vocabularies ---------------------------------------------------------------------------------------


def test_a_compressed_vocabulary(tmp_path):
    path = tmp_path / "vocab.txt.gz"
    path.write_bytes(gzip.compress(VOCABULARY.read_bytes()))
    assert bilm.Vocabulary(path, validate_file=True).words == bilm.Vocabulary(VOCABULARY).words
    assert run("vocab", "check", path) == run("vocab", "check", VOCAB).replace(str(VOCAB), str(path))
    data = path.read_bytes()
    path.write_bytes(data[:100])
    message = refuse("vocab", "check", path)
    assert message.startswith(f"{path}: the compressed file is truncated or corrupt")
    path.write_bytes(gzip.compress(bytes(100 << 20)))
    message = refuse("vocab", "check", path)
    assert message == f"{path}: decompresses to more than 67,108,864 bytes; this is not a vocabulary"


# --- from Python ----------------------------------------------------------------------------------------


def test_elmo_embedder(made, expected):
    wanted = bilm.ElmoEmbedder(OPTIONS, WEIGHTS).fingerprint
    embedders = [bilm.ElmoEmbedder.from_model(made / name) for name in ("193.zip", "run")]
    assert [embedder.fingerprint for embedder in embedders] == [wanted] * 2
    np.testing.assert_allclose(embedders[0].embed_sentence(["Time", "flies"]), expected[0], atol=1e-6)
    for call in (
        lambda: bilm.ElmoEmbedder.from_run(made / "193.zip"),
        lambda: bilm.ElmoEmbedder(made / "193.zip", WEIGHTS),
        lambda: bilm.ElmoEmbedder(OPTIONS, made / "193.zip"),
    ):
        with pytest.raises(
            BilmError, match="193.zip: .*is a ZIP archive; if it is that of a model, give it as"
        ):
            call()
    with pytest.raises(BilmError, match="folder: not a run directory: its options.json goes with dumped"):
        bilm.ElmoEmbedder.from_run(made / "folder")


def test_the_keras_layer(made):
    ids = bilm.batch_to_ids([["Time", "flies"]])
    wanted = bilm.Elmo(OPTIONS, WEIGHTS)(ids)
    for name in ("193.zip", "run"):
        np.testing.assert_allclose(bilm.Elmo(model=made / name)(ids), wanted, atol=1e-6)
    for arguments in (
        {},
        {"model": made / "run", "options_file": OPTIONS},
        {"model": "x", "weight_file": WEIGHTS},
    ):
        with pytest.raises(OptionsError, match="give options_file and weight_file, or model"):
            bilm.Elmo(**arguments)


def test_dump_weights_from_python(made, tmp_path):
    result = bilm.dump_weights(CHAR / "final", model_dir=tmp_path / "m", vocab_file=VOCABULARY)
    assert result.vocabulary_file == tmp_path / "m" / "vocab.txt"
    assert result.weight_file == tmp_path / "m" / "model.hdf5"
