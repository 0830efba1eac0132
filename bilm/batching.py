"""Tokenised sentences to padded arrays of ids for inference; 0 is padding."""

from collections.abc import Sequence

import numpy as np

from bilm.arguments import PathLike
from bilm.errors import DataError, VocabularyError
from bilm.shown import quoted
from bilm.vocab import UnicodeCharsVocabulary, Vocabulary
from bilm.vocab_file import BOS, EOS, SPECIAL_TOKENS


class Batcher:
    """Sentences to character ids, as bilm-tf's class of this name and AllenNLP's ``batch_to_ids``.

    Args:
        lm_vocab_file: The vocabulary, its file, or None: the characters of a word do not depend on
            the vocabulary, so that it need not be known.
        max_token_length: Characters of a word, the two word marks included.

    Raises:
        VocabularyError: The file cannot be read, has no ``<S>`` or ``</S>``, or the vocabulary was
            loaded with another length.

    Example:
        >>> batcher = Batcher(None, 50)
        >>> ids = batcher.batch_sentences([["The", "river", "sang"], ["Hello"]])
        >>> ids.shape
        (2, 5, 50)
        >>> (ids[1] > 0).any(axis=1).tolist()  # one word between its marks, then padding
        [True, True, True, False, False]
    """

    def __init__(
        self, lm_vocab_file: PathLike | UnicodeCharsVocabulary | None, max_token_length: int
    ) -> None:
        if lm_vocab_file is None:
            lm_vocab_file = UnicodeCharsVocabulary.from_words(SPECIAL_TOKENS, max_token_length)
        elif not isinstance(lm_vocab_file, UnicodeCharsVocabulary):
            lm_vocab_file = UnicodeCharsVocabulary(lm_vocab_file, max_token_length)
        width = lm_vocab_file.max_word_length
        if width != max_token_length:
            raise VocabularyError(f"the vocabulary has {width} characters a word, not {max_token_length}")
        self._vocab = lm_vocab_file
        _require_marks(lm_vocab_file)

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return character ids of sentences between ``<S>`` and ``</S>``.

        Args:
            sentences: Words of each sentence; a sentence may be empty.

        Returns:
            int64 (n sentences, longest + 2, max_token_length): character ids + 1, 0 for padding.

        Raises:
            DataError: There is no sentence, or one is a string instead of words.
        """
        tokens, is_token = _lay_out(sentences)
        numbers = {word: number for number, word in enumerate(dict.fromkeys(tokens))}
        words = list(numbers)
        ids = self._vocab.lookup(words)
        outside = np.flatnonzero(ids < 0)
        ids[outside] = self._vocab.size + outside
        rows = self._vocab.character_rows(ids, words) + 1  # (word types, characters)
        batch = np.zeros((*is_token.shape, self._vocab.max_word_length), np.int64)
        batch[is_token] = rows[[numbers[word] for word in tokens]]
        return batch


class TokenBatcher:
    """Sentences to word ids, as bilm-tf's class of this name.

    Args:
        lm_vocab_file: The vocabulary or its file.

    Raises:
        VocabularyError: The file cannot be read or lacks a special token.

    Example:
        >>> vocabulary = Vocabulary.from_words(["<S>", "</S>", "<UNK>", "the", "river"])
        >>> TokenBatcher(vocabulary).batch_sentences([["the", "river", "sang"], ["river"]])
        array([[1, 4, 5, 3, 2],
               [1, 5, 2, 0, 0]])
    """

    def __init__(self, lm_vocab_file: PathLike | Vocabulary) -> None:
        self._vocab = lm_vocab_file if isinstance(lm_vocab_file, Vocabulary) else Vocabulary(lm_vocab_file)
        _require_marks(self._vocab)
        if self._vocab.unk < 0:
            raise VocabularyError("the vocabulary has no <UNK>, so that unknown words have no id")

    def batch_sentences(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Return word ids of sentences between ``<S>`` and ``</S>``.

        Args:
            sentences: Words of each sentence; a sentence may be empty.

        Returns:
            int64 (n sentences, longest + 2): word ids + 1, 0 for padding.

        Raises:
            DataError: There is no sentence, or one is a string instead of words.
        """
        tokens, is_token = _lay_out(sentences)
        ids = self._vocab.lookup(tokens)
        ids[ids < 0] = self._vocab.unk
        batch = np.zeros(is_token.shape, np.int64)
        batch[is_token] = ids + 1
        return batch


def batch_to_ids(sentences: Sequence[Sequence[str]]) -> np.ndarray:
    """Return character ids without the sentence marks, as AllenNLP's function of this name.

    Args:
        sentences: Words of each sentence; a sentence may be empty.

    Returns:
        int64 (n sentences, longest, 50): character ids + 1, 0 for padding.

    Raises:
        DataError: There is no sentence, or one is a string instead of words.

    Example:
        >>> batch_to_ids([["The", "river", "sang"], ["Hello"]]).shape
        (2, 3, 50)
    """
    marked = Batcher(None, 50).batch_sentences(sentences)
    batch = np.ascontiguousarray(marked[:, 1:-1])
    for row, words in zip(batch, sentences, strict=True):
        row[len(words) :] = 0  # where </S> was
    return batch


def _require_marks(vocab: Vocabulary) -> None:
    if min(vocab.bos, vocab.eos) < 0:
        raise VocabularyError(f"the vocabulary lacks {BOS} or {EOS}, which stand around every sentence")


def _lay_out(sentences: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray]:
    """Return all tokens, marks included, and where they are, bool (n sentences, longest + 2)."""
    if not len(sentences):
        raise DataError("there is no sentence to make a batch of")
    tokens: list[str] = []
    for number, words in enumerate(sentences):
        if isinstance(words, str):
            raise DataError(f"sentence {number} is a string, not a list of words: {quoted(words)}")
        tokens += (BOS, *words, EOS)
    lengths = np.array([len(words) + 2 for words in sentences])
    return tokens, np.arange(lengths.max()) < lengths[:, None]
