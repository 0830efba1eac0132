import gzip

import numpy as np
import pytest

from bilm.data.corpus import count_corpus, find_files, read_sentences
from bilm.errors import DataError, VocabularyError
from bilm.io import lines as text_module
from bilm.vocabulary.vocabulary import Vocabulary
from tests.corpora import write


def test_blank_lines(tmp_path):
    path = write(tmp_path / "text", "a\n\n \t\r\nb c")
    assert list(read_sentences(path)) == [["a"], ["b", "c"]]
    assert list(read_sentences(path, keep_blank=True)) == [["a"], [], [], ["b", "c"]]


def test_find_files(tmp_path):
    for name in ("b.txt", "a.txt", ".hidden", "a[1].txt", "a1.txt"):
        write(tmp_path / name, "x")
    (tmp_path / "sub").mkdir()
    inner = write(tmp_path / "sub" / "c.txt", "x")

    def names(*patterns):
        return [path.name for path in find_files(patterns)]

    assert find_files(str(inner)) == (inner,)
    assert find_files(inner) == (inner,)
    assert names(tmp_path) == ["a.txt", "a1.txt", "a[1].txt", "b.txt"]
    assert names(tmp_path / "a*.txt") == ["a.txt", "a1.txt", "a[1].txt"]
    assert names(tmp_path / "a[1].txt") == ["a[1].txt"], "a file of that very name comes first"
    assert names(tmp_path / "[ab].txt", inner, tmp_path / "a.txt") == ["a.txt", "b.txt", "c.txt"]
    assert names(tmp_path / "**" / "c.txt") == ["c.txt"]
    for pattern in ("nothing*", "missing.txt", "sub/*.gz"):
        with pytest.raises(DataError, match="no file matches"):
            find_files([tmp_path / "a.txt", tmp_path / pattern])
    with pytest.raises(DataError, match="no input files"):
        find_files([])


def test_counts(tmp_path):
    vocab = Vocabulary.from_words(["<S>", "</S>", "<UNK>", "a", "b"])
    first = write(tmp_path / "1", "a b a c\n\nb\n")
    second = write(tmp_path / "2", gzip.compress(b"d <UNK>\r\n \r\n"))
    counts = count_corpus([first, second], vocab)
    assert (counts.n_files, counts.n_sentences, counts.n_blank_lines) == (2, 3, 2)
    assert (counts.n_words, counts.n_oov, counts.n_tokens) == (7, 2, 10)
    np.testing.assert_array_equal(counts.word_counts, [3, 3, 3, 2, 2])
    assert counts.word_counts.sum() == counts.n_words + 2 * counts.n_sentences
    assert counts.oov_rate == 2 / 7


def test_counts_do_not_depend_on_chunks(tmp_path, monkeypatch):
    vocab = Vocabulary.from_words(["<S>", "</S>", "<UNK>", "a", "b"])
    path = write(tmp_path / "1", "a b c\n\na\n" * 7)
    whole = count_corpus([path], vocab)
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", 4)
    parts = count_corpus([path], vocab)
    np.testing.assert_array_equal(whole.word_counts, parts.word_counts)
    assert (whole.n_sentences, whole.n_blank_lines) == (parts.n_sentences, parts.n_blank_lines) == (14, 7)


@pytest.mark.parametrize("block", [3, 1 << 20])
def test_an_unknown_word_without_unk_is_named_with_its_line(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", block)
    vocab = Vocabulary.from_words(["<S>", "</S>", "a", "b"])
    known = write(tmp_path / "1", "a b\na\n")
    assert count_corpus([known], vocab).word_counts.tolist() == [2, 2, 2, 1]
    other = write(tmp_path / "2", "a b\n\nb\na c a\nd\n")
    with pytest.raises(VocabularyError, match="2: line 4: 'c' is not in the vocabulary, which has no <UNK>"):
        count_corpus([known, other], vocab)


def test_an_empty_corpus_is_refused(tmp_path):
    vocab = Vocabulary.from_words(["<S>", "</S>", "<UNK>"])
    files = [write(tmp_path / f"empty-{k}", "\n \n") for k in range(5)]
    with pytest.raises(DataError, match=r"no words in .*empty-0.* and 2 more: the corpus is empty"):
        count_corpus(files, vocab)


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_nul_characters_are_counted_and_located(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", block)
    vocab = Vocabulary.from_words(["<S>", "</S>", "<UNK>", "a", "\0"])
    clean = write(tmp_path / "1", "a b\n" * 9)
    dirty = write(tmp_path / "2", "a b\n" * 9 + "\n\0 a\0\n" + "a b\n" * 9 + "\0")
    counts = count_corpus([clean], vocab)
    assert (counts.n_nul, counts.first_nul) == (0, None)
    counts = count_corpus([clean, dirty, dirty], vocab)
    assert (counts.n_nul, counts.first_nul) == (6, (dirty, 11))
    assert counts.word_counts.tolist() == [49, 49, 47, 45, 4]
