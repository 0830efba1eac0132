import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm import sentences as sentences_module
from bilm.errors import DataError
from bilm.sentences import sentence_stream
from tests.corpora import CHARACTERS, WORDS, encoded, known, sentences_of_words, strings, write


@settings(deadline=None)
@given(sentences_of_words, st.integers(1, 30))
def test_encoding(tmp_path_factory, sentences, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences_module, "_ENCODE_TOKENS", chunk)
        over_characters = encoded(tmp_path_factory, sentences, CHARACTERS)
        over_words = encoded(tmp_path_factory, sentences, WORDS)
    for words, one, other in zip(sentences, over_characters, over_words, strict=True):
        assert one.ids.dtype == other.ids.dtype == np.int32
        assert strings(one.ids, one.oov, CHARACTERS) == ["<S>", *words, "</S>"]
        assert one.oov == tuple(word for word in words if word not in WORDS.words)
        assert strings(other.ids, (), WORDS) == ["<S>", *known(words), "</S>"]
        assert other.oov == ()


def stream(files, n_sentences, **options):
    options = {"shuffle": True, "seed": 0, "endless": True} | options
    sentences = itertools.islice(sentence_stream(files, CHARACTERS, **options), n_sentences)
    return [" ".join(strings(one.ids[1:-1], one.oov, CHARACTERS)) for one in sentences]


@pytest.mark.parametrize("shuffle_buffer", [1, 10, 15, 1000])
def test_shuffling_is_a_permutation_that_the_seed_repeats(tmp_path, shuffle_buffer):
    lines = [f"{k} a" for k in range(40)]
    files = [write(tmp_path / f"{k}", "\n".join(lines[k::4]) + "\n") for k in range(4)]
    in_order = [line for k in range(4) for line in lines[k::4]]
    assert stream(files, None, shuffle=False, endless=False) == in_order
    assert stream(files, 80, shuffle=False) == in_order * 2
    twice = stream(files, 80, shuffle_buffer=shuffle_buffer)
    assert sorted(twice[:40]) == sorted(twice[40:]) == sorted(lines)
    assert twice[:40] != twice[40:]
    assert twice == stream(files, 80, shuffle_buffer=shuffle_buffer)
    assert twice != stream(files, 80, shuffle_buffer=shuffle_buffer, seed=1)
    assert twice[:40] == stream(files, None, shuffle_buffer=shuffle_buffer, endless=False)
    shard_of_first_ten = {lines.index(line) % 4 for line in twice[:10]}
    assert (len(shard_of_first_ten) == 1) == (shuffle_buffer in (1, 10)), "larger blocks go over shards"


def test_long_lines_end_a_block_sooner(tmp_path, monkeypatch):
    monkeypatch.setattr(sentences_module, "_MAX_BUFFER_TOKENS", 10)
    path = write(tmp_path / "text", "".join(f"{k} a\n" for k in range(30)))
    blocks = np.array([int(line.split()[0]) for line in stream([path], 30)]).reshape(10, 3)
    np.testing.assert_array_equal(np.sort(blocks), np.arange(30).reshape(10, 3))


def test_blank_lines_are_not_sentences_in_training(tmp_path):
    path = write(tmp_path / "text", "\na\n\n \nb\n")
    assert stream([path], 4, shuffle=False) == ["a", "b", "a", "b"]
    empty = write(tmp_path / "empty", "\n\n")
    assert stream([empty], None, endless=False) == []
    with pytest.raises(DataError, match="no sentence in .*empty: the corpus is empty"):
        stream([empty], 1)
