import pytest

from bilm.vocabulary.file import SPECIAL_TOKENS, Severity, check_vocabulary
from bilm.vocabulary.vocabulary import load_vocabulary
from tests.corpora import write


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
    findings = check_vocabulary(make("\n".join([*SPECIAL_TOKENS, *best[::-1]])), corpus)
    ((line, message),) = of(findings, Severity.WARNING)
    assert line is None and "the first half of the vocabulary covers only" in message


def test_check_finds_control_characters(make):
    path = make("\n".join([*SPECIAL_TOKENS, "\0", "a\0b", "é\u200b", "\x9f", "c\x7f", "d"]))
    ((line, message),) = of(check_vocabulary(path), Severity.WARNING)
    assert line == 4
    assert message.startswith("NUL or other control characters")
    assert message.endswith(r"(4 in all: line 4 '\x00', line 5 'a\x00b', line 7 '\x9f')")
