import gzip
import lzma
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm import corpus
from bilm.corpus import count_corpus, find_files, read_lines, read_sentences
from bilm.errors import DataError
from bilm.vocab import Vocabulary

TEXT = "the cat sat\n\n雪 Zoë  sat\n"


def write(path, data):
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def zstd(data):
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, zstd])
def test_compression_is_recognised_by_content(tmp_path, compress):
    path = write(tmp_path / "text.txt", compress(TEXT.encode()))
    assert list(read_lines(path)) == TEXT.splitlines()


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, zstd])
def test_several_compressed_members_are_one_text(tmp_path, compress):
    path = write(tmp_path / "text", compress(b"a\nb") + compress(b"c\nd\n"))
    assert list(read_lines(path)) == ["a", "bc", "d"]


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, zstd])
@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:20] + b"\x99" * 9 + data[29:]])
def test_damaged_compression_names_the_file(tmp_path, compress, damage):
    path = write(tmp_path / "bad.gz", damage(compress(os.urandom(5000).hex().encode())))
    with pytest.raises(DataError, match="bad.gz: the compressed file is truncated or corrupt"):
        list(read_lines(path))


def test_a_name_means_nothing(tmp_path):
    assert list(read_lines(write(tmp_path / "plain.gz", "a b\n"))) == ["a b"]


@settings(deadline=None)
@given(st.text(st.sampled_from("ab \t\n\r\x85\x0b\u2028é雪😀\ufeff"), max_size=40), st.integers(1, 9))
def test_lines_are_those_of_text_mode_whatever_the_block(tmp_path_factory, text, block):
    path = write(tmp_path_factory.mktemp("lines") / "text", text)
    with open(path, encoding="utf-8-sig") as file:
        expected = [line.removesuffix("\n") for line in file]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpus, "_BLOCK_BYTES", block)
        assert list(read_lines(path)) == expected
        assert list(read_sentences(path, keep_blank=True)) == [line.split() for line in expected]


def test_blank_lines(tmp_path):
    path = write(tmp_path / "text", "a\n\n \t\r\nb c")
    assert list(read_sentences(path)) == [["a"], ["b", "c"]]
    assert list(read_sentences(path, keep_blank=True)) == [["a"], [], [], ["b", "c"]]


def test_empty_file(tmp_path):
    assert list(read_lines(write(tmp_path / "text", ""))) == []
    assert list(read_lines(write(tmp_path / "mark", b"\xef\xbb\xbf"))) == []


def test_a_very_long_line(tmp_path):
    word = "x" * 3_000_000
    assert list(read_lines(write(tmp_path / "text", f"a\n{word}\nb\n"))) == ["a", word, "b"]


@pytest.mark.parametrize("block", [3, 1 << 20])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\r\nb\rc\n\xff\n", r"line 4: not UTF-8 \(byte 0xff: invalid start byte\)"),
        (b"a\n\xc3", r"line 2: not UTF-8 \(byte 0xc3: unexpected end of data\)"),
        ("a\nb\né".encode("latin-1"), "line 3: not UTF-8"),
        (b"a\nb\0c\n", "line 2: a NUL byte"),
        ("a\n".encode("utf-16"), "line 1: the file is UTF-16"),
        (b"\xfe\xff" + "a\n".encode("utf-16-be"), "line 1: the file is UTF-16"),
        ("a\n".encode("utf-16-le"), "line 1: a NUL byte"),
    ],
)
def test_what_is_not_text_is_refused_with_its_line(tmp_path, monkeypatch, data, message, block):
    monkeypatch.setattr(corpus, "_BLOCK_BYTES", block)
    path = write(tmp_path / "bad.txt", data)
    with pytest.raises(DataError, match=f"bad.txt: {message}"):
        list(read_lines(path))


def test_missing_and_forbidden_files_are_data_errors(tmp_path):
    with pytest.raises(DataError, match="gone.txt: No such file"):
        list(read_lines(tmp_path / "gone.txt"))
    with pytest.raises(DataError, match="Is a directory"):
        list(read_lines(tmp_path))
    path = write(tmp_path / "secret", "a")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("the superuser may read everything")
    with pytest.raises(DataError, match="secret: Permission denied"):
        list(read_lines(path))


def test_without_the_zstandard_package(tmp_path, monkeypatch):
    for module in ("compression", "zstandard"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    path = write(tmp_path / "text", b"\x28\xb5\x2f\xfd....")
    with pytest.raises(DataError, match=r"text: .* pip install bilm\[zstd\]"):
        list(read_lines(path))


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
    monkeypatch.setattr(corpus, "_COUNT_WORDS", 4)
    parts = count_corpus([path], vocab)
    np.testing.assert_array_equal(whole.word_counts, parts.word_counts)
    assert (whole.n_sentences, whole.n_blank_lines) == (parts.n_sentences, parts.n_blank_lines) == (14, 7)


def test_an_empty_corpus_is_refused(tmp_path):
    vocab = Vocabulary.from_words(["<S>", "</S>", "<UNK>"])
    files = [write(tmp_path / f"empty-{k}", "\n \n") for k in range(5)]
    with pytest.raises(DataError, match=r"no words in .*empty-0.* and 2 more: the corpus is empty"):
        count_corpus(files, vocab)
