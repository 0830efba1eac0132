import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.data.packing import stretches
from bilm.data.stream import encode_sentences
from bilm.embedding import scoring
from bilm.embedding.scoring import Evaluation, Scorer
from bilm.errors import CheckpointError, DataError
from bilm.models.language_model import LanguageModel
from bilm.options import Options
from bilm.vocabulary.vocabulary import Vocabulary
from tests.helpers import TRAIN, smallest_options

VOCABULARY = Vocabulary.from_words(["<S>", "</S>", "<UNK>", "the", "."])
LINES = TRAIN.read_text().splitlines()


@pytest.fixture(scope="module")
def scorer():
    options = smallest_options(bidirectional=True, n_tokens_vocab=VOCABULARY.size)
    return Scorer(LanguageModel(Options.from_json(options)), VOCABULARY)


def text(lines):
    return encode_sentences(lines, VOCABULARY)


def assert_close(result, expected):
    assert result.n_tokens == expected.n_tokens
    assert result.direction_losses == pytest.approx(expected.direction_losses, rel=1e-5)


def in_one_row(scorer, lines):
    """A text read from beginning to end, the state carried."""
    return scorer.evaluate([text(lines)], n_rows=1)


def test_evaluate_reads_stretches(scorer, monkeypatch):
    parts = [text(LINES[:50]), text(LINES[50:])]
    seen = []
    result = scorer.evaluate(parts, seen.append)
    lengths = [len(line.split()) + 1 for line in LINES]
    sizes = stretches(lengths)
    assert len(sizes) > 2 and sum(sizes) == sum(lengths) == result.n_tokens == seen[-1]
    starts = [0, *itertools.accumulate(sizes)]
    ends = [0, *itertools.accumulate(lengths)]
    each = [
        in_one_row(scorer, LINES[ends.index(start) : ends.index(end)])
        for start, end in itertools.pairwise(starts)
    ]
    losses = np.average([one.direction_losses for one in each], axis=0, weights=sizes)
    assert_close(result, Evaluation(tuple(losses), sum(sizes), ()))
    monkeypatch.setattr(scoring, "_WINDOW_TOKENS", 30)  # many windows for each row
    assert_close(scorer.evaluate(parts), result)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 900), min_size=1, max_size=12))
def test_stretches_are_whole_sentences(lengths):
    sizes = stretches(lengths)
    assert set(itertools.accumulate(sizes)) <= {*itertools.accumulate(lengths)}
    assert sum(sizes) == sum(lengths) and min(sizes[:-1], default=1000) >= 1000


@pytest.mark.parametrize("window", [100, 1 << 13])
def test_sentence_scores_as_text_of_one_line(scorer, window, monkeypatch):
    monkeypatch.setattr(scoring, "_WINDOW_TOKENS", window)
    long = " ".join(LINES)
    lines = [*LINES[:20], "the unseen", long]
    for line, score in zip(lines, scorer(line.split() for line in lines), strict=True):
        expected = in_one_row(scorer, [line])
        losses = tuple(-float(np.mean(each)) for each in (score.forward, score.backward))
        is_known = [*score.is_known, True], [True, *score.is_known]  # the marks too
        sides = zip((score.forward, score.backward), is_known, strict=True)
        known = [-float(np.mean(each[of_words])) for each, of_words in sides]
        assert_close(Evaluation(losses, len(score.forward), ()), expected)
        assert expected.known_losses == pytest.approx(known, rel=1e-5)


def test_perplexities():
    result = Evaluation((1.0, 3.0), 10, (2.0, 3.0))
    assert result.perplexities == pytest.approx((np.exp(2.0), np.exp(1.0), np.exp(3.0)))
    assert result.known_perplexity == pytest.approx(np.exp(2.5))
    assert Evaluation((5000.0,), 1, ()).perplexities.perplexity < np.inf  # so that it can be written as JSON


@pytest.mark.parametrize(
    ("parts", "n_rows", "problem"),
    [([], None, "empty"), ([text(["the ."])], 2, "smaller than one batch; give a smaller `batch_size`")],
    ids=["nothing", "less than rows"],
)
def test_empty_text_is_refused(scorer, parts, n_rows, problem):
    with pytest.raises(DataError, match=f"nothing to score: the text is {problem}$"):
        scorer.evaluate(parts, n_rows=n_rows)


@pytest.fixture
def changed(scorer):
    """The scorer, whose weights a test may change."""
    before = scorer.model.get_weights()
    yield scorer
    scorer.model.set_weights(before)


def test_evaluate_uses_current_weights(changed):
    before = changed.evaluate([text(LINES)])
    changed.model.encoder.embedding.assign(changed.model.encoder.embedding * 2.0)
    assert changed.evaluate([text(LINES)]).direction_losses != before.direction_losses


@pytest.mark.parametrize("biases", [[np.nan], [3e38, -3e38]], ids=["no number", "too large"])
def test_diverged_model_is_named(biases, changed):
    changed.model.softmax.bias.assign(np.resize(np.float32(biases), VOCABULARY.size))
    for score in (lambda: changed.evaluate([text(LINES)]), lambda: list(changed([["the"]]))):
        with pytest.raises(CheckpointError, match="losses are not finite: its training diverged"):
            score()
