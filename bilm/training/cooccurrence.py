"""Vectors of words from their co-occurrences, from which the rows of a new softmax start.

A row of the softmax says after which words its word is likely. With random rows, training first has to learn
which words are alike; with these it starts from what their counts say.

Source: positive pointwise mutual information with a column for each word at each place is from Bullinaria and
Levy 2007, its truncated SVD from their paper of 2012, smoothed contexts and the square root of the singular
values from Levy, Goldberg and Dagan 2015, and the randomised SVD from Halko, Martinsson and Tropp 2011.
"""

import math
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from bilm.data.corpus import Text
from bilm.data.stream import Sentences
from bilm.vocabulary.vocabulary import Vocabulary

_WINDOW = 3  # words to the left, and to the right
_MOST_CONTEXTS = 20_000  # the most frequent words
_MOST_TOKENS = 1 << 24  # of a longer text, every n-th sentence is counted
_MOST_PAIRS = 1 << 24  # beyond, the rarest pairs are forgotten; 256 MB
_PAIRS_AT_ONCE = 1 << 22
_SMOOTHING = 0.75  # exponent of the context counts
_OVERSAMPLING = 10  # dimensions
_POWER_ITERATIONS = 3
_ROWS_AT_ONCE = 1 << 14
_LEAST_SQUARE = 1e-9  # of the largest


def word_vectors(text: Text, dim: int, seed: int) -> np.ndarray:
    """Compute the vectors of all words of the vocabulary by their neighbours in a text, which is read once.

    Args:
        text: the text, counted.
        dim: width of the vectors.
        seed: determines the result, with the text.

    Returns:
        float32 (words, dim); each vector has length 1, or 0 for a word without neighbours.

    Raises:
        DataError: the text cannot be read, or has changed since it was counted.
    """
    vocabulary, word_counts = text.vocabulary, text.counts.word_counts
    frequent = np.argsort(-word_counts, kind="stable")[:_MOST_CONTEXTS]
    context_of = np.full(vocabulary.size, -1, np.int64)
    context_of[frequent] = np.arange(len(frequent))
    every = math.ceil(text.counts.n_tokens / _MOST_TOKENS)
    n_columns = 2 * _WINDOW * len(frequent)
    # Pairs as `_pairs_of` numbers them, in ascending order, and their counts.
    pairs, counts, new = np.zeros((3, 0), np.int64)
    for block in text.sentences(every=every):
        found = _pairs_of(block.packed(vocabulary), vocabulary, context_of, len(frequent))
        new = np.concatenate([new, *found])
        if len(new) >= _PAIRS_AT_ONCE:
            pairs, counts = _add(pairs, counts, new)
            new = new[:0]
    pairs, counts = _add(pairs, counts, new)
    rows, columns = np.divmod(pairs, n_columns)
    information = _pointwise_mutual_information(rows, columns, counts)
    is_positive = information > 0
    places = np.stack([rows, columns], axis=1)[is_positive]
    with tf.device("CPU:0"):  # GPUs sum in no fixed order
        matrix = tf.SparseTensor(places, information[is_positive], (vocabulary.size, n_columns))
        vectors = _left_singular_vectors(matrix, dim, seed)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors /= np.where(lengths > 1e-6, lengths, np.inf)
    return vectors


def _pairs_of(
    block: Sentences, vocabulary: Vocabulary, context_of: np.ndarray, n_contexts: int
) -> Iterable[np.ndarray]:
    """Yield the pairs of a word and a word near it in its sentence, sentence marks included, for each place.

    A place is a distance to the left or right.

    Args:
        block: consecutive sentences.
        vocabulary: their vocabulary.
        context_of: int64 (words,), number of a word as a context, or -1.
        n_contexts: number of contexts.

    Yields:
        ``(word * places + place) * n_contexts + context``, int64 (pairs,).
    """
    ids = np.insert(block.ids.astype(np.int64), block.starts, vocabulary.bos)
    if block.oov:
        ids[ids >= vocabulary.size] = vocabulary.unk
    sentence = np.repeat(np.arange(len(block)), block.lengths + 1)
    contexts = context_of[ids]
    for distance in range(1, _WINDOW + 1):
        is_inside = sentence[distance:] == sentence[:-distance]
        left, right = slice(None, -distance), slice(distance, None)
        for place, word, context in ((0, right, left), (1, left, right)):
            is_pair = is_inside & (contexts[context] >= 0)
            numbers = ids[word][is_pair] * (2 * _WINDOW) + 2 * (distance - 1) + place
            yield numbers * n_contexts + contexts[context][is_pair]


def _add(pairs: np.ndarray, counts: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Add pairs to counted ones; if there are too many, forget the rarest."""
    new, new_counts = np.unique(new, return_counts=True)
    pairs, counts = np.concatenate([pairs, new]), np.concatenate([counts, new_counts])
    order = np.argsort(pairs, kind="stable")
    pairs, counts = pairs[order], counts[order]
    firsts = np.flatnonzero(np.diff(pairs, prepend=-1))
    pairs, counts = pairs[firsts], np.add.reduceat(counts, firsts) if len(firsts) else counts
    least = 1
    while len(pairs) > _MOST_PAIRS:
        least += 1
        pairs, counts = pairs[counts >= least], counts[counts >= least]
    return pairs, counts


def _pointwise_mutual_information(rows: np.ndarray, columns: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Compute the information of pairs, float32 (pairs,).

    A word counts once more than it occurs, so that rare words have less of it.
    """
    of_words = np.bincount(rows, counts) + 1.0
    of_contexts = np.bincount(columns, counts) ** _SMOOTHING
    expected = of_words[rows] * of_contexts[columns] / max(of_contexts.sum(), 1.0)
    return np.log(counts / expected).astype(np.float32)


def _left_singular_vectors(matrix: tf.SparseTensor, dim: int, seed: int) -> np.ndarray:
    """Compute the first left singular vectors, each times the square root of its value.

    Returns:
        float32 (rows, `dim`); zeros beyond the matrix's rank.
    """
    multiply = tf.sparse.sparse_dense_matmul
    basis = np.random.default_rng(seed).standard_normal((matrix.shape[0], dim + _OVERSAMPLING), np.float32)
    for _ in range(_POWER_ITERATIONS):
        basis = np.asarray(multiply(matrix, multiply(matrix, basis, adjoint_a=True)))  # without a copy
        squares, vectors = _principal_axes(basis)
        basis = np.asarray(tf.matmul(basis, (vectors / np.sqrt(squares)).astype(np.float32)))
    squares, vectors = _principal_axes(multiply(matrix, basis, adjoint_a=True).numpy())
    axes = (vectors * squares**0.25).astype(np.float32)[:, :dim]
    return tf.matmul(basis, np.pad(axes, [(0, 0), (0, dim - axes.shape[1])])).numpy()


def _principal_axes(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return squares of the singular values of a tall array, descending, and its right singular vectors.

    Those of values near 0 are left out.
    """
    products = np.zeros((array.shape[1], array.shape[1]))
    for start in range(0, len(array), _ROWS_AT_ONCE):
        part = array[start : start + _ROWS_AT_ONCE].astype(np.float64)
        products += tf.matmul(part, part, transpose_a=True).numpy()
    squares, vectors = (array.numpy() for array in tf.linalg.eigh(products))
    is_kept = (squares > _LEAST_SQUARE * squares.max(initial=0.0))[::-1]
    return squares[::-1][is_kept], vectors[:, ::-1][:, is_kept]
