"""Vocabularies: ids and characters of words, and files: building, checking and writing them."""

import gzip
from collections import Counter
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bilm.errors import DataError, OptionsError, VocabularyError
from bilm.io import archives
from bilm.options.parameters import UnicodeForm
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary, load_vocabulary
from bilm.vocabulary.vocabulary_file import (
    SPECIAL_TOKENS,
    check_vocabulary,
    choose_words,
    form_of_words,
    vocabulary_text,
)
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


def test_string_is_not_taken_for_words():
    encode = partial(Vocabulary.from_words(SPECIAL_TOKENS).encode, split=False)
    for call in (Vocabulary.from_words, UnicodeCharsVocabulary.from_words, encode):
        with pytest.raises(DataError, match="` is a string, not a list of words: .the."):
            call("the")


def test_encoding(make):
    vocab = Vocabulary(make("\n".join(WORDS)))
    for encoded in (vocab.encode("the dog ."), vocab.encode(["the", "dog", "."], split=False)):
        assert encoded.dtype == np.int32
        np.testing.assert_array_equal(encoded, [3, 0, 5, 1, 4])
    np.testing.assert_array_equal(vocab.encode(". dog the", reverse=True), [4, 1, 5, 0, 3])
    np.testing.assert_array_equal(vocab.encode(""), [3, 4])
    np.testing.assert_array_equal(vocab.lookup(["dog", "the"]), [-1, 0])


def test_unvalidated_file_keeps_its_lines(make):
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
        ("a\na\n", "missing special tokens: <S>, </S>, <UNK>"),
        ("<S>\n".encode("utf-16"), "line 1: not UTF-8 .*; convert it with iconv"),
        ("", "the vocabulary file is empty"),
    ],
)
def test_validation_names_file_and_line(make, data, message):
    with pytest.raises(VocabularyError, match=f"vocab.txt: .*{message}"):
        load_vocabulary(make(data))


def test_blank_and_repeated_lines_keep_their_ids(make, caplog):
    vocab = load_vocabulary(make("<S>\n</S>\n<UNK>\na\n\n!!!MAXTERMID\nb\na\n\n"), 5)
    assert list(vocab.words) == ["<S>", "</S>", "<UNK>", "a", "", "b", "a", ""]
    np.testing.assert_array_equal(vocab.lookup(["a", "b", "<UNK>"]), [6, 5, 2])
    np.testing.assert_array_equal(vocab.character_rows(np.array([4])), [[258, 259, 260, 260, 260]])
    (warning,) = caplog.messages
    assert "vocab.txt: blank line or repeated word" in warning
    assert warning.endswith("(3 in all: line 5 '', line 8 'a', line 9 '')")


def test_bomb_is_refused(make, monkeypatch):
    monkeypatch.setattr(archives, "_ALWAYS", 1000)
    with pytest.raises(VocabularyError, match="decompresses to more than .* bytes; this is not a vocabulary"):
        load_vocabulary(make(gzip.compress(b"a\n" * 50_000)))


def test_unreadable_files(tmp_path):
    with pytest.raises(VocabularyError, match="gone: No such file"):
        Vocabulary(tmp_path / "gone")
    with pytest.raises(VocabularyError, match="is a directory, expected a file"):
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


@given(known_words, other_words, st.integers(3, 40), st.data())
def test_rows_match_single_words(known, others, width, data):
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


# --- files ----------------------------------------------------------------------------------------


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
    with pytest.raises(OptionsError, match="min_count is 0; it must be at least 1"):
        build_vocabulary([["a"]], min_count=0)
    with pytest.raises(OptionsError, match="max_size is 3; it counts the 3 special tokens"):
        build_vocabulary([["a"]], max_size=3)
    with pytest.raises(DataError, match="the corpus is empty"):
        build_vocabulary([[], []])


@given(st.lists(st.lists(st.text(min_size=1, max_size=3).filter(lambda w: w.split() == [w])), max_size=5))
def test_built_vocabulary_round_trip(tmp_path_factory, sentences):
    if not any(sentences):
        return
    path = tmp_path_factory.mktemp("built") / "vocab.txt"
    built = build_vocabulary(sentences)
    path.write_bytes(vocabulary_text(built.words, path))
    assert tuple(load_vocabulary(path).words) == built.words
    for finding in check_vocabulary(path.read_bytes(), "vocab.txt"):
        assert any(words in finding.message for words in ("invisible or replacement", "look the same"))


