"""Conversion of tokenised sentences to padded arrays of ids for inference; 0 is padding."""

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import partial
from itertools import count

import numpy as np

from bilm.data.packing import number_types
from bilm.errors import DataError, VocabularyError, checked, require_words
from bilm.io import PathLike
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary
from bilm.vocabulary.vocabulary_file import BOS, EOS, SPECIAL_TOKENS


class Batcher:
    """Converts sentences to character ids, as bilm-tf's class of this name.

    Args:
        lm_vocab_file: any vocabulary or its file; may be None, since character ids do not depend on it. The
            normal form of a `Vocabulary` is that of the words.
        max_token_length: characters of a word, including the two word marks.

    Raises:
        VocabularyError: the file cannot be read, or the vocabulary has another `max_word_length`.

    Example:
        >>> batcher = Batcher(None, 50)
        >>> ids = batcher.batch_sentences([["The", "river", "sang"], ["Hello"]])
        >>> ids.shape
        (2, 5, 50)
        >>> (ids[1] > 0).any(axis=1).tolist()  # one word between its marks, then padding
        [True, True, True, False, False]
    """

    @checked
    def __init__(self, lm_vocab_file: PathLike | Vocabulary | None, max_token_length: int) -> None:
        if lm_vocab_file is not None and not isinstance(lm_vocab_file, Vocabulary):
            Vocabulary(lm_vocab_file)
        width = getattr(lm_vocab_file, "max_word_length", max_token_length)
        if width != max_token_length:
            raise VocabularyError(f"the vocabulary has {width} characters per word, not {max_token_length}")
        self._vocab = UnicodeCharsVocabulary.from_words(SPECIAL_TOKENS, max_token_length)
        self._vocab.unicode_form = getattr(lm_vocab_file, "unicode_form", None)

    def batch_sentences(self, sentences: Iterable[Iterable[str]]) -> np.ndarray:
        """Return the character ids of sentences with ``<S>`` and ``</S>``.

        Args:
            sentences: words of each sentence; a sentence may be empty.

        Returns:
            int64 (n sentences, longest + 2, max_token_length): character ids + 1, 0 for padding.

        Raises:
            DataError: there are no sentences, or one is not a list of words.
        """
        tokens, is_token = _lay_out(sentences)
        types, numbers = number_types(tokens)
        rows = self._vocab.rows_of(types) + 1  # (word types, characters)
        batch = np.zeros((*is_token.shape, self._vocab.max_word_length), np.int64)
        batch[is_token] = rows[numbers]
        return batch


class TokenBatcher:
    """Converts sentences to word ids, as bilm-tf's class of this name.

    Args:
        lm_vocab_file: the vocabulary or its file.

    Raises:
        VocabularyError: the file cannot be read or lacks ``<S>`` or ``</S>``.

    Example:
        >>> vocabulary = Vocabulary.from_words(["<S>", "</S>", "<UNK>", "the", "river"])
        >>> TokenBatcher(vocabulary).batch_sentences([["the", "river", "sang"], ["river"]])
        array([[1, 4, 5, 3, 2],
               [1, 5, 2, 0, 0]])
    """

    @checked
    def __init__(self, lm_vocab_file: PathLike | Vocabulary) -> None:
        self._vocab = lm_vocab_file if isinstance(lm_vocab_file, Vocabulary) else Vocabulary(lm_vocab_file)
        self._vocab.require_marks()

    def batch_sentences(self, sentences: Iterable[Iterable[str]]) -> np.ndarray:
        """Return the word ids of sentences with ``<S>`` and ``</S>``.

        Args:
            sentences: words of each sentence; a sentence may be empty.

        Returns:
            int64 (n sentences, longest + 2): word ids + 1, 0 for padding.

        Raises:
            DataError: there are no sentences, or one is not a list of words.
            VocabularyError: a word is unknown and the vocabulary has no ``<UNK>``.
        """
        tokens, is_token = _lay_out(sentences)
        batch = np.zeros(is_token.shape, np.int64)
        batch[is_token] = self._vocab.word_ids(tokens) + 1
        return batch


@checked
def batch_to_ids(
    sentences: Iterable[Iterable[str]], max_characters: int = 50, unicode_form: str | None = None
) -> np.ndarray:
    """Return the character ids of sentences without sentence marks, as AllenNLP's function of this name.

    Args:
        sentences: words of each sentence; a sentence may be empty.
        max_characters: characters of a word, including the two word marks: the model's
            ``max_characters_per_token``, 50 in all published models.
        unicode_form: normal form of the words, the model's ``unicode_form``; None in all published models.

    Returns:
        int64 (n sentences, longest, max_characters): character ids + 1, 0 for padding.

    Raises:
        DataError: there are no sentences, or one is not a list of words.

    Example:
        >>> batch_to_ids([["The", "river", "sang"], ["Hello"]]).shape
        (2, 3, 50)
    """
    batch = list(words_of_each(sentences))
    vocabulary = UnicodeCharsVocabulary.from_words(SPECIAL_TOKENS, max_characters)
    vocabulary.unicode_form = unicode_form
    marked = Batcher(vocabulary, max_characters).batch_sentences(batch)
    ids = np.ascontiguousarray(marked[:, 1:-1])
    for row, words in zip(ids, batch, strict=True):
        row[len(words) :] = 0  # removes </S>
    return ids


def words_of_each(sentences: Iterable[Iterable[str]]) -> Iterator[list[str]]:
    """Return the words of sentences as lists, each read when it is asked for.

    Raises:
        DataError: the argument is a string, or not iterable; or, as it is reached, a sentence is not words,
            or has no order.
    """
    subjects = map("sentence {}".format, count())
    return map(partial(require_words, in_order=True), subjects, require_sentences(sentences))


def require_sentences(sentences: Iterable[Iterable[str]]) -> Iterable[Iterable[str]]:
    """Return the sentences unchanged if they are an iterable with an order, and no string.

    Raises:
        DataError: the argument is a string, has no order, or is not iterable.
    """
    if isinstance(sentences, str | bytes | Mapping | Set) or not isinstance(sentences, Iterable):
        kind = type(sentences).__name__
        raise DataError(f"sentences must be lists of words, in a list, got {kind}: {sentences!r:.80}")
    return sentences


def _lay_out(sentences: Iterable[Iterable[str]]) -> tuple[list[str], np.ndarray]:
    """Return all tokens, with marks, and a mask of their places, bool (n sentences, longest + 2)."""
    batch = list(words_of_each(sentences))
    if not batch:
        raise DataError("there are no sentences to batch")
    tokens = [token for words in batch for token in (BOS, *words, EOS)]
    lengths = np.array([len(words) + 2 for words in batch])
    return tokens, np.arange(lengths.max()) < lengths[:, None]
