from collections import Counter
from contextlib import ExitStack

import numpy as np
import pytest

from bilm.data.corpus import read_text
from bilm.training import cooccurrence
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary
from tests.corpora import write

WORDS = ["</S>", "<S>", "<UNK>", *"the a dog cat barks sleeps now unused".split()]
LINES = ["the dog barks now", "the cat sleeps", "a dog sleeps now", "a cat barks", "strange dog", "now"] * 3


@pytest.fixture(params=[Vocabulary, UnicodeCharsVocabulary])
def text(request, tmp_path):
    files = [str(write(tmp_path / "text.txt", "\n\n".join(LINES)))]
    with ExitStack() as resources:
        yield read_text(files, "train_prefix", request.param.from_words(WORDS), resources)


def expected_similarities(n_contexts, dim):
    """Cosines of the words by exact singular vectors of their information."""
    counts = Counter()
    for line in LINES:
        words = ["<S>", *line.replace("strange", "<UNK>").split(), "</S>"]
        for i, word in enumerate(words):
            for place in (-3, -2, -1, 1, 2, 3):
                if 0 <= i + place < len(words):
                    counts[WORDS.index(word), place, words[i + place]] += 1
    occurrences = Counter(word for line in LINES for word in line.replace("strange", "<UNK>").split())
    occurrences.update(["<S>", "</S>"] * len(LINES))
    order = sorted(WORDS, key=lambda word: -occurrences[word])  # ties by id
    pairs = {key: n for key, n in counts.items() if key[2] in order[:n_contexts]}
    of_words, of_contexts = Counter(), Counter()
    for (word, *context), n in pairs.items():
        of_words[word] += n
        of_contexts[tuple(context)] += n
    total = sum(n**0.75 for n in of_contexts.values())
    columns = {context: k for k, context in enumerate(of_contexts)}
    matrix = np.zeros((len(WORDS), len(columns)))
    for (word, *context), n in pairs.items():
        expected = (of_words[word] + 1) * of_contexts[tuple(context)] ** 0.75 / total
        matrix[word, columns[tuple(context)]] = max(np.log(n / expected), 0)
    vectors, values, _ = np.linalg.svd(matrix)
    vectors = vectors[:, :dim] * values[:dim] ** 0.5
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return vectors @ vectors.T


@pytest.mark.parametrize(("n_contexts", "dim"), [(4, 3), (11, 5), (20_000, 8)])
def test_vectors_are_singular_vectors_of_information(text, n_contexts, dim, monkeypatch):
    monkeypatch.setattr(cooccurrence, "_MOST_CONTEXTS", n_contexts)
    monkeypatch.setattr(cooccurrence, "_PAIRS_AT_ONCE", 1)
    vectors = cooccurrence.word_vectors(text, dim, seed=3)
    assert vectors.shape == (len(WORDS), dim) and vectors.dtype == np.float32
    np.testing.assert_allclose(vectors @ vectors.T, expected_similarities(n_contexts, dim), atol=1e-4)
    assert not vectors[WORDS.index("unused")].any()


def test_vectors_repeat_and_pad(text):
    wide = cooccurrence.word_vectors(text, 50, seed=3)
    assert np.array_equal(wide, cooccurrence.word_vectors(text, 50, seed=3))
    assert wide.shape == (len(WORDS), 50) and not wide[:, len(WORDS) :].any()


def test_rarest_pairs_are_forgotten_beyond_the_limit(monkeypatch):
    monkeypatch.setattr(cooccurrence, "_MOST_PAIRS", 2)
    pairs, counts = cooccurrence._add(np.array([1, 4]), np.array([1, 2]), np.array([7, 4, 7, 9]))
    assert (pairs.tolist(), counts.tolist()) == ([4, 7], [3, 2])


def test_long_texts_are_sampled(text, monkeypatch):
    asked = []
    monkeypatch.setattr(type(text), "sentences", lambda self, *, every: asked.append(every) or iter(()))
    for n_more in (-1, 0):
        monkeypatch.setattr(cooccurrence, "_MOST_TOKENS", text.counts.n_tokens + n_more)
        assert not cooccurrence.word_vectors(text, 4, seed=3).any()
    assert asked == [2, 1]
