"""A batch: the word ids of a window, and the characters of each of its distinct words once."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bilm.data.windows import Window
from bilm.errors import OptionsError
from bilm.options.hyper_parameters import length_buckets
from bilm.vocabulary.file import BOS, EOS
from bilm.vocabulary.vocabulary import (
    BEGIN_SENTENCE,
    END_SENTENCE,
    END_WORD,
    UnicodeCharsVocabulary,
    Vocabulary,
)

_MARKS = {BEGIN_SENTENCE: BOS, END_SENTENCE: EOS}


class Batch(NamedTuple):
    """The input of a step of the model, time-major: arrays, or tensors of the same shapes.

    Attributes:
        type_characters: One int32 (n types, width) for each of `length_buckets`, perhaps without
            rows: character ids of the distinct words, of both directions together. Empty tuple for a
            vocabulary over words.
        token_types: int32 (directions, steps, rows): the token's row in the concatenation of
            `type_characters`; for a word-level vocabulary its id.
        targets: int32 (directions, steps, rows): id of the word to predict.
        weights: float32 (steps, rows): 1 where there is a target to score, 0 elsewhere (there
            `token_types` and `targets` are 0); the same for both directions.
    """

    type_characters: tuple[np.ndarray, ...]
    token_types: np.ndarray
    targets: np.ndarray
    weights: np.ndarray


@cache
def _bucket_of_length(max_characters: int, max_filter_width: int) -> np.ndarray:
    """Return the number of the bucket of a word of each length, uint8 (max_characters + 1,)."""
    widths = length_buckets(max_characters, max_filter_width)
    needed = np.minimum(max_characters, np.arange(max_characters + 1) + max_filter_width)
    return np.searchsorted(widths, needed).astype(np.uint8)


def compact(
    window: Window, vocab: Vocabulary, max_filter_width: int | None = None, rows: slice | None = None
) -> Batch:
    """Turn a window, or some of its rows, into a batch.

    Args:
        window: Of `pack_windows`.
        vocab: The one that encoded the window.
        max_filter_width: Of the character CNN; needed for a character-level vocabulary only.
        rows: All by default.

    Raises:
        OptionsError: `max_filter_width` is missing.
    """
    rows = slice(None) if rows is None else rows
    weights = np.ascontiguousarray(window.weights[rows].T)  # (steps, rows)
    targets = np.ascontiguousarray(window.targets[:, rows].transpose(0, 2, 1))
    words = np.ascontiguousarray(window.inputs[:, rows].transpose(0, 2, 1))
    if not isinstance(vocab, UnicodeCharsVocabulary):
        return Batch((), words, targets, weights)
    if max_filter_width is None:
        raise OptionsError("max_filter_width is needed for a character-level vocabulary")
    characters, token_types = _share_types(words, window.oov, vocab, max_filter_width)
    if not weights.all():
        token_types[:, weights == 0] = 0
    return Batch(characters, token_types, targets, weights)


def _share_types(
    words: np.ndarray, oov: tuple[str, ...], vocab: UnicodeCharsVocabulary, max_filter_width: int
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Return `Batch.type_characters` and `Batch.token_types` of words."""
    flat = words.reshape(-1)
    numbers = np.arange(flat.size, dtype=np.int32)
    of_word = np.empty(vocab.size + len(oov), np.int32)  # written and read at the words of the window only
    of_word[flat] = numbers
    types = flat[of_word[flat] == numbers]  # each word once, without sorting them
    extra = oov and vocab.pack(oov)
    most = vocab.max_word_length
    buckets = _bucket_of_length(most, max_filter_width)[vocab.character_lengths(types, extra)]
    types = types[np.argsort(buckets, kind="stable")]
    of_word[types] = numbers[: len(types)]
    widths = length_buckets(most, max_filter_width)
    ends = np.cumsum(np.bincount(buckets, minlength=len(widths))).tolist()
    characters = tuple(
        vocab.character_rows(types[start:end], extra, width)
        for (start, end), width in zip(pairwise([0, *ends]), widths, strict=True)
    )
    return characters, of_word[flat].reshape(words.shape)


def batch_lines(batch: Batch, vocab: Vocabulary) -> list[str]:
    """The words that each row of a batch reads in the forward direction, one line per row.

    For a character-level model, words are cut to the characters that it reads.
    """
    words = [_word(row) for rows in batch.type_characters for row in rows] or vocab.words
    return [" ".join(words[k] for k in row) for row in batch.token_types[0].T]


def _word(row: np.ndarray) -> str:
    """The text between the word marks of a row of character ids."""
    ids = row.tolist()
    ids = ids[1 : ids.index(END_WORD)]
    if len(ids) == 1 and ids[0] in _MARKS:
        return _MARKS[ids[0]]
    return bytes(ids).decode("utf-8", errors="replace")
