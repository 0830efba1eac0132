"""Sentences of a text as ids, in what order and in which parts."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilm.data import stream as sentences_module
from bilm.data.stream import Order, Place, encode_sentences, join_sentences, sentence_stream
from bilm.errors import CheckpointError, DataError
from tests.corpora import CHARACTERS, WORDS, known, sentences_of_words, write


def encode(sentences, vocab, *limits):
    return encode_sentences(map(" ".join, sentences), vocab, *limits)


def read(sentences, vocab):
    assert sentences.ids.dtype == np.int32
    ends = sentences.ends - 1
    assert (sentences.ids[ends] == vocab.eos).all()
    return [sentences.words(k, vocab) for k in range(len(sentences))]


@given(sentences_of_words, st.integers(1, 30))
def test_encoding(sentences, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences_module, "_ENCODE_TOKENS", chunk)
        over_characters, over_words = encode(sentences, CHARACTERS), encode(sentences, WORDS)
    assert read(over_characters, CHARACTERS) == sentences
    unknown = [word for words in sentences for word in words if word not in WORDS.words]
    assert over_characters.oov == tuple(dict.fromkeys(unknown))
    assert read(over_words, WORDS) == [known(words) for words in sentences]
    assert over_words.oov == ()
    assert over_words.lengths.tolist() == [len(words) + 1 for words in sentences]


@given(st.lists(sentences_of_words, min_size=1, max_size=4), st.data())
def test_join_keeps_words(parts, data):
    chosen = []
    for part in parts:
        which = data.draw(st.lists(st.integers(0, len(part) - 1), unique=True) if part else st.just([]))
        packed = encode(part, CHARACTERS).select(np.array(which, int)).packed(CHARACTERS)
        expected = [part[k] for k in which]
        assert read(packed, CHARACTERS) == expected
        unknown = {word for words in expected for word in words if word not in WORDS.words}
        assert sorted(packed.oov) == sorted(unknown), "no word of the others is kept"
        chosen.append((packed, expected))
    joined = join_sentences([packed for packed, _ in chosen], CHARACTERS)
    assert read(joined, CHARACTERS) == [words for _, expected in chosen for words in expected]
    assert len(set(joined.oov)) == len(joined.oov)


# --- the order ------------------------------------------------------------------------------------


def sentences(files, endless=True, start=None, **order):
    order = Order(**({"shuffle": True} | order))
    for block in sentence_stream(files, CHARACTERS, order, endless=endless, start=start):
        for number in range(len(block.sentences)):
            yield " ".join(block.sentences.words(number, CHARACTERS))


def stream(files, n_sentences, **options):
    return list(itertools.islice(sentences(files, **options), n_sentences))


LINES = [f"{k} a" for k in range(40)]


@pytest.mark.parametrize("shuffle_buffer", [1, 10, 15, 1000])
def test_shuffle_is_a_seeded_permutation(tmp_path, shuffle_buffer):
    files = [write(tmp_path / f"{k}", "\n".join(LINES[k::4]) + "\n") for k in range(4)]
    in_order = [line for k in range(4) for line in LINES[k::4]]
    assert stream(files, None, shuffle=False, endless=False) == in_order
    assert stream(files, 80, shuffle=False) == in_order * 2
    twice = stream(files, 80, shuffle_buffer=shuffle_buffer)
    assert sorted(twice[:40]) == sorted(twice[40:]) == sorted(LINES)
    assert twice[:40] != twice[40:]
    assert twice == stream(files, 80, shuffle_buffer=shuffle_buffer)
    assert twice != stream(files, 80, shuffle_buffer=shuffle_buffer, seed=1)
    assert twice[:40] == stream(files, None, shuffle_buffer=shuffle_buffer, endless=False)
    assert twice[1:] == stream(files, 79, shuffle_buffer=shuffle_buffer, start=Place(taken=1, sentence=1))
    shard_of_first_ten = {LINES.index(line) % 4 for line in twice[:10]}
    assert (len(shard_of_first_ten) == 1) == (shuffle_buffer in (1, 10)), "larger blocks go over shards"


def test_each_block_of_each_epoch_has_its_own_order(tmp_path):
    read = stream([write(tmp_path / "text", "\n".join(LINES))], 80, shuffle_buffer=10)
    blocks = [read[k : k + 10] for k in range(0, 80, 10)]
    assert len({tuple(LINES.index(line) % 10 for line in block) for block in blocks}) == 8


def test_passages_are_shuffled_whole(tmp_path):
    path = write(tmp_path / "text", "\n".join(LINES))
    passages = stream([path], None, endless=False, passage_tokens=9)  # three lines of three tokens
    numbers = [[int(line.split()[0]) for line in passage.split("</S>")] for passage in passages]
    assert sorted(numbers) == [list(range(k, min(k + 3, 40))) for k in range(0, 40, 3)] != numbers
    assert stream([path], None, endless=False, passage_tokens=9, shuffle=False) == LINES


def test_blank_lines_are_skipped(tmp_path):
    path = write(tmp_path / "text", "\na\n\n \nb\n")
    assert stream([path], 4, shuffle=False) == ["a", "b", "a", "b"]
    empty = write(tmp_path / "empty", "\n\n")
    assert stream([empty], None, endless=False) == []
    with pytest.raises(DataError, match="no sentences in .*empty: the corpus is empty"):
        stream([empty], 1)


@pytest.mark.parametrize("n_files", [1, 2, 3, 7])
def test_parts_divide_the_text(tmp_path, n_files):
    files = [write(tmp_path / f"{k}", "\n\n".join(LINES[k::n_files])) for k in range(n_files)]
    parts = [stream(files, None, endless=False, part=k, n_parts=3) for k in range(3)]
    assert sorted(itertools.chain(*parts)) == sorted(LINES)
    of_files = [{int(line.split()[0]) % n_files for line in part} for part in parts]
    if n_files >= 3:
        assert of_files == [set(range(k, n_files, 3)) for k in range(3)]
    else:
        assert all(len(part) >= 12 for part in parts)


def test_empty_part_is_refused(tmp_path):
    path = write(tmp_path / "text", "a\nb\n")
    with pytest.raises(DataError, match="no sentences in .*text for worker 2 of 3 .*use fewer workers"):
        stream([path], 1, part=2, n_parts=3)


def test_shards_before_the_start_are_not_opened(tmp_path):
    files = [write(tmp_path / f"{k}", f"{k} a\n{k} b\n") for k in range(3)]
    files[0].unlink()
    start = Place(shard=1, line=1)
    assert stream(files, None, endless=False, shuffle=False, start=start) == ["1 b", "2 a", "2 b"]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("place", [Place(shard=3), Place(line=3), Place(taken=7), Place(shard=2, line=99)])
def test_missing_place_is_refused(tmp_path, place, shuffle):
    files = [write(tmp_path / f"{k}", "a\nb\n") for k in range(3)]
    with pytest.raises(CheckpointError, match="the text has changed: "):
        stream(files, 1, start=place, shuffle=shuffle)