def test_unreadable_word_is_not_written():
    assert vocabulary_text(["a", "b"], "vocab.txt") == b"a\nb\n"
    for bad in ("", "a b", "a\n", "!!!MAXTERMID", "\ud800"):
        with pytest.raises(VocabularyError, match="vocab.txt: "):
            vocabulary_text(["c", bad], "vocab.txt")


# --- checks ---------------------------------------------------------------------------------------


def of(findings, severity):
    return [(finding.line, finding.message) for finding in findings if finding.severity == severity]


def test_check_lists_all_problems():
    unseen = "\0\na\0b\ne\u0301\n\u00e9\nc\u00ad\n\x9f\n\u200b\n\ufffd\nd\n"
    findings = check_vocabulary(f"</S>\n\nab\n c\nd e\nab\nk\n\xa0\n{unseen}".encode(), "vocab.txt")
    (missing,) = of(findings, "error")
    assert missing[1].startswith("missing special tokens: <S>, <UNK>")
    lines, (superfluous, _, invisible, forms) = zip(*of(findings, "warning"), strict=True)
    assert lines == (2, 5, 9, None)
    assert superfluous.endswith("(3 in all: line 2 '', line 6 'ab', line 8 '\\xa0')")
    assert invisible.startswith("control, invisible or replacement characters")
    assert invisible.endswith(r"(6 in all: line 9 '\x00', line 10 'a\x00b', line 13 'c\xad')")
    assert forms.startswith("words of the vocabulary that look the same")


def test_check_names_misplaced_marks():
    [(line, message)] = of(check_vocabulary(b"a\n</S>\n<S>\n<UNK>\n", "vocab.txt"), "warning")
    assert line is None and message.endswith("<S> on line 3, </S> on line 2, <UNK> on line 4")


def test_words_are_looked_up_in_normal_form():
    words = [*SPECIAL_TOKENS, "\u00e9t\u00e9", "e"]
    vocabulary = UnicodeCharsVocabulary.from_words(words, 10)
    decomposed = ["e\u0301te\u0301", "e", "e\u0301"]
    assert vocabulary.lookup(decomposed).tolist() == [-1, 4, -1] and form_of_words(vocabulary.words) == "NFC"
    assert form_of_words(["e\u0301"]) == "NFD" and form_of_words(["\u00e9", "e\u0301"]) is None
    vocabulary.unicode_form = "NFC"
    assert vocabulary.lookup(decomposed).tolist() == [3, 4, -1]
    assert vocabulary.in_form(["e\u0301 e", "e"]) == ["\u00e9 e", "e"]  # a word may hold a space in Python
    rows = UnicodeCharsVocabulary.from_words(words, 10).rows_of(["\u00e9t\u00e9", "e", "\u00e9"])
    assert (vocabulary.rows_of(decomposed) == rows).all()
    with pytest.raises(VocabularyError, match=r"'été', id 3, is not in NFD.*build --form NFD"):
        vocabulary.unicode_form = "NFD"
    with pytest.raises(OptionsError, match="`unicode_form` is 'nfc', not one of NFC, NFD, NFKC"):
        vocabulary.unicode_form = "nfc"


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("NFC", ["\u00e9", "l\u00b4eau", "x\u00b2"]),
        ("NFD", ["e\u0301", "l\u00b4eau", "x\u00b2"]),
        ("NFKC", ["\u00e9", "\u013aeau", "x2"]),  # its space before a single accent would make two words
    ],
)
def test_built_words_have_form(form, words):
    corpus = Counter({"\u00e9": 3, "e\u0301": 2, "l\u00b4eau": 2, "x\u00b2": 1})
    built = choose_words(corpus, 1, form=UnicodeForm(form))
    assert [*built.words[3:]] == words and built.counts[3:].tolist() == [5, 2, 1]
    assert (built.n_tokens, built.n_types, built.n_merged) == (8, 3, 1)
    text = "\u00e9 e\u0301 l\u00b4eau x\u00b2"
    assert UnicodeForm(form).of_text(text).split() == [words[0], *words]
    Vocabulary.from_words(built.words).unicode_form = form
