"""Files of vocabularies: building, checking and writing them."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.errors import DataError, OptionsError, VocabularyError
from bilm.vocabulary.file import SPECIAL_TOKENS, Severity, check_vocabulary, choose_words, write_vocabulary
from bilm.vocabulary.vocabulary import load_vocabulary
from tests.corpora import write


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
        expected = "control characters" in finding.message or "holds <S> or </S>" in finding.message
        assert finding.severity is Severity.INFO or expected


def test_writing_is_whole_or_not_at_all(tmp_path):
    path = tmp_path / "vocab.txt"
    write_vocabulary(["a", "b"], path)
    for bad in ("", "a b", "a\n", "!!!MAXTERMID", "\ud800"):
        with pytest.raises(VocabularyError, match="vocab.txt: "):
            write_vocabulary(["c", bad], path)
    assert path.read_bytes() == b"a\nb\n" and list(tmp_path.iterdir()) == [path]
    with pytest.raises(VocabularyError, match="cannot be written: No such file"):
        write_vocabulary(["a"], tmp_path / "none" / "vocab.txt")


# --- checks ---------------------------------------------------------------------------------------


@pytest.fixture
def make(tmp_path):
    return lambda data: write(tmp_path / "vocab.txt", data)


def of(findings, severity):
    return [(finding.line, finding.message) for finding in findings if finding.severity is severity]


def test_check_does_not_stop_at_the_first_problem(make):
    path = make(f"</S>\n\nab\n c\nd e\nab\n{'é' * 30}\n\xa0\n".encode() + b"\xff\n")
    findings = check_vocabulary(path)
    (bad_text, missing, repeated, blank) = of(findings, Severity.ERROR)
    assert bad_text == (9, "not UTF-8 (byte 0xff: invalid start byte); convert it with iconv")
    assert missing[1].startswith("missing special tokens: <S>, <UNK>")
    assert repeated == (6, "'ab' is on lines 3 and 6")
    assert blank == (2, "the line is blank, and 1 more lines are")
    around, inside = of(findings, Severity.WARNING)
    assert (around[0], inside[0]) == (4, 5)
    ((line, message),) = of(findings, Severity.INFO)
    assert line == 7
    assert message.startswith("more than 48 bytes; the rest of the word is not read (1 in all: line 7")


def test_without_unk_every_word_of_a_text_must_be_there(make):
    path = make("<S>\n</S>\na\n")
    assert load_vocabulary(path).unk == -1
    assert of(check_vocabulary(path, [["a"]]), Severity.ERROR) == []
    ((line, message),) = of(check_vocabulary(path, [["a"], ["b"]]), Severity.ERROR)
    assert line is None and "'b' of the corpus is not in the vocabulary, which has no <UNK>" in message


def test_check_against_a_corpus(make):
    corpus = [[f"w{k}"] * (10_000 // (k + 1)) for k in range(1000)] + [["other"] * 100]
    best = [f"w{k}" for k in range(1000)]
    findings = check_vocabulary(make("\n".join([*SPECIAL_TOKENS, *best, "never"])), corpus)
    assert of(findings, Severity.WARNING) == []
    messages = "; ".join(message for _, message in of(findings, Severity.INFO))
    assert "100 of 74,480 words of the corpus are out of vocabulary (0.13%)" in messages
    assert "words never seen in the corpus, 0.1% of the vocabulary (1 in all: line 1004 'never')" in messages


def test_check_finds_control_characters(make):
    path = make("\n".join([*SPECIAL_TOKENS, "\0", "a\0b", "é\u200b", "\x9f", "c\x7f", "d"]))
    ((line, message),) = of(check_vocabulary(path), Severity.WARNING)
    assert line == 4
    assert message.startswith("NUL or other control characters")
    assert message.endswith(r"(4 in all: line 4 '\x00', line 5 'a\x00b', line 7 '\x9f')")
