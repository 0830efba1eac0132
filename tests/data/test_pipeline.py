import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.data import stream
from bilm.data.lm_datasets import BidirectionalLMDataset
from bilm.data.pipeline import compact, pack_windows
from bilm.data.stream import Block, Order, Place, encode_sentences, sentence_stream
from bilm.errors import OptionsError, VocabularyError
from bilm.io import lines as text
from bilm.options.hyper_parameters import length_buckets
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary
from tests.corpora import (
    CHARACTERS,
    MARKS,
    WORDS,
    assert_same_batches,
    expand,
    golden,
    sentences_of_words,
    training,
    write,
)
from tests.helpers import VARIANTS


@pytest.mark.parametrize("variant", VARIANTS)
def test_golden_batches_of_training(variant):
    path, vocab, expected = golden(variant)
    shape = {"batch_size": 4, "unroll_steps": 20, "max_filter_width": 4}
    batches = training([path], vocab, bidirectional=variant != "char-forward", shuffle=False, **shape)
    dictionaries = [
        {name.partition("/")[2]: expected[name] for name in expected.files if name.startswith(f"batch{k}/")}
        for k in range(3)
    ]
    first = [one for ((one,), _) in itertools.islice(batches, 3)]
    assert_same_batches(first, dictionaries, variant != "word-shared")
    assert {batch.targets.dtype for batch in first} == {np.dtype(np.int32)}


@settings(deadline=None)
@given(sentences_of_words, st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_batches_are_those_of_the_reference(tmp_path_factory, sentences, n_rows, n_steps, of_words):
    vocab = WORDS if of_words else CHARACTERS
    path = tmp_path_factory.mktemp("corpus") / "text"
    write(path, "".join(" ".join(words) + "\n" for words in sentences))
    reference = list(BidirectionalLMDataset(path, vocab, test=True).iter_batches(n_rows, n_steps))
    blocks = sentence_stream([path], vocab, Order(), endless=False, keep_blank=True)
    shape = {"n_rows": n_rows, "n_steps": n_steps, "bidirectional": True}
    windows = pack_windows(blocks, vocab, **shape)
    assert_same_batches([compact(window, vocab, 3) for window in windows], reference, not of_words)


def test_memory_is_bounded_by_the_shuffle_buffer(tmp_path, monkeypatch):
    monkeypatch.setattr(text, "_BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(text, "_BUFFER_BYTES", 1 << 14)
    monkeypatch.setattr(stream, "_ENCODE_TOKENS", 1 << 8)

    def peak(n_lines, shuffle_buffer):
        path = write(tmp_path / "text", f"{'a b c ' * 10}\n" * n_lines)
        options = {"batch_size": 2, "unroll_steps": 100, "bidirectional": True}
        tracemalloc.start()
        batches = training([path], WORDS, shuffle_buffer=shuffle_buffer, **options)
        for _ in itertools.takewhile(lambda batch: not batch.position.place.epoch, batches):
            pass
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    peak(100, 100)  # what is only made once
    longer = peak(1600, 100)
    assert longer < 1.2 * peak(400, 100)
    assert peak(1600, 800) > 2 * longer


@settings(deadline=None)
@given(st.lists(st.text("ab", min_size=1, max_size=14), min_size=1, max_size=20), st.integers(1, 5))
def test_words_are_in_the_first_bucket_that_is_wide_enough(words, filter_width):
    vocab = UnicodeCharsVocabulary.from_words(MARKS, 14)
    block = Block(encode_sentences([" ".join(words)], vocab), Place())
    (window,) = pack_windows([block], vocab, n_rows=1, n_steps=len(words) + 1, bidirectional=False)
    batch = compact(window, vocab, filter_width)
    widths = length_buckets(14, filter_width)
    assert tuple(part.shape[1] for part in batch.type_characters) == widths
    rows = [tuple(row.tolist()) for part in batch.type_characters for row in part]
    assert len(set(rows)) == len(rows)
    for narrower, part in zip((0, *widths), batch.type_characters, strict=False):
        for row in part:
            needed = min(14, int((row != 260).sum()) + filter_width)
            assert narrower < needed <= part.shape[1]


def test_replicas_have_rows_of_one_window(tmp_path):
    path = write(tmp_path / "text", "a b c a\nb dd\nc c\na b dd ee\n")
    options = {"unroll_steps": 3, "bidirectional": True, "max_filter_width": 2, "seed": 5}
    whole = training([path], CHARACTERS, batch_size=6, **options)
    parts = training([path], CHARACTERS, batch_size=2, n_replicas=3, **options)
    for ((one,), _), (three, _) in itertools.islice(zip(whole, parts, strict=False), 9):
        np.testing.assert_array_equal(one.targets, np.concatenate([part.targets for part in three], axis=2))
        np.testing.assert_array_equal(expand(one), np.concatenate([expand(part) for part in three], axis=1))


def test_bad_arguments(tmp_path):
    path = write(tmp_path / "text", "a\n")
    options = {"batch_size": 1, "unroll_steps": 1, "bidirectional": False}
    with pytest.raises(OptionsError, match="max_filter_width is needed"):
        next(training([path], CHARACTERS, **options))
    with pytest.raises(VocabularyError, match="lacks <S> or </S>"):
        next(training([path], Vocabulary.from_words(["a"]), **options))
