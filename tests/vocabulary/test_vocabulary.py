import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.errors import OptionsError, VocabularyError
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary, load_vocabulary
from tests.corpora import write

WORDS = ["the", ".", "\u0100t", "<S>", "</S>", "<UNK>"]
BOS = [258, 256, 259, 260, 260]
EOS = [258, 257, 259, 260, 260]


@pytest.fixture
def make(tmp_path):
    return lambda data: write(tmp_path / "vocab.txt", data)


def test_word_ids(make):
    vocab = Vocabulary(make("\n".join(WORDS)))
    assert (vocab.bos, vocab.eos, vocab.unk) == (3, 4, 5)
    assert [vocab.word_to_id(word) for word in (*WORDS, "unseen")] == [*range(6), 5]
    assert vocab.decode([3, 0, 1, 4]) == "<S> the . </S>"


def test_encoding(make):
    vocab = Vocabulary(make("\n".join(WORDS)))
    for encoded in (vocab.encode("the dog ."), vocab.encode(["the", "dog", "."], split=False)):
        assert encoded.dtype == np.int32
        np.testing.assert_array_equal(encoded, [3, 0, 5, 1, 4])
    np.testing.assert_array_equal(vocab.encode(". dog the", reverse=True), [4, 1, 5, 0, 3])
    np.testing.assert_array_equal(vocab.encode(""), [3, 4])
    np.testing.assert_array_equal(vocab.lookup(["dog", "the"]), [-1, 0])


def test_without_validation_files_are_taken_as_they_are(make):
    vocab = Vocabulary(make("a\nb\n\n!!!MAXTERMID\n a \n"))
    assert list(vocab.words) == ["a", "b", "", "a"]
    assert (vocab.word_to_id("a"), vocab.size) == (3, 4)
    assert (vocab.bos, vocab.eos, vocab.unk, vocab.word_to_id("c")) == (-1, -1, -1, -1)


@pytest.mark.parametrize("validate", [False, True])
def test_byte_order_mark_and_line_ends(make, validate):
    path = make(b"\xef\xbb\xbf<S>\r\n</S>\r<UNK>\r\na\xc2\x85b\r\n")
    assert list(Vocabulary(path, validate).words) == ["<S>", "</S>", "<UNK>", "a\x85b"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("<S>\n</S>\n<UNK>\na\nb\nb\na\n", "line 6: 'b' is on lines 5 and 6, and 1 more lines repeat a word"),
        ("<S>\n</S>\n<UNK>\na\n\nb\n\n\n", "line 5: the line is blank, and 2 more lines"),
        ("a\na\n", "missing special tokens: <S>, </S>, <UNK>.*; line 2: 'a' is on lines 1 and 2"),
        ("<S>\n".encode("utf-16"), "line 1: not UTF-8 .*; convert it with iconv"),
        ("", "the vocabulary file is empty"),
    ],
)
def test_validation_names_file_and_line(make, data, message):
    with pytest.raises(VocabularyError, match=f"vocab.txt: .*{message}"):
        load_vocabulary(make(data))


def test_unreadable_files(tmp_path):
    with pytest.raises(VocabularyError, match="gone: No such file"):
        Vocabulary(tmp_path / "gone")
    with pytest.raises(VocabularyError, match="is a directory; give a file"):
        load_vocabulary(tmp_path)


def test_character_ids(make):
    vocab = UnicodeCharsVocabulary(make("\n".join(WORDS)), 5)
    rows = [[258, 116, 104, 101, 259], [258, 46, 259, 260, 260], [258, 196, 128, 116, 259], BOS, EOS]
    np.testing.assert_array_equal(vocab.word_char_ids[:5], rows)
    np.testing.assert_array_equal(vocab.word_to_char_ids("thhhhh"), [258, 116, 104, 104, 259])
    np.testing.assert_array_equal([vocab.bos_chars, vocab.eos_chars], [BOS, EOS])
    with pytest.raises(OptionsError, match="max_word_length is 2"):
        UnicodeCharsVocabulary(make("a"), 2)


def test_encoding_of_characters(make):
    vocab = UnicodeCharsVocabulary(make("\n".join(WORDS)), 5)
    the, out = [258, 116, 104, 101, 259], [258, 120, 259, 260, 260]
    np.testing.assert_array_equal(vocab.encode_chars("the x"), [BOS, the, out, EOS])
    np.testing.assert_array_equal(vocab.encode_chars(["x", "the"], True, False), [EOS, out, the, BOS])
    np.testing.assert_array_equal(vocab.encode_chars(""), [BOS, EOS])
    assert vocab.encode_chars("the").dtype == np.int32


def reference_row(word, width):
    if word in ("<S>", "</S>"):
        characters = [256 if word == "<S>" else 257]
    else:
        characters = list(word.encode("utf-8", "ignore")[: width - 2])
    row = [258, *characters, 259]
    return row + [260] * (width - len(row))


marks = st.sampled_from(["<S>", "</S>", "<UNK>"])
known_words = st.lists(st.one_of(st.text(max_size=9), marks), unique=True, max_size=9)
other_words = st.lists(st.text(max_size=9).map("not-a-known-one-{}".format), max_size=4)


@settings(deadline=None)
@given(known_words, other_words, st.integers(3, 40), st.data())
def test_rows_are_those_of_single_words(known, others, width, data):
    vocab = UnicodeCharsVocabulary.from_words(known, width)
    n_words = len(known) + len(others)
    ids = data.draw(st.lists(st.integers(0, n_words - 1), max_size=9)) if n_words else []
    chosen = [(known + others)[k] for k in ids]
    expected = np.array([reference_row(word, width) for word in chosen], np.int32).reshape(-1, width)
    ids = np.array(ids, np.int32)
    rows = vocab.character_rows(ids, others)
    assert rows.dtype == np.int32
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(vocab.character_lengths(ids, others), (expected != 260).sum(1))
    np.testing.assert_array_equal(vocab.character_rows(ids, others, width - 1), expected[:, :-1])
    for word, row in zip(chosen, expected, strict=True):
        np.testing.assert_array_equal(vocab.word_to_char_ids(word), row)
