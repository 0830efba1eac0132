"""Converting a batch back to text."""

from __future__ import annotations

import numpy as np

from bilm.data.pipeline import Batch
from bilm.vocabulary.characters import BEGIN_SENTENCE, END_SENTENCE, END_WORD
from bilm.vocabulary.file import BOS, EOS
from bilm.vocabulary.vocabulary import Vocabulary

_MARKS = {BEGIN_SENTENCE: BOS, END_SENTENCE: EOS}


def batch_lines(batch: Batch, vocab: Vocabulary) -> list[str]:
    """The words that each row of a batch reads in the forward direction, one line a row.

    Where the model reads characters the words are made of these, as far as the model sees them.
    """
    words = [_word(row) for rows in batch.type_characters for row in rows] or vocab.words
    return [" ".join(words[k] for k in row) for row in batch.token_types[0].T]


def _word(row: np.ndarray) -> str:
    """What stands between the word marks of a row of character ids."""
    ids = row.tolist()
    ids = ids[1 : ids.index(END_WORD)]
    if len(ids) == 1 and ids[0] in _MARKS:
        return _MARKS[ids[0]]
    return bytes(ids).decode("utf-8", errors="replace")
