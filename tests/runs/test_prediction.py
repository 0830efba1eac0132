"""Predicted words: from one side as scored, from both their product; gaps; the command."""

import json

import numpy as np
import pytest

from bilm import WordPredictor
from bilm.errors import OptionsError
from tests.helpers import GOLDEN, run

FOLDER = GOLDEN / "char"
SENTENCES = [["the"], [], ["the", "a", "the", "unseenword"]]


@pytest.fixture(scope="module")
def predictor():
    return WordPredictor.from_model(FOLDER / "final", FOLDER / "vocab.txt")


def probabilities(predictor, context, **settings):
    """Probability of each word of the vocabulary, by sentence and place."""
    n_words = predictor.vocabulary.size
    predictions = predictor.predict(SENTENCES, n_words, context, **settings)
    return [[dict(place.best) for place in places] for places in predictions]


@pytest.mark.parametrize("context", ["left", "right"])
def test_one_side_has_the_probabilities_of_the_scores(predictor, context):
    for words, places, score in zip(
        SENTENCES, probabilities(predictor, context), predictor(SENTENCES), strict=True
    ):
        scored = score.forward[:-1] if context == "left" else score.backward[1:]
        assert len(places) == len(words)
        for word, place, log_probability in zip(words, places, scored, strict=True):
            assert word == "unseenword" or np.log(place[word]) == pytest.approx(log_probability, abs=1e-5)


def test_both_sides_are_the_product(predictor):
    sides = [probabilities(predictor, context) for context in ("left", "right", "both")]
    for left, right, both in zip(*(places for of_side in sides for places in of_side[2:]), strict=True):
        ratios = [np.log(both[word] / (left[word] * right[word])) for word in both]
        assert ratios == pytest.approx([ratios[0]] * len(ratios), abs=1e-4)
        assert [*both.values()] == sorted(both.values(), reverse=True)
        assert not {"<S>", "</S>", "<UNK>"} & {*both}


def test_gaps(predictor):
    sentences = [["the", "a"], ["a", "___", "the", "___"]]
    none, gaps = predictor.predict(sentences, 2, "left", "___")
    assert none == [] and [(place.position, place.word, len(place.best)) for place in gaps] == [
        (1, "___", 2),
        (3, "___", 2),
    ]
    ((_, other, *_),) = predictor.predict([["a", "the", "the", "___"]], 2, "left")
    assert dict(gaps[0].best) == pytest.approx(dict(other.best))  # a word is not read for its own prediction


def test_a_model_of_one_direction(tmp_path):
    folder = GOLDEN / "char-forward"
    predictor = WordPredictor.from_model(folder / "final", folder / "vocab.txt")
    with pytest.raises(OptionsError, match="`context` both: the model has no backward direction"):
        next(predictor.predict([["a"]]))
    with pytest.raises(OptionsError, match="`context` is 'up', not one of left, right, both"):
        next(predictor.predict([["a"]], context="up"))


def test_the_command(tmp_path, predictor):
    text = tmp_path / "text"
    text.write_text("the a\n\na ___ the\n")
    flags = ("--save-dir", FOLDER / "final", "--vocab-file", FOLDER / "vocab.txt", "--n-best", 2)
    records = [json.loads(line) for line in run("predict", text, *flags, "--format", "jsonl").splitlines()]
    assert [(record["line"], record["position"]) for record in records] == [
        (0, 0),
        (0, 1),
        *((2, k) for k in range(3)),
    ]
    (expected,) = predictor.predict([["the", "a"]], 2)
    assert records[0]["best"] == [[word, pytest.approx(p, rel=1e-5)] for word, p in expected[0].best]
    header, line = run("predict", text, *flags, "--gap", "___").splitlines()
    assert header == "line\tposition\tword\tpredictions" and line.startswith("2\t1\t___\t")
