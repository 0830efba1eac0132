"""Commands that take a model by its path, ``--model``, and what they say of what is none."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pytest

import bilm
from bilm.errors import BilmError, OptionsError
from tests.distributed import (
    OPTIONS,
    WEIGHTS,
    bilm_tf_run,
    model_files,
    write_folder,
    write_zip,
)
from tests.helpers import (
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
    ("name", "flags"),
    [("folder", ()), ("193.zip", ()), ("pair/elmo_2x_weights.hdf5", ()), ("run", ("--checkpoint", 12))],
)
@pytest.mark.usefixtures("opened_once")
def test_embed(name, flags, made, expected, text, tmp_path):
    before = snapshot(made)
    run("embed", text, tmp_path / "out.hdf5", "--model", made / name, *flags)
    for found, wanted in zip(vectors(tmp_path / "out.hdf5"), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert snapshot(made) == before


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


def test_test_and_score(run_copy, text, tmp_path):
    options = json.loads((run_copy / "options.json").read_text())
    write_json(run_copy / "options.json", options | {"unroll_steps": 20})  # as of a model without a run
    flags = ("--save-dir", run_copy, "--vocab-file", VOCAB, "--with-softmax")
    run("dump-weights", *flags, "--model-dir", tmp_path / "model")
    test = ("test", "--test-prefix", HELDOUT, "--batch-size", 2)
    wanted = run(*test, "--model", run_copy, "--vocab-file", VOCAB)
    found = run(*test, "--model", tmp_path / "model")
    assert combined_perplexity(found) == pytest.approx(combined_perplexity(wanted), rel=1e-6)
    scores = [
        run("score", text, "--format", "jsonl", *model)
        for model in (("--model", tmp_path / "model"), ("--save-dir", run_copy, "--vocab-file", VOCAB))
    ]
    assert scores[0] == scores[1]


def test_neither_without_a_softmax(made, text):
    message = refuse("score", text, "--model", made / "193.zip")
    assert message.startswith(f"{made / '193.zip'}/model.hdf5: has no softmax, without which")
    message = refuse("test", "--test-prefix", HELDOUT, "--model", made / "folder")
    assert "has no softmax" in message and "--with-softmax" in message


# --- what is refused ------------------------------------------------------------------------------------


def test_what_is_no_model(made, text, tmp_path):
    """Each is said by name, and where else it is to be given."""
    (tmp_path / "model.tar.gz").write_bytes(b"\x1f\x8b")
    bomb = write_zip(tmp_path / "x.zip", model_files() | {"model.hdf5": bytes(100 << 20)})
    archive = made / "193.zip"
    is_archive = f"{archive}: is a ZIP archive; if it is that of a model, give it as --model"
    for flags, message in (
        (("--model", tmp_path / "model.tar.gz"), f"{tmp_path / 'model.tar.gz'}: is a tar archive"),
        (("--model", bomb), f"{bomb}/model.hdf5: "),
        (("--options-file", archive, "--weight-file", WEIGHTS), is_archive),
        (("--options-file", OPTIONS, "--weight-file", archive), is_archive),
        (("--save-dir", made / "folder"), f"{made / 'folder'}: not a run directory: its options.json goes "),
        (("--save-dir", archive), f"{archive}: not a run directory: it is a ZIP archive; if it is "),
        (("--save-dir", WEIGHTS), f"{WEIGHTS}: not a run directory: a file; a model that is a file is "),
    ):
        assert refuse("embed", text, tmp_path / "out.hdf5", *flags).startswith(message)
    for flag in ("--checkpoint", "--weights"):
        command = ("embed", text, tmp_path / "out.hdf5", "--model", archive, flag, "raw")
        assert refuse(*command, status=2) == f"{flag} is for a run, and {archive} is not a run directory"


def test_restart_does_not_write_into_the_model(tmp_path):
    folder = write_folder(tmp_path / "model", model_files())
    before = snapshot(tmp_path)
    flags = ("--train-prefix", TRAIN, "--max-steps", 1)
    refuse("restart", "--model", folder, *flags, "--save-to", folder)
    message = refuse("restart", "--model", folder, *flags, status=2)
    assert message == f"{folder} is not a run; give --save-to for the new run directory"
    assert snapshot(tmp_path) == before


# --- from Python ----------------------------------------------------------------------------------------


def test_elmo_embedder(made, expected):
    wanted = bilm.ElmoEmbedder(OPTIONS, WEIGHTS).fingerprint
    embedders = [bilm.ElmoEmbedder.from_model(made / name) for name in ("193.zip", "run")]
    assert [embedder.fingerprint for embedder in embedders] == [wanted] * 2
    np.testing.assert_allclose(embedders[0].embed_sentence(["Time", "flies"]), expected[0], atol=1e-6)
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
