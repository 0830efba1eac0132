"""Log-probabilities of sentences under the full softmax, each sentence from zero state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from bilm import inference
from bilm.batching import Batcher, TokenBatcher
from bilm.language_model import LanguageModel
from bilm.length_batches import length_batches, padded_rows
from bilm.vocab import UnicodeCharsVocabulary, Vocabulary

_BATCH_TOKENS = 2048
_SENTENCES_AT_ONCE = 1024


@dataclass(frozen=True, eq=False)
class SentenceScore:
    """Log-probabilities, natural, of one sentence; words outside the vocabulary count as ``<UNK>``.

    Attributes:
        words: of the sentence.
        forward: (words + 1,) of each word and ``</S>``, given what stands before.
        backward: (words + 1,) of ``<S>`` and each word, given what comes after; None for a model of
            one direction.
        is_known: bool (words,), whether the word is in the vocabulary.
    """

    words: Sequence[str]
    forward: np.ndarray
    backward: np.ndarray | None
    is_known: np.ndarray


class Scorer:
    """Scores sentences with a trained language model.

    Args:
        model: with the weights to be used.
        vocabulary: the model's; over characters if the model is.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        self._model = model
        self._vocabulary = vocabulary
        width: list[int] = []
        self._batcher: Batcher | TokenBatcher = TokenBatcher(vocabulary)
        if isinstance(vocabulary, UnicodeCharsVocabulary):
            width = [vocabulary.max_word_length]
            self._batcher = Batcher(vocabulary, vocabulary.max_word_length)
        self._targets = TokenBatcher(vocabulary)
        self._run: Any = tf.function(
            self._compute,
            input_signature=[
                tf.TensorSpec([None, None, *width], tf.int32),
                tf.TensorSpec([None, None], tf.int32),
            ],
        )

    def __call__(self, sentences: Iterable[Sequence[str]]) -> Iterator[SentenceScore]:
        """Scores in the order of the sentences; an empty one is scored too."""
        stream = iter(sentences)
        while chunk := list(islice(stream, _SENTENCES_AT_ONCE)):
            scores: dict[int, SentenceScore] = {}
            for numbers in length_batches([len(words) + 2 for words in chunk], _BATCH_TOKENS):
                some = [chunk[i] for i in numbers]
                scores.update(zip(numbers, self._score(some), strict=True))
            yield from (scores[i] for i in range(len(chunk)))

    def _score(self, sentences: list[Sequence[str]]) -> Iterator[SentenceScore]:
        rows = [*sentences, *[()] * (padded_rows(len(sentences)) - len(sentences))]
        ids = self._batcher.batch_sentences(rows).astype(np.int32)
        targets = self._targets.batch_sentences(rows).astype(np.int32)
        values = [value.numpy() for value in self._run(ids, targets)]
        for row, words in enumerate(sentences):
            n = len(words) + 1
            forward, *backward = (value[row, :n] for value in values)
            yield SentenceScore(
                words, forward, backward[0] if backward else None, self._vocabulary.lookup(words) >= 0
            )

    def _compute(self, ids: tf.Tensor, targets: tf.Tensor) -> list[tf.Tensor]:
        """Log-probabilities (rows, steps - 1) by direction; what stands after a sentence means nothing."""
        encoder = self._model.encoder
        lengths = tf.reduce_sum(tf.cast(targets > 0, tf.int32), axis=1)
        top = inference.run_sentences(encoder, inference.word_vectors(encoder, ids), lengths).layers[:, -1]
        words = tf.maximum(targets - 1, 0)
        dim = self._model.options.lstm.projection_dim
        scores = [self._log_probabilities(top[:, :-1, :dim], words[:, 1:])]
        if self._model.options.bidirectional:
            scores.append(self._log_probabilities(top[:, 1:, dim:], words[:, :-1]))
        return scores

    def _log_probabilities(self, hidden: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        flat = tf.reshape(hidden, [-1, self._model.options.lstm.projection_dim])
        losses = self._model.softmax.full_losses(flat, tf.reshape(targets, [-1]))
        return -tf.reshape(losses, tf.shape(targets))
