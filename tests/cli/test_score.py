"""`bilm score` and `predict`: log-probabilities of sentences and tokens, and likely words."""

import copy
import json
import re

import numpy as np
import pytest
import tensorflow as tf

from bilm import WordPredictor
from bilm.embedding import prediction
from bilm.embedding.prediction import filled
from bilm.embedding.scoring import Scorer
from bilm.errors import ArgumentError, OptionsError
from bilm.models.language_model import LanguageModel
from bilm.run_directory.directory import RunDirectory
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, load_vocabulary
from bilm.vocabulary.vocabulary_file import SPECIAL_TOKENS
from tests.helpers import GOLDEN, VARIANTS, VOCAB, invoke, printed, refuse, restore, run

SENTENCES = [["the", "unseenword"], ["a"], [], ["the"] * 7]


@pytest.fixture(scope="module")
def scorers():
    return {}


@pytest.fixture(autouse=True)
def _compiled_once(scorers, monkeypatch):
    """The runs here differ in their options, so that those say which scorer was compiled before."""
    read = Scorer.from_stored.__func__

    def before(kind, *arguments):
        scorer = read(kind, *arguments)
        return scorers.setdefault((kind, scorer.model.options, scorer.model.encoder.precision), scorer)

    monkeypatch.setattr(Scorer, "from_stored", classmethod(before))


def expected_scores(variant):
    """From the logits of the training model, a sentence at a time."""
    directory = RunDirectory.open(GOLDEN / variant / "final")
    model = LanguageModel(directory.options)
    restore(directory, model)
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
    return printed("score", path, *files, *flags).splitlines()


@pytest.mark.slow
def test_dump_of_tied_rows_scores_and_trains_as_its_run(tmp_path):
    folder, weights = GOLDEN / "word-shared", tmp_path / "w.hdf5"
    run("dump-weights", "--save-dir", folder / "final", "--outfile", weights, "--with-softmax")
    flags = ("score", folder / "heldout.txt", "--vocab-file", folder / "vocab.txt", "--model")
    assert printed(*flags, weights) == printed(*flags, folder / "final")
    text = ("--train-prefix", folder / "heldout.txt", "--vocab-file", folder / "vocab.txt", "--batch-size", 2)
    run("restart", "--model", weights, *text, "--save-to", tmp_path / "to", "--max-steps", 1, "--no-xla")
    assert json.loads((tmp_path / "to" / "options.json").read_text())["share_embedding_softmax"]


def test_other_words_than_those_of_the_model_are_refused(trained, tmp_path):
    """As many as the model has."""
    words = VOCAB.read_text().split()
    (tmp_path / "vocab.txt").write_text("\n".join([*words[:-2], words[-1], words[-2]]))
    files = ("--model", trained, "--vocab-file", tmp_path / "vocab.txt")
    assert "the vocabulary is not the run's" in refuse("score", VOCAB, *files)


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_match_the_logits(variant, tmp_path):
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


@pytest.mark.slow
def test_low_precision_scores_are_near(tmp_path):
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
    (tmp_path / "blank").write_text("\n\n")
    flags = ("--save-dir", FOLDER / "final", "--vocab-file", FOLDER / "vocab.txt")
    assert printed("score", tmp_path / "blank", *flags).startswith("line\twords\t")


# --- predicted words ------------------------------------------------------------------------------


FOLDER = GOLDEN / "char"
TEXTS = [["the"], [], ["the", "a", "the", "unseenword"]]


@pytest.fixture(scope="module")
def predictor():
    return WordPredictor.from_model(FOLDER / "final", FOLDER / "vocab.txt")


def probabilities(predictor, context, **settings):
    """Probability of each word of the vocabulary, by sentence and place."""
    n_words = predictor.vocabulary.size
    predictions = predictor.predict(TEXTS, n_words, context, **settings)
    return [[dict(place.best) for place in places] for places in predictions]


