import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bilm.data.pipeline import Batch
from bilm.training.trainer import TypePadding


def words(batch):
    """The characters of every token."""
    rows = [tuple(row) for bucket in batch.type_characters for row in bucket]
    return [rows[k] for k in batch.token_types.ravel()]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 9)), min_size=1, max_size=5))
def test_tokens_keep_their_words_and_shapes_never_shrink(sizes):
    random, padding, before = np.random.default_rng(0), TypePadding(), (0, 0, 0)
    for step in sizes:
        buckets = tuple(random.integers(1, 261, (n, 3 + k)).astype(np.int32) for k, n in enumerate(step))
        tokens = random.integers(0, sum(step), (2, 4, 3)).astype(np.int32)
        batch = Batch(buckets, tokens, tokens, np.ones((4, 3), np.float32))
        padded = padding(batch)
        assert words(padded) == words(batch)
        after = tuple(len(rows) for rows in padded.type_characters)
        assert all(n & (n - 1) == 0 and n >= max(a, b) for n, a, b in zip(after, before, step, strict=True))
        before = after


def test_a_batch_of_word_ids_stays():
    tokens = np.zeros((1, 2, 2), np.int32)
    batch = Batch((), tokens, tokens, np.ones((2, 2), np.float32))
    assert TypePadding()(batch) is batch
