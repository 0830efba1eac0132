"""`bilm score`: log-probabilities of sentences and tokens."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bilm.errors import CheckpointError
from bilm.models.language_model import LanguageModel
from bilm.options.file import load_options
from bilm.run_directory.directory import RunDirectory
from bilm.training.evaluation import Scorer
from bilm.vocabulary.vocabulary import load_vocabulary
from tests.helpers import GOLDEN, VARIANTS, run

SENTENCES = [["the", "unseenword"], ["a"], [], ["the"] * 7]


@pytest.fixture(scope="module")
def scorers():
    return {}


@pytest.fixture(autouse=True)
def _compiled_once(scorers, monkeypatch):
    """The runs here differ in their options, so that those say which scorer was compiled before."""

    read = Scorer.of

    def before(*arguments):
        scorer = read(*arguments)
        return scorers.setdefault((scorer.model.options, scorer.model.encoder.precision), scorer)

    monkeypatch.setattr(Scorer, "of", before)


def expected_scores(variant):
    """From the logits of the training model, a sentence at a time."""
    directory = RunDirectory.open(GOLDEN / variant / "final")
    model = LanguageModel(directory.options)
    directory.restore(model)
    cnn = directory.options.char_cnn
    vocabulary = load_vocabulary(GOLDEN / variant / "vocab.txt", cnn and cnn.max_characters_per_token)
    for words in filter(None, SENTENCES):
        inputs = {}
        for suffix, given in (("", words), ("_reverse", words[::-1])):
            ids = (given, bool(suffix), False)
            inputs["token_ids" + suffix] = vocabulary.encode(*ids)[None]
            if cnn:
                inputs["tokens_characters" + suffix] = vocabulary.encode_chars(*ids)[None]
        logits = model(inputs)
        scores = []
        for name, suffix in zip(logits, ("", "_reverse"), strict=False):
            targets = inputs["token_ids" + suffix][0, 1:]
            rows = tf.nn.log_softmax(logits[name][0, :-1]).numpy()
            scores.append([None, *rows[np.arange(len(targets)), targets].tolist()])
        yield words, scores[0], scores[1][::-1] if len(scores) > 1 else [None] * (len(words) + 2)


def score(variant, path, *flags):
    path.write_text("\n".join(map(" ".join, SENTENCES)))
    folder = GOLDEN / variant
    files = ("--save-dir", folder / "final", "--vocab-file", folder / "vocab.txt")
    return run("score", path, *files, *flags).splitlines()


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_are_those_of_the_logits(variant, tmp_path):
    tokens = [json.loads(line) for line in score(variant, tmp_path / "t", "--tokens", "--format", "jsonl")]
    sums = [json.loads(line) for line in score(variant, tmp_path / "t", "--format", "jsonl")]
    assert [record["line"] for record in sums] == [0, 1, 3]
    for record, (words, forward, backward) in zip(sums, expected_scores(variant), strict=True):
        own = [token for token in tokens if token["line"] == record["line"]]
        assert [token["token"] for token in own] == ["<S>", *words, "</S>"]
        assert [token["position"] for token in own] == list(range(len(words) + 2))
        assert record["words"] == len(words) and record["unknown"] == words.count("unseenword")
        for direction, expected in (("forward", forward), ("backward", backward)):
            assert [token[direction] for token in own] == pytest.approx(expected, abs=1e-5)
            whole = None if expected[1] is None else pytest.approx(sum(filter(None, expected)), abs=1e-4)
            assert record[direction] == whole
    assert [token["known"] for token in tokens[:4]] == [True, True, False, True]


def test_scores_of_low_precision_are_near_the_exact_ones(tmp_path):
    exact, found = (
        [json.loads(line)["forward"] for line in score("char", tmp_path / "t", "--format", "jsonl", *flags)]
        for flags in ((), ("--precision", "bfloat16"))
    )
    assert found == pytest.approx(exact, rel=1e-2) and found != exact


def test_tsv(tmp_path):
    header, *lines = score("char", tmp_path / "t")
    assert header == "line\twords\tunknown\tforward\tbackward\tsentence"
    assert [line.split("\t")[0] for line in lines] == ["0", "1", "3"]
    assert lines[0].endswith("\tthe unseenword")
    header, first, *_ = score("char", tmp_path / "t", "--tokens")
    assert header == "line\tposition\ttoken\tknown\tforward\tbackward"
    assert first.startswith("0\t0\t<S>\t1\t\t-")


def test_weights_so_large_that_there_are_no_scores():
    """Neither NaN in JSON, which is none then, nor in a table."""
    folder = GOLDEN / "char"
    options = load_options(folder / "final" / "options.json")
    options = dataclasses.replace(options, char_cnn=None, bidirectional=False)
    model = LanguageModel(options)
    model.softmax.bias.assign(np.resize(np.float32([3e38, -3e38]), options.n_tokens_vocab))
    scorer = Scorer(model, load_vocabulary(folder / "vocab.txt"))
    with pytest.raises(CheckpointError, match="losses are not finite: its training diverged"):
        list(scorer([["the"]]))