@pytest.mark.slow
@pytest.mark.parametrize("context", ["left", "right"])
def test_left_context_matches_scores(predictor, context, monkeypatch):
    monkeypatch.setattr(prediction, "_LOGITS", 150)  # two places at once
    for words, places, score in zip(TEXTS, probabilities(predictor, context), predictor(TEXTS), strict=True):
        scored = score.forward[:-1] if context == "left" else score.backward[1:]
        assert len(places) == len(words)
        for word, place, log_probability in zip(words, places, scored, strict=True):
            assert word == "unseenword" or np.log(place[word]) == pytest.approx(log_probability, abs=1e-5)


def test_both_contexts_are_divided_by_the_prior(predictor):
    rank = np.arange(predictor.vocabulary.size)
    prior = dict(zip(predictor.vocabulary.words, np.log((rank + 2) / (rank + 1)), strict=True))
    sides = [probabilities(predictor, context) for context in ("left", "right", "both")]
    for left, right, both in zip(*(places for of_side in sides for places in of_side[2:]), strict=True):
        ratios = [np.log(both[word] / (left[word] * right[word] / prior[word] ** 0.75)) for word in both]
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


def test_surest_gap_is_filled_first(predictor):
    """Each step is one of the old kind: a prediction at a single gap, with the others as they then are."""
    words, gap = ["the", "___", "a", "___", "___"], "___"
    expected = {}
    while gap in words:
        (places,) = predictor.predict([words], 2, words=[gap])
        surest = max(places, key=lambda place: place.best[0][1])
        expected[surest.position] = surest.best
        words[surest.position] = surest.best[0][0]
    (found,) = predictor.predict([["the", "___", "a", "___", "___"]], 2, gap=gap)
    assert [place.position for place in found] == [1, 3, 4] and {place.word for place in found} == {gap}
    for place in found:
        assert dict(place.best) == pytest.approx(dict(expected[place.position]), rel=1e-4)
    assert filled(["the", "___", "a", "___", "___"], found) == words


def test_patterns_choose_words_that_match(predictor):
    words = [word for word in predictor.vocabulary.words if word not in ("<S>", "</S>", "<UNK>")]
    sentence = ["t?e", "*e", "*", "?", "t*e?z", "??", "the", "t.e", "?*", "[t]h*"]
    (places,) = predictor.predict([sentence], len(words), patterns=True)
    expressions = {0: "t.e", 1: ".*e", 4: "t.*e.z", 5: "..", 8: "..*", 9: r"\[t\]h.*"}
    assert [place.position for place in places] == [*expressions]
    for place in places:
        matching = {word for word in words if re.fullmatch(expressions[place.position], word)}
        assert {word for word, _ in place.best} == matching
        assert not matching or sum(p for _, p in place.best) == pytest.approx(1, abs=1e-5)
    assert not places[2].best and filled(sentence, places)[4] == "t*e?z"
    choices = ["the", "unseenword", "<UNK>", words[-1]]
    (places,) = predictor.predict([["*e", "a", "___"]], 9, gap="___", patterns=True, candidates=choices)
    assert [sorted(dict(place.best)) for place in places] == [["the"], sorted({"the", words[-1]})]
    with pytest.raises(OptionsError, match="`candidates`: none of them is a word of the vocabulary"):
        next(predictor.predict([["a"]], candidates=["unseenword", "<UNK>"]))


@pytest.mark.slow
def test_rows_that_are_no_word_are_not_predicted(predictor):
    words = [*predictor.vocabulary.words]
    words[4:7] = "", "New York", words[3]
    odd = WordPredictor(predictor.model, UnicodeCharsVocabulary.from_words(words, 50))
    ((place,),) = odd.predict([["the"]], len(words))
    assert sorted(word for word, _ in place.best) == sorted({*words} - {"", "New York", *SPECIAL_TOKENS})


def test_pattern_of_many_wildcards_is_quick(predictor):
    (places,) = predictor.predict([["*" * 40 + "\ufffd"]], patterns=True)
    assert not places[0].best


@pytest.mark.slow
def test_copied_predictor_predicts_the_same(predictor):
    copied = copy.deepcopy(predictor)
    (expected,), (found,) = (one.predict([["the", "a"]], 2) for one in (predictor, copied))
    assert found == expected
    with pytest.raises(ArgumentError, match=f"^{FOLDER}/final: has no text.json"):
        _ = copied.pipeline


