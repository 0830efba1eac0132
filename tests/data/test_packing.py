"""Sentences packed back to back in rows."""

from unittest.mock import Mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bilm.data import packing
from bilm.data.packing import enough_rows, pack, pack_as_rows_end, pack_in_turn
from bilm.io import in_groups

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=80)


def all_places(packing, n_tokens):
    return packing.places(*[np.ones(n_tokens, bool)] * 2)


@given(LENGTHS, st.none() | st.integers(1, 20))
def test_pack_keeps_sentences_whole(lengths, max_rows):
    packing = pack(lengths, max_rows)
    assert packing.n_rows <= (max_rows or 128)
    places = np.unravel_index(all_places(packing, sum(lengths)), (packing.n_steps, packing.n_rows))
    (steps, back_steps), (rows, back_rows) = places
    (begins,) = packing.fill(packing.is_first, 1)
    assert len({*zip(steps, rows, strict=True)}) == sum(lengths)
    for i, end in enumerate(np.cumsum(lengths)):
        own = slice(end - lengths[i], end)
        assert (np.diff(steps[own]) == 1).all() and len({*rows[own], *back_rows[own]}) == 1
        np.testing.assert_array_equal(back_steps[own], steps[own][::-1])
        assert begins[steps[own.start], rows[own.start]]
        assert packing.is_first[own.start] and not packing.is_word[own.stop - 1]
    assert begins.sum() == packing.is_first.sum() == len(lengths)
    np.testing.assert_array_equal(packing.row_lengths, np.bincount(rows, minlength=packing.n_rows))


@given(LENGTHS, st.integers(1, 20), st.data())
def test_fill_puts_values_at_places(lengths, n_rows, data):
    packing = pack_in_turn(lengths, n_rows)
    values = np.arange(1, sum(lengths) + 1)
    filled = packing.fill(values, 2)
    assert filled.shape == (2, packing.n_steps, n_rows)
    for own, places in zip(filled, all_places(packing, len(values)), strict=True):
        np.testing.assert_array_equal(own.ravel()[places], values)
        assert np.count_nonzero(own) == len(values)
    np.testing.assert_array_equal(packing.fill(values, 1), filled[:1])
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))))
    np.testing.assert_array_equal(filled[0].ravel()[packing.places(chosen)[0]], values[chosen])
    rows = packing.places(packing.is_first)[0] % n_rows
    np.testing.assert_array_equal(rows, np.arange(len(lengths)) % n_rows)


def test_groups_end_when_complete():
    sentences = [["a"] * 3, [], ["a"] * 5, ["a"]]

    def grouped(least, multiple=1):
        return list(in_groups(sentences, lambda words: len(words) + 2, least, multiple))

    assert grouped(7) == [sentences[:2], sentences[2:3], sentences[3:]]
    assert grouped(7, 2) == grouped(0, 2) == [sentences[:2], sentences[2:]]
    assert grouped(0, 4) == grouped(100) == [sentences]
    assert list(in_groups([], len, 0)) == []


@given(LENGTHS, st.none() | st.integers(1, 20))
def test_pack_has_the_lowest_cost(lengths, max_rows):
    longest_first = sorted(range(len(lengths)), key=lambda i: -lengths[i])
    numbers = [n for n in packing._ROWS if n <= min(len(lengths), max_rows or 128)]
    tries = [pack_as_rows_end(lengths, n, longest_first) for n in numbers]
    expected = min(tries, key=lambda one: one.n_steps * (one.n_rows + 16))
    packed = pack(lengths, max_rows)
    assert packed.n_rows == expected.n_rows
    np.testing.assert_array_equal(*(all_places(one, sum(lengths)) for one in (packed, expected)))


def test_pack_tries_few_numbers_of_rows(monkeypatch):
    pack_once = Mock(side_effect=pack_as_rows_end)
    monkeypatch.setattr(packing, "pack_as_rows_end", pack_once)
    pack(np.random.default_rng(0).integers(1, 80, 600))
    assert 1 <= pack_once.call_count <= 4


def test_pack_fills_rows():
    generator = np.random.default_rng(0)
    for mean in (12, 25, 90):
        lengths = (3 + generator.poisson(mean, size=16_384 // mean)).tolist()
        packing = pack(lengths)
        assert sum(lengths) > 0.9 * packing.n_steps * packing.n_rows
    assert [enough_rows(n) for n in (1, 3, 5, 8, 9, 100)] == [1, 3, 6, 8, 12, 128]
    powers_and_between = {1, *(n << k for n in (2, 3) for k in range(6)), 128}
    assert {pack([1] * n).n_rows for n in (*range(1, 130), *range(130, 1000, 50))} == powers_and_between
