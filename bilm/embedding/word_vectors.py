"""A cache of word vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bilm.backend.keras_backend import keras
from bilm.models import sentence_encoder as inference
from bilm.models.encoder import Encoder
from bilm.vocabulary.file import SPECIAL_TOKENS
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary

_WORDS_AT_ONCE = 1 << 13


class WordVectors:
    """Context-independent vectors of words, computed once each as long as they fit.

    Args:
        encoder: encodes the words.
        vocabulary: of a word-level model; may be None for a character-level one.
        max_words: words remembered; when there are more, all are forgotten.
    """

    def __init__(self, encoder: Encoder, vocabulary: Vocabulary | None, max_words: int) -> None:
        if vocabulary is None:
            width = inference.require_characters(encoder.options)
            vocabulary = UnicodeCharsVocabulary.from_words(SPECIAL_TOKENS, width)
        self._encoder = encoder
        self._vocabulary = vocabulary
        self._encode_words = inference.compiled_words(encoder)
        self._max_words = max_words
        self._places: dict[str, int] = {}
        self._table = np.empty((0, encoder.options.lstm.projection_dim), np.float32)

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
        ids = vocabulary.lookup(words)
        outside = np.flatnonzero(ids < 0)
        if not isinstance(vocabulary, UnicodeCharsVocabulary) or self._encoder.char_cnn is None:
            if outside.size:
                ids[outside] = vocabulary.unk_for(words[outside[0]])
            return keras.ops.convert_to_numpy(
                self._encoder.encode_words((), keras.ops.convert_to_tensor(ids))
            )
        ids[outside] = vocabulary.size + outside
        rows = vocabulary.character_rows(ids, words)
        return keras.ops.convert_to_numpy(self._encode_words(np.asarray(rows, np.int32)))