@pytest.mark.slow
def test_one_direction_has_one_context(tmp_path):
    folder = GOLDEN / "char-forward"
    predictor = WordPredictor.from_model(folder / "final", folder / "vocab.txt")
    assert [*predictor.predict([["a"]])] == [*predictor.predict([["a"]], context="left")]
    with pytest.raises(OptionsError, match="`context` right: the model has no backward direction"):
        next(predictor.predict([["a"]], context="right"))
    with pytest.raises(OptionsError, match="`context` is 'up', not one of left, right, both"):
        next(predictor.predict([["a"]], context="up"))


def test_command_prints_predictions(tmp_path, predictor):
    text = tmp_path / "text"
    text.write_text("the a\n\na ___ the\n")
    flags = ("--save-dir", FOLDER / "final", "--vocab-file", FOLDER / "vocab.txt", "--n-best", 2)
    records = [
        json.loads(line) for line in printed("predict", text, *flags, "--format", "jsonl").splitlines()
    ]
    assert [(record["line"], record["position"]) for record in records] == [
        (0, 0),
        (0, 1),
        *((2, k) for k in range(3)),
    ]
    (expected,) = predictor.predict([["the", "a"]], 2)
    assert records[0]["best"] == [[word, pytest.approx(p, rel=1e-5)] for word, p in expected[0].best]
    header, line = printed("predict", text, *flags, "--gap", "___", "--context", "left").splitlines()
    ((place,),) = predictor.predict([["a", "___", "the"]], 2, "left", "___")
    best = ", ".join(f"{word} {probability:.4f}" for word, probability in place.best)
    assert header == "line\tposition\tword\tpredictions" and line == f"2\t1\t___\t{best}"


def test_command_fills_gaps(tmp_path, predictor):
    text, words = tmp_path / "text", tmp_path / "words"
    text.write_text("the ___ t?e\n\nno\u200f q?z\n")
    words.write_text("the\n\nunseenword\n")
    flags = ("predict", text, "--save-dir", FOLDER / "final", "--vocab-file", FOLDER / "vocab.txt")
    gaps = ("--gap", "___", "--patterns", "--candidates", words, "--format", "text")
    lines = run(*flags, *gaps).splitlines()
    problems = [
        f"{words}: 1 of 2 words are not in the vocabulary and cannot be predicted",
        f"{text}: line 3: no candidate matches 'q?z'",
    ]
    told = "2 words, 50.00% not in the vocabulary"  # of those that are no gaps
    assert lines == [problems[0], "the the the", "", problems[1], "no\u200f q?z", told]
    output = run(*flags, "--words", words, "--format", "jsonl").splitlines()
    assert f"{words}: not in the text: unseenword" in output
    words.write_text("unseenword\n")
    assert f"{words}: none of the words is in the text" in refuse(*flags, "--words", words)
    found = [json.loads(line) for line in output if line.startswith("{")]
    (expected,) = predictor.predict([["the", "___", "t?e"]], words=["the"])
    assert [(place["line"], place["position"], place["word"]) for place in found] == [(0, 0, "the")]
    assert dict(found[0]["best"]) == pytest.approx(dict(expected[0].best), rel=1e-4)


def test_contradicting_flags_of_predict_are_refused(tmp_path):
    path = tmp_path / "words"
    path.write_text("the\ntwo words\n")
    flags = ("predict", path, "--save-dir", FOLDER / "final", "--vocab-file", FOLDER / "vocab.txt")
    for own, status, message in (
        (("--format", "text"), 2, "--format text fills gaps; give --gap or --patterns"),
        (("--gap", "two words"), 2, "--gap is 'two words'; it must be one word"),
        (("--words", path, "--patterns"), 2, "leave out --gap and --patterns"),
        (("--raw", "--patterns"), 2, "--patterns are words of tokenised text; leave out --raw"),
        (("--candidates", path), 1, f"{path}: line 2: 'two words' is not one word; give a word per line"),
    ):
        assert message in refuse(*flags, *own, status=status)
        assert not invoke(*flags, *own).stdout
