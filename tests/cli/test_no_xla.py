"""Commands where XLA does not work, and with --no-xla."""

import json

import h5py
import numpy as np
import pytest

from bilm.backend import xla
from tests.checks import fail_to_compile
from tests.helpers import GOLDEN, checkpoint_arrays, newest, refuse, run, train_command

CHAR = GOLDEN / "char"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("trained", "smallest_file"),
        pytest.param("trained_whole", "small_file", marks=pytest.mark.slow),
    ],
)
def test_training_gives_the_same_and_is_resumed_only_as_it_began(
    kind, options, tmp_path, request, monkeypatch, caplog
):
    trained, options = request.getfixturevalue(kind), request.getfixturevalue(options)()
    directory = tmp_path / "run"
    train = train_command(directory, options, "--seed", 7, "--resume", "--max-steps")
    fail_to_compile(monkeypatch, "no libdevice")
    run(*train, 2)
    ours = [record.message for record in caplog.records if record.name.startswith("bilm")]
    assert [message[:18] for message in ours] == ["XLA cannot compile"]
    compiled, plain = (checkpoint_arrays(newest(path)) for path in (trained.path, directory))
    for name, array in compiled.items():
        np.testing.assert_allclose(plain[name], array, atol=1e-5, err_msg=name)
    monkeypatch.undo()
    assert "cannot be resumed with XLA (false to true)" in refuse(*train, 3)
    assert "2 of 3 done" in run(*train, 3, "--no-xla")


def test_jit_needs_it(tmp_path, smallest_file):
    train = train_command(tmp_path / "run", smallest_file(), "--jit", "--no-xla", "--max-steps", 1)
    assert "--jit needs XLA" in refuse(*train)


@pytest.mark.slow
def test_embed_score_and_test(tmp_path, monkeypatch):
    monkeypatch.setattr(xla, "_works", {})
    save_dir = ("--save-dir", CHAR / "final")
    vocabulary = ("--vocab-file", CHAR / "vocab.txt")
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("".join((CHAR / "heldout.txt").open().readlines()[:3]))
    numbers, tried = [], []
    for flags in (("--no-xla",), ()):
        outfile = tmp_path / f"{len(flags)}.hdf5"
        run("embed", sentences, outfile, *save_dir, *flags)
        lines = run("score", sentences, *save_dir, *vocabulary, "--format", "jsonl", *flags).splitlines()
        test = run("test", "--test-prefix", sentences, *save_dir, *vocabulary, "--json", *flags)
        with h5py.File(outfile) as file:
            vectors = file["0"][()]
        score = json.loads(lines[0])["forward"]
        numbers.append([*vectors.ravel(), score, json.loads(test.splitlines()[-1])["perplexity"]])
        tried.append(len(xla._works))
    assert tried == [0, 1]
    np.testing.assert_allclose(*numbers, rtol=1e-5, atol=1e-5)
