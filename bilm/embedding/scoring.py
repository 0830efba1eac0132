"""Log-probabilities of sentences under the full softmax, each sentence starting from zero state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.embedding.packed_embedder import WordVectors
from bilm.embedding.packing import chunks, number_types, pack
from bilm.errors import CheckpointError
from bilm.models import sentence_encoder as inference
from bilm.models.language_model import LanguageModel
from bilm.vocabulary.file import BOS, EOS
from bilm.vocabulary.vocabulary import Vocabulary

_BATCH_TOKENS = 8192
_CACHED_WORDS = 1 << 16


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
        vocabulary: the model's; character-level if the model is.
    """

    def __init__(self, model: LanguageModel, vocabulary: Vocabulary) -> None:
        self._model = model
        self._vocabulary = vocabulary
        self._words = WordVectors(model.encoder, vocabulary, _CACHED_WORDS)
        n_directions = model.options.n_directions
        self._run: Any = tf.function(
            self._compute,
            autograph=False,
            input_signature=[
                tf.TensorSpec([None, model.options.lstm.projection_dim], tf.float32),
                tf.TensorSpec([n_directions, None, None], tf.int32),
                tf.TensorSpec([n_directions, None], tf.int32),
                tf.TensorSpec([n_directions, None], tf.int32),
                tf.TensorSpec([None, None], tf.bool),
            ],
        )

    def __call__(self, sentences: Iterable[Sequence[str]]) -> Iterator[SentenceScore]:
        """Scores in the order of the sentences; an empty one is scored too.

        Raises:
            CheckpointError: the weights are so large that there are no scores.
        """
        for chunk in chunks(sentences, lambda _, n_tokens: n_tokens >= _BATCH_TOKENS, lambda words: words):
            yield from self._score(chunk)

    def _score(self, sentences: list[Sequence[str]]) -> Iterator[SentenceScore]:
        packing = pack([len(words) + 2 for words in sentences])
        tokens = [token for words in sentences for token in (BOS, *words, EOS)]
        types, numbers = number_types(tokens)
        ids = self._vocabulary.lookup(tokens)
        is_known = ids >= 0
        if not is_known.all():
            ids[~is_known] = self._vocabulary.unk_for(tokens[int(np.argmin(is_known))])
        # A direction predicts a token after each of those that the other predicts.
        n_directions = self._model.options.n_directions
        predicted = (~packing.is_first, ~packing.is_last)
        scores = self._run(
            self._words(types),
            packing.fill(numbers, n_directions),
            packing.places(*predicted[::-1][:n_directions]),
            np.stack([ids[tokens] for tokens in predicted[:n_directions]]),
            packing.begins,
        ).numpy()
        if not np.isfinite(scores).all():
            raise CheckpointError(
                "the model's log-probabilities are not finite: its training diverged; use an earlier "
                "checkpoint"
            )
        found = zip(
            np.split(scores, np.cumsum([len(words) + 1 for words in sentences])[:-1], axis=1),
            np.split(is_known[packing.is_word], np.cumsum([len(words) for words in sentences])[:-1]),
            strict=True,
        )
        for words, (values, known) in zip(sentences, found, strict=True):
            yield SentenceScore(words, values[0], values[1] if len(values) > 1 else None, known)

    def _compute(
        self, table: tf.Tensor, tokens: tf.Tensor, places: tf.Tensor, targets: tf.Tensor, begins: tf.Tensor
    ) -> tf.Tensor:
        """Log-probabilities of the targets, (directions, targets)."""
        directions = range(self._model.options.n_directions)
        layers, _ = inference.run_packed(self._model.encoder, table, tokens, places, begins)
        return -tf.stack(
            [
                self._model.softmax.full_losses(layers[-1][direction], targets[direction])
                for direction in directions
            ]
        )
