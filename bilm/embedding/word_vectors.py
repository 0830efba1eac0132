"""A cache of word vectors, and the vocabulary of a model that reads words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bilm.backend.keras_backend import keras
from bilm.errors import OptionsError, VocabularyError
from bilm.io import PathLike
from bilm.models import sentence_encoder as inference
from bilm.models.encoder import Encoder
from bilm.options import Options
from bilm.vocabulary.file import SPECIAL_TOKENS
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary, load_vocabulary

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


def read_vocabulary(options: Options, vocab_file: PathLike | Vocabulary | None) -> Vocabulary | None:
    """The vocabulary of a word-level model; None for one over characters.

    Raises:
        OptionsError: it is missing, or given and not needed.
        VocabularyError: it cannot be read, or is not the model's.
    """
    if options.char_cnn is not None:
        if vocab_file is not None:
            raise OptionsError("vocab_file: the model reads characters and needs no vocabulary")
        return None
    if vocab_file is None:
        raise OptionsError("vocab_file: missing; the model reads words, and its vocabulary has their ids")
    vocabulary = vocab_file if isinstance(vocab_file, Vocabulary) else load_vocabulary(vocab_file)
    if vocabulary.size != options.n_tokens_vocab:
        name = "the vocabulary" if isinstance(vocab_file, Vocabulary) else f"{vocab_file}:"
        raise VocabularyError(
            f"{name} has {vocabulary.size} words, the model {options.n_tokens_vocab}; "
            "give the vocabulary that the model was trained with"
        )
    return vocabulary
