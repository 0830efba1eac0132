"""Transfer of arrays into a model: strictly by name, or with word rows remapped to a new vocabulary."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bilm.backend.keras_backend import keras
from bilm.vocabulary.vocabulary_file import BOS, EOS, SPECIAL_TOKENS, UNK
from bilm.weights.arrays import Arrays, check_shapes


def set_weights(variables: Mapping[str, keras.Variable], arrays: Arrays, source: str) -> None:
    """Assign each array to the variable of its name.

    Raises:
        WeightsError: arrays are missing, misshapen or unexpected; the message names them, and nothing is
            assigned.
    """
    expected = {name: tuple(variable.shape) for name, variable in variables.items()}
    check_shapes({name: array.shape for name, array in arrays.items()}, expected, source)
    for name, variable in variables.items():
        variable.assign(arrays[name])


WORD_ARRAYS = ("encoder/embedding", "softmax/W", "softmax/b")
"""Arrays with one row per word, by bilm's names."""
CHARACTER_ARRAY = "encoder/char_cnn/char_embed"
"""Name of the vectors of characters."""


class Remapping:
    """Remapping of word rows from an old vocabulary to a new one.

    Args:
        old_words: words in id order: the special tokens, then by descending frequency.
        new_words: words in id order, special tokens included.
        word_counts: integers (new words,), counts in the new text.

    Attributes:
        old_ids: int64 (new words,), id in the old vocabulary, -1 for a new word.
        ranks: int64 (new words,), rank among the new words by descending count, from 0; ``<UNK>`` has the
            rank of a word with its count.
        mark_ids: new ids of the sentence marks.
        unk: new id of ``<UNK>``; None without one.
        n_special: number of special tokens in the old vocabulary, less one if it has no other words.
        n_kept: number of words in both vocabularies, special tokens included.
        n_new: number of words in the new vocabulary only.
        n_dropped: number of words in the old vocabulary only.
    """

    def __init__(self, old_words: Sequence[str], new_words: Sequence[str], word_counts: np.ndarray) -> None:
        ids, new_ids = ({word: k for k, word in enumerate(words)} for words in (old_words, new_words))
        self.old_ids = np.fromiter((ids.get(word, -1) for word in new_words), np.int64, len(new_words))
        self.mark_ids = [new_ids[token] for token in (BOS, EOS)]
        self.unk = new_ids.get(UNK)
        counts = np.array(word_counts)
        unknown = 0 if self.unk is None else counts[self.unk]
        counts[self.mark_ids if self.unk is None else [*self.mark_ids, self.unk]] = -1  # behind all words
        self.ranks = np.empty(len(counts), np.int64)
        self.ranks[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
        if self.unk is not None:
            self.ranks[self.unk] = (counts > unknown).sum()
        # Without ordinary words in the old vocabulary, new ones start at the row of the last special token.
        self.n_special = min(sum(token in ids for token in SPECIAL_TOKENS), len(old_words) - 1)
        self.n_new = int((self.old_ids < 0).sum())
        self.n_kept = len(new_words) - self.n_new
        self.n_dropped = len(old_words) - len({*self.old_ids.tolist()} - {-1})

    def weights(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Return the arrays, by bilm's names, with word rows in the order of the new vocabulary."""
        ways = dict.fromkeys(WORD_ARRAYS, self._rows) | {"softmax/b": self._biases}
        return {name: ways[name](array) if name in ways else array for name, array in arrays.items()}

    def rows(self, old: np.ndarray, initial: float) -> np.ndarray:
        """Reorder an array of word rows to the new vocabulary, with `initial` in the rows of new words."""
        new = old[self.old_ids]
        new[self.old_ids < 0] = initial
        return new

    def _rows(self, old: np.ndarray) -> np.ndarray:
        new = old[self.old_ids]  # new words get the last row, replaced below
        new_ranks = np.where(self.old_ids < 0, self.ranks, -1)
        by_rank = old[self.n_special :]
        for start, end in _octaves(len(by_rank)):
            inside = (new_ranks >= start) & ((new_ranks < end) | (end == len(by_rank)))
            new[inside] = by_rank[start:end].mean(axis=0, dtype=np.float64)
        return new

    def _biases(self, old: np.ndarray) -> np.ndarray:
        """Move kept biases along the line from their old rank to the new one; put the others on the line."""
        slope, level = _line(old[self.n_special :])
        new = level + slope * np.log1p(self.ranks)
        is_kept = self.old_ids >= 0
        if self.unk is not None:
            is_kept[self.unk] = False  # it stands for the words outside a different vocabulary
        old_ids = self.old_ids[is_kept]
        new[is_kept] += old[old_ids] - level - slope * np.log1p(np.maximum(old_ids - self.n_special, 0))
        new[self.mark_ids] = old[self.old_ids[self.mark_ids]]  # in any text once per sentence
        return new.astype(np.float32)


def _octaves(n_words: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of ranks: the first 16, then each from a rank to its double; the last has all others."""
    start, end = 0, 16
    while 2 * end <= n_words:
        yield start, end
        start, end = end, 2 * end
    yield start, n_words


def _line(biases: np.ndarray) -> tuple[float, float]:
    """Fit biases, (words,) by rank, to a line over log(1 + rank), weighting all octaves equally.

    Returns:
        The slope and the level.
    """
    x = np.log1p(np.arange(len(biases)))
    weights = np.exp(-x) / np.exp(-x).sum()
    mean_x, mean = weights @ x, float(weights @ biases)
    slope = float(weights @ ((x - mean_x) * (biases - mean))) / max(weights @ (x - mean_x) ** 2, 1e-9)
    return slope, mean - slope * mean_x
