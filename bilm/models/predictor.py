"""A stored model that predicts words, with its softmax and its vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bilm.models.language_model import LanguageModel
from bilm.options import Options
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.stored_model import StoredModel, require_size
from bilm.weights.transfer import named_weights, set_weights


class Predictor(NamedTuple):
    """A model that is known to predict words; its weights are read when it is loaded.

    Attributes:
        stored: the model.
        vocabulary: of the model.
    """

    stored: StoredModel
    vocabulary: Vocabulary

    def load(self, needed: Sequence[str] = ("unroll_steps",)) -> tuple[LanguageModel, Options]:
        """Read the weights.

        Args:
            needed: see `StoredModel.predicting_options`.

        Returns:
            The model, and the options with which a text is read.

        Raises:
            BilmError: the weights cannot be read, or do not fit each other.
        """
        options = self.stored.predicting_options(needed)
        model = LanguageModel(options)
        set_weights(named_weights(model), self.stored.arrays(), self.stored.source)
        return model, options


def open_predictor(stored: StoredModel, vocab_file: Path | None) -> Predictor:
    """Make sure that a stored model predicts words.

    Args:
        stored: the model.
        vocab_file: its vocabulary; None for the one that is stored with it.

    Raises:
        ArgumentError: there is no vocabulary.
        BilmError: the model has no softmax, or it is that of another vocabulary.
    """
    n_words = stored.predicting_options(()).n_tokens_vocab
    vocabulary = stored.require_vocabulary(vocab_file)
    stored.check_vocabulary(vocabulary)
    require_size(vocabulary, n_words, stored.source)
    return Predictor(stored, vocabulary)
