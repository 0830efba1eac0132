import numpy as np
import pytest

from bilm.data.pipeline import evaluation_batches
from bilm.errors import CheckpointError, DataError
from bilm.models.language_model import LanguageModel
from bilm.options import Options
from bilm.training.evaluation import Evaluation, Evaluator
from bilm.vocabulary.vocabulary import Vocabulary
from tests.helpers import TRAIN, smallest_options

VOCABULARY = Vocabulary.from_words(["<S>", "</S>", "<UNK>", "the", "."])


def make_model():
    return LanguageModel(Options.from_json(smallest_options(n_tokens_vocab=VOCABULARY.size)))


@pytest.fixture(scope="module")
def model():
    return make_model()


def batches(path=TRAIN, batch_size=7):
    options = Options.from_json(smallest_options(batch_size=batch_size))
    return evaluation_batches([path], VOCABULARY, options)


def test_counts_every_target_and_tells_of_each_window(model):
    seen = []
    result = Evaluator(model).evaluate(batches(), seen.append)
    n_words = sum(len(line.split()) + 1 for line in TRAIN.read_text().splitlines())
    assert result.n_tokens == n_words == seen[-1]
    assert seen == sorted(seen) and seen[0] == 21


def test_perplexities():
    result = Evaluation((1.0, 3.0), 10)
    assert result.perplexities == pytest.approx((np.exp(2.0), np.exp(1.0), np.exp(3.0)))
    assert Evaluation((5000.0,), 1).perplexities.perplexity < np.inf  # so that it can be written as JSON


def test_nothing_to_score(model, tmp_path):
    (tmp_path / "blank").write_text("\n\n")
    with pytest.raises(DataError, match="nothing to score"):
        Evaluator(model).evaluate(batches(tmp_path / "blank"))


def test_a_diverged_model_is_named():
    diverged = make_model()
    diverged.softmax.bias.assign(np.full(VOCABULARY.size, np.nan))
    with pytest.raises(CheckpointError, match="not finite"):
        Evaluator(diverged).evaluate(batches())
