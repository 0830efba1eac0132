"""Batches of sentences of a length."""

from hypothesis import given
from hypothesis import strategies as st

from bilm.length_batches import length_batches, padded_rows


@given(st.lists(st.integers(1, 60), max_size=80), st.integers(1, 300), st.none() | st.integers(1, 20))
def test_each_sentence_is_in_one_batch_that_fits(lengths, max_tokens, max_rows):
    batches = list(length_batches(lengths, max_tokens, max_rows))
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= max_tokens
        assert len(batch) <= padded_rows(len(batch)) < 1.5 * len(batch) + 1
        assert max_rows is None or len(batch) <= max_rows


def test_few_numbers_of_rows():
    assert len({padded_rows(n) for n in range(1, 1000)}) == 20
