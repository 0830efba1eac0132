"""Arrays into a model: by name and strictly, or with the rows of its words in another vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bilm.backend.keras_backend import keras
from bilm.vocabulary.file import BOS, EOS, SPECIAL_TOKENS, UNK
from bilm.weights.hdf5_file import Arrays, check_shapes


def named_weights(model: keras.Model) -> dict[str, keras.Variable]:
    """The variables of a model by our own names: their paths without the model's name."""
    return {variable.path.split("/", 1)[1]: variable for variable in model.weights}


def set_weights(
    variables: Mapping[str, keras.Variable], arrays: Mapping[str, np.ndarray], source: str
) -> None:
    """Assign each array to the variable of its name.

    Raises:
        WeightsError: names every missing, unexpected or misshapen array; nothing is assigned then.
    """
    check_shapes(
        {name: array.shape for name, array in arrays.items()},
        {name: tuple(variable.shape) for name, variable in variables.items()},
        source,
    )
    for name, variable in variables.items():
        variable.assign(arrays[name])


WORD_ARRAYS = ("encoder/embedding", "softmax/W", "softmax/b")
"""The arrays with one row for each word, by our own names."""
_FIRST_OCTAVES = 16


@dataclass(frozen=True, eq=False)
class Remapping:
    """Where the rows of a new vocabulary come from.

    Attributes:
        old_ids: int64 (new words,), -1 for a word that the old vocabulary lacks.
        ranks: int64 (new words,), rank among the new words by descending count, from 0; that of ``<UNK>``
            as if it were one of them.
        mark_ids: new ids of the sentence marks.
        unk: new id of ``<UNK>``; None without one.
        n_special: special tokens of the old vocabulary.
        n_old: words of the old vocabulary.
    """

    old_ids: np.ndarray
    ranks: np.ndarray
    mark_ids: list[int]
    unk: int | None
    n_special: int
    n_old: int

    @classmethod
    def of(cls, old_words: Sequence[str], new_words: Sequence[str], word_counts: np.ndarray) -> Remapping:
        """Compare two vocabularies.

        Args:
            old_words: in id order: the special tokens, then by descending frequency.
            new_words: in id order, the special tokens among them.
            word_counts: of the new text, (new words,).
        """
        ids = {word: i for i, word in enumerate(old_words)}
        old_ids = np.fromiter((ids.get(word, -1) for word in new_words), np.int64, len(new_words))
        mark_ids = [new_words.index(token) for token in (BOS, EOS)]
        unk = new_words.index(UNK) if UNK in new_words else None
        counts = np.array(word_counts)
        unknown = 0 if unk is None else counts[unk]
        counts[mark_ids if unk is None else [*mark_ids, unk]] = -1  # behind all words
        ranks = np.empty(len(counts), np.int64)
        ranks[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
        if unk is not None:
            ranks[unk] = (counts > unknown).sum()
        n_special = sum(token in ids for token in SPECIAL_TOKENS)
        return cls(old_ids, ranks, mark_ids, unk, n_special, len(old_words))

    @property
    def n_kept(self) -> int:
        """Words of both vocabularies, the special tokens included."""
        return len(self.old_ids) - self.n_new

    @property
    def n_new(self) -> int:
        """Words of the new vocabulary only."""
        return int((self.old_ids < 0).sum())

    @property
    def n_dropped(self) -> int:
        """Words of the old vocabulary only."""
        return self.n_old - self.n_kept

    def weights(self, arrays: Mapping[str, np.ndarray]) -> Arrays:
        """Arrays by our own names, with word rows in the order of the new vocabulary."""
        ways = dict.fromkeys(WORD_ARRAYS, self._rows) | {"softmax/b": self._biases}
        return {name: ways[name](array) if name in ways else array for name, array in arrays.items()}

    def accumulators(self, arrays: Mapping[str, np.ndarray], initial: float = 1.0) -> Arrays:
        """The same for Adagrad's accumulators, which are `initial` for new words."""
        return {
            name: self.rows(array, initial) if name in WORD_ARRAYS else array
            for name, array in arrays.items()
        }

    def rows(self, old: np.ndarray, initial: float) -> np.ndarray:
        """An array with a row a word in the new vocabulary's order; `initial` in the rows of new words."""
        new = old[self.old_ids]
        new[self.old_ids < 0] = initial
        return new

    def _rows(self, old: np.ndarray) -> np.ndarray:
        new = old[self.old_ids]  # the last row, for now, where the word is new
        new_ranks = np.where(self.old_ids < 0, self.ranks, -1)
        by_rank = old[self.n_special :]
        for start, end in _octaves(len(by_rank)):
            inside = (new_ranks >= start) & ((new_ranks < end) | (end == len(by_rank)))
            new[inside] = by_rank[start:end].mean(axis=0, dtype=np.float64)
        return new

    def _biases(self, old: np.ndarray) -> np.ndarray:
        """Kept biases moved along the line from their old rank to the new one, others on the line."""
        slope, level = _line(old[self.n_special :])
        new = level + slope * np.log1p(self.ranks)
        is_kept = self.old_ids >= 0
        if self.unk is not None:
            is_kept[self.unk] = False  # it stands for the words outside another vocabulary
        old_ids = self.old_ids[is_kept]
        new[is_kept] += old[old_ids] - level - slope * np.log1p(np.maximum(old_ids - self.n_special, 0))
        new[self.mark_ids] = old[self.old_ids[self.mark_ids]]  # once per sentence in any text
        return new.astype(np.float32)


def _octaves(n_words: int) -> Iterator[tuple[int, int]]:
    """Ranges of ranks: the first 16, then each from a rank to its double, the last with all that are left."""
    start, end = 0, _FIRST_OCTAVES
    while 2 * end <= n_words:
        yield start, end
        start, end = end, 2 * end
    yield start, n_words


def _line(biases: np.ndarray) -> tuple[float, float]:
    """Slope and level of biases, (words,) by rank, over log(1 + rank), all octaves weighted equally."""
    x = np.log1p(np.arange(len(biases)))
    weights = np.exp(-x) / np.exp(-x).sum()
    mean_x, mean = weights @ x, float(weights @ biases)
    slope = float(weights @ ((x - mean_x) * (biases - mean))) / max(weights @ (x - mean_x) ** 2, 1e-9)
    return slope, mean - slope * mean_x
