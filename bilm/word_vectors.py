"""Vectors of words, remembered from text to text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bilm.elmo import BidirectionalLanguageModel
from bilm.vocab import UnicodeCharsVocabulary, Vocabulary
from bilm.vocab_file import SPECIAL_TOKENS

_WORDS_AT_ONCE = 1 << 13


class WordVectors:
    """Context-independent vectors of words, computed once each as long as they fit.

    Args:
        model: encodes the words.
        vocabulary: of a word-level model; None for one over characters.
        max_words: words remembered; when there are more, all are forgotten.
    """

    def __init__(
        self, model: BidirectionalLanguageModel, vocabulary: Vocabulary | None, max_words: int
    ) -> None:
        self._model = model
        self._vocabulary = vocabulary
        if vocabulary is None:
            width = model.options.char_cnn.max_characters_per_token if model.options.char_cnn else 0
            self._vocabulary = UnicodeCharsVocabulary.from_words(SPECIAL_TOKENS, width)
        self._max_words = max_words
        self._places: dict[str, int] = {}
        self._table = np.empty((0, model.options.lstm.projection_dim), np.float32)

    def __call__(self, words: Sequence[str]) -> np.ndarray:
        """Vectors of distinct words, float32 (words, projection_dim)."""
        new = [word for word in words if word not in self._places]
        if len(self._places) + len(new) > self._max_words:
            self._places, new = {}, list(words)
        first = len(self._places)
        if first + len(new) > len(self._table):
            table = np.empty((max(first + len(new), 2 * len(self._table)), self._table.shape[1]), np.float32)
            table[:first] = self._table[:first]
            self._table = table
        for start in range(0, len(new), _WORDS_AT_ONCE):
            some = new[start : start + _WORDS_AT_ONCE]
            self._table[first + start : first + start + len(some)] = self._encode(some)
        self._places.update(zip(new, range(first, first + len(new)), strict=True))
        return self._table[[self._places[word] for word in words]]

    def _encode(self, words: list[str]) -> np.ndarray:
        vocabulary = self._vocabulary
        assert vocabulary is not None
        ids = vocabulary.lookup(words)
        outside = np.flatnonzero(ids < 0)
        if not isinstance(vocabulary, UnicodeCharsVocabulary) or self._model.options.char_cnn is None:
            ids[outside] = vocabulary.unk
            return self._model.encoder.encode_words((), tf.constant(ids)).numpy()
        ids[outside] = vocabulary.size + outside
        return self._model.word_vectors(vocabulary.character_rows(ids, words))
