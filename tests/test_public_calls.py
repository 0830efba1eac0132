"""Calls with arguments of another kind are refused by the argument's name, not by what they later break."""

import functools
import io

import numpy as np
import pytest

import bilm
from bilm.errors import BilmError
from bilm.options import PRESETS, Options
from tests.helpers import HELDOUT, TRAIN, VOCAB, smallest_options

REFUSED = {
    "a path in place of a vocabulary": (
        lambda run: bilm.LMDataset(TRAIN, VOCAB),
        "`vocab` is .*; it must be of class Vocabulary",
    ),
    "a number in place of a path": (lambda run: bilm.RunDirectory.open(8), "`path` is 8; it must be a path"),
    "an open file in place of a path": (
        lambda run: bilm.ElmoEmbedder("options.json", io.BytesIO()),
        "`weight_file` is <.*; it must be a path",
    ),
    "no model": (lambda run: bilm.WordPredictor.from_model(""), "`model` is ''; it must be a path"),
    "a step without a checkpoint": (
        lambda run: bilm.WordPredictor.from_model(run, checkpoint=99),
        "model.ckpt-99: no such checkpoint",
    ),
    "no vocabulary": (
        lambda run: bilm.train(TRAIN, None, "run"),
        "give `vocab_file`, or the `corpus` of `bilm prepare`",
    ),
    "no text to train on": (lambda run: bilm.train("", VOCAB, "run"), "`train_prefix` is ''; expected files"),
    "a boolean in place of a step": (
        lambda run: bilm.RunDirectory.open(run).choose(True),
        "`checkpoint` is True; it must be a path or an integer",
    ),
    "an address in place of a cluster": (
        lambda run: bilm.train(TRAIN, VOCAB, "run", ray="local"),
        "`ray` is 'local'; it must be of class Cluster",
    ),
    "a function in place of a reporter": (
        lambda run: bilm.test(HELDOUT, run, reporter=print),
        "`reporter` is <.*; it must be of class Reporter",
    ),
    "a number in place of changes": (
        lambda run: PRESETS["tiny"].with_values(3),
        "`changes` is 3; it must be a dictionary",
    ),
    "a number in place of a key": (lambda run: Options.from_json({1: 2}), "  1: unrecognised option"),
    "a URL in place of a directory": (
        lambda run: bilm.prepare(TRAIN, "s3://bucket"),
        "s3://bucket: is a URL; give a local path",
    ),
    "a number in place of options": (
        lambda run: bilm.train(TRAIN, VOCAB, "run", options=8),
        "`options` is 8; it must be of class Options or a dictionary or a path",
    ),
    "a fraction": (lambda run: bilm.Batcher(None, 1.5), "`max_token_length` is 1.5; it must be an integer"),
    "bytes": (
        lambda run: bilm.Vocabulary(VOCAB).encode(b"the"),
        "`sentence` is of type bytes, not a list of words: b'the'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_argument_of_wrong_kind_is_named(case, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, message = REFUSED[case]
    with pytest.raises(BilmError, match=message):
        call(trained)
    assert list(tmp_path.iterdir()) == []


def test_predict_refuses_words(trained):
    predictor = bilm.WordPredictor.from_model(trained, checkpoint=2)
    for sentences, message in (
        ("the dog", "sentences must be lists of words, in a list, got str"),
        (["the dog"], "sentence 0 is a string, not a list of words: 'the dog'"),
        ([[""]], "'' is not a word: it is empty or has whitespace"),
        ([["the"], ["the dog"]], "'the dog' is not a word"),
        ([[b"the"]], "sentence 0, word 0 is of type bytes, not a string"),
    ):
        for call in (predictor, functools.partial(predictor.predict, context="left")):
            with pytest.raises(BilmError, match=message):
                list(call(sentences))
    with pytest.raises(BilmError, match="`n_best` is 1.5; it must be an integer"):
        predictor.predict([["the"]], n_best=1.5)


def test_natural_arguments_work(trained):
    run = bilm.RunDirectory.open(trained)
    assert run.choose(2).prefix == run.choose("2").prefix and run.weights(np.int64(2)).keys()
    assert run.choose(trained / "model.ckpt-2").step() == 2  # as results name it
    filters = {"char_cnn": {"filters": np.array([[1, 4]]), "embedding": {"dim": 4}}}
    assert Options.from_json(smallest_options() | filters).char_cnn.filters == ((1, 4),)
