from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.errors import DataError, OptionsError
from bilm.vocabulary.file import SPECIAL_TOKENS, Severity, check_vocabulary, choose_words, write_vocabulary
from bilm.vocabulary.vocabulary import load_vocabulary


def build_vocabulary(sentences, **bounds):
    corpus = Counter(word for sentence in sentences for word in sentence)
    return choose_words(corpus, sum(map(bool, sentences)), **bounds)


def test_building():
    sentences = [["b", "a", "é", "a"], [], ["b", "<UNK>", "<S>", "!!!MAXTERMID", "a", "c"]]
    counts = build_vocabulary(sentences)
    assert counts.words == (*SPECIAL_TOKENS, "a", "b", "c", "é")
    np.testing.assert_array_equal(counts.counts, [3, 2, 2, 3, 2, 1, 1])
    assert (counts.n_tokens, counts.n_types, counts.coverage) == (10, 7, 0.9)
    assert build_vocabulary(sentences, min_count=2).words == (*SPECIAL_TOKENS, "a", "b")
    small = build_vocabulary(sentences, max_size=4)
    assert small.words == (*SPECIAL_TOKENS, "a")
    assert (small.counts.tolist(), small.coverage) == ([3, 2, 6, 3], 0.5)


def test_building_refuses():
    with pytest.raises(OptionsError, match="min_count is 0"):
        build_vocabulary([["a"]], min_count=0)
    with pytest.raises(OptionsError, match="max_size is 3; it counts the 3 special tokens"):
        build_vocabulary([["a"]], max_size=3)
    with pytest.raises(DataError, match="the corpus is empty"):
        build_vocabulary([[], []])


@settings(deadline=None)
@given(st.lists(st.lists(st.text(min_size=1, max_size=3).filter(lambda w: w.split() == [w])), max_size=5))
def test_what_is_built_is_written_and_loaded(tmp_path_factory, sentences):
    if not any(sentences):
        return
    path = tmp_path_factory.mktemp("built") / "vocab.txt"
    built = build_vocabulary(sentences)
    write_vocabulary(built.words, path)
    assert tuple(load_vocabulary(path).words) == built.words
    for finding in check_vocabulary(path, sentences):
        is_of_a_word = "control characters" in finding.message or "are <S> or </S>" in finding.message
        assert finding.severity is Severity.INFO or is_of_a_word
