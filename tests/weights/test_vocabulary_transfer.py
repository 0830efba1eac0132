"""Rows that follow their words from one vocabulary to another."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bilm.vocabulary.file import SPECIAL_TOKENS
from bilm.weights.transfer import WORD_ARRAYS, Remapping

WORDS = st.lists(st.integers(0, 99).map("w{}".format), min_size=1, max_size=60, unique=True)
VOCABULARIES = st.tuples(st.sampled_from([2, 3]), WORDS).map(lambda v: [*SPECIAL_TOKENS[: v[0]], *v[1]])


def arrays_of(words, dim=3):
    rng = np.random.default_rng(len(words))
    shapes = {"encoder/embedding": (dim,), "softmax/W": (dim,), "softmax/b": ()}
    return {name: rng.normal(size=(len(words), *shape)).astype(np.float32) for name, shape in shapes.items()}


def remapping(old, new, counts=None):
    return Remapping.of(old, new, np.ones(len(new), np.int64) if counts is None else counts)


@given(old=VOCABULARIES, new=VOCABULARIES, data=st.data())
def test_kept_words_keep_what_they_have(old, new, data):
    counts = np.array(data.draw(st.lists(st.integers(0, 50), min_size=len(new), max_size=len(new))))
    found = remapping(old, new, counts)
    kept = set(old) & set(new)
    assert (found.n_kept, found.n_new, found.n_dropped) == (
        len(kept),
        len(set(new) - kept),
        len(set(old) - kept),
    )
    before = {**arrays_of(old), "encoder/other": np.arange(4.0)}
    weights, accumulators = found.weights(before), found.accumulators(before)
    assert weights["encoder/other"] is accumulators["encoder/other"] is before["encoder/other"]
    for name in WORD_ARRAYS:
        assert weights[name].dtype == accumulators[name].dtype == np.float32
        assert len(weights[name]) == len(accumulators[name]) == len(new)
        for i, word in enumerate(new):
            if word in kept:
                there = old.index(word)
                np.testing.assert_array_equal(accumulators[name][i], before[name][there])
                if name != "softmax/b":
                    np.testing.assert_array_equal(weights[name][i], before[name][there])
            else:
                assert (accumulators[name][i] == 1.0).all()
                assert np.isfinite(weights[name][i]).all()
    np.testing.assert_array_equal(weights["softmax/b"][:2], before["softmax/b"][:2])


def test_a_new_word_begins_as_the_mean_of_the_words_of_its_frequency():
    old = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(100))]
    new = [*SPECIAL_TOKENS, "rare", "w7", "often", *(f"w{i}" for i in range(20, 60))]
    counts = np.array([500, 500, 9, 1, 70, 80, *range(60, 20, -1)])
    rows = np.arange(103, dtype=np.float32)[:, None] * [1, -1]
    found = remapping(old, new, counts).weights({"softmax/W": rows.astype(np.float32)})["softmax/W"]
    # By rank, from 0: "often" is among the first 16 of the old words, "rare" is the 42nd, in 32..64.
    np.testing.assert_allclose(found[5], rows[3 : 3 + 16].mean(axis=0))
    np.testing.assert_allclose(found[3], rows[3 + 32 :].mean(axis=0))
    np.testing.assert_array_equal(found[4], rows[10])


def test_biases_move_along_their_line():
    """Zipf's law with noise on it: the noise stays with its word, the rest is of the rank."""
    n = 200
    noise = np.random.default_rng(0).normal(0, 1e-3, n)
    old = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(n))]
    biases = np.concatenate([[-3.0, -4.0, -20.0], -2 - 1.1 * np.log1p(np.arange(n)) + noise])
    new = ["w150", *SPECIAL_TOKENS, "w3", "other"]
    counts = [90, 100, 100, 50, 20, 60]
    found = remapping(old, new, counts).weights({"softmax/b": biases.astype(np.float32)})["softmax/b"]
    at = lambda rank: -2 - 1.1 * np.log1p(rank)  # noqa: E731
    np.testing.assert_array_equal(found[1:3], [-3.0, -4.0])
    np.testing.assert_allclose(
        found[[0, 3, 4, 5]], [at(0) + noise[150], at(2), at(2) + noise[3], at(1)], atol=5e-3
    )
