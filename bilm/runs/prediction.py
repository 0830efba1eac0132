"""Prediction of words at places in sentences: next words, substitutes, gaps."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bilm.data import packing
from bilm.errors import OptionsError, checked, require_positive
from bilm.io import PathLike
from bilm.options.parameters import Context
from bilm.run_directory.model_source import open_model
from bilm.training.evaluation import Scorer
from bilm.vocabulary.vocabulary_file import SPECIAL_TOKENS

_CHUNK_TOKENS = 1 << 12
_LOGITS = 1 << 23  # maximum number in memory at once


@dataclass(frozen=True)
class Prediction:
    """The most probable words at a place in a sentence.

    Attributes:
        position: index of the place among the words of the sentence, from 0.
        word: word of the sentence at this place.
        best: words and their probabilities, most probable first.
    """

    position: int
    word: str
    best: Sequence[tuple[str, float]]


class WordPredictor(Scorer):
    """Predicts words from the words before them, after them, or both; also scores sentences.

    Args:
        model: language model with its weights.
        vocabulary: vocabulary of the model; character-level if the model is.

    Example:
        >>> predictor = WordPredictor.from_model("run")
        >>> [prediction] = next(predictor.predict([["he", "was", "___", "."]], n_best=2, gap="___"))
        >>> prediction.position, len(prediction.best)
        (2, 2)
    """

    @classmethod
    @checked
    def from_model(
        cls,
        model: PathLike,
        vocab_file: PathLike | None = None,
        *,
        checkpoint: str | int | None = None,
    ) -> "WordPredictor":
        """Read a model by its path.

        Args:
            model: run directory, or dumped weights with the softmax.
            vocab_file: vocabulary of the model; None for the one stored with it.
            checkpoint: checkpoint of a run, see `RunDirectory.choose`.

        Raises:
            BilmError: the model does not exist, has no softmax or no vocabulary, or cannot be read.
        """
        return cls.of(open_model(model, checkpoint), vocab_file)

    @checked
    def predict(
        self,
        sentences: Iterable[Sequence[str]],
        n_best: int = 10,
        context: str = "both",
        gap: str | None = None,
    ) -> Iterator[list[Prediction]]:
        """Find the most probable words at places in sentences.

        Args:
            sentences: sentences as sequences of words; each is read independently.
            n_best: number of words to find at a place. Special words are left out, but they count in the
                normalisation of the probabilities.
            context: words to predict from: ``left``, ``right`` or ``both``. With ``both``, the probability is
                the product of the two directions' probabilities, normalised over the vocabulary.
            gap: word that marks the places; None for every word of a sentence.

        Yields:
            Predictions of one sentence, in the order of the places.

        Raises:
            DataError: a sentence is not a list of words, or a word is empty or contains whitespace.
            OptionsError: the model has no backward direction, or an argument is invalid.
        """
        require_positive(n_best=n_best)
        directions = {Context.LEFT: [0], Context.RIGHT: [1], Context.BOTH: [0, 1]}[Context(context)]
        if directions[-1] >= self.model.options.n_directions:
            raise OptionsError(f"`context` {context}: the model has no backward direction")
        n_candidates = min(n_best + len(SPECIAL_TOKENS), self.vocabulary.size)
        n_at_once = max(1, _LOGITS // self.vocabulary.size)
        for chunk, encoded in self.encoded(sentences, _CHUNK_TOKENS):
            outputs = self.in_order(encoded, self.outputs(encoded, packing.pack(encoded.lengths)))
            for words, start in zip(chunk, encoded.starts, strict=True):
                positions = np.array([k for k, word in enumerate(words) if gap in (None, word)], np.int64)
                predictions = []
                for first in range(0, len(positions), n_at_once):
                    places = positions[first : first + n_at_once]
                    # In the backward direction a word is one place later, because <S> is first.
                    own = np.stack([outputs[k, start + places + k] for k in directions])
                    both = tf.reduce_sum(tf.nn.log_softmax(self.model.softmax(tf.constant(own))), axis=0)
                    rows = (values.numpy() for values in tf.math.top_k(tf.nn.softmax(both), n_candidates))
                    for place, *best in zip(places.tolist(), *rows, strict=True):
                        pairs = ((self.vocabulary.words[k], float(p)) for p, k in zip(*best, strict=True))
                        kept = [(word, p) for word, p in pairs if word not in SPECIAL_TOKENS]
                        predictions.append(Prediction(place, words[place], kept[:n_best]))
                yield predictions
