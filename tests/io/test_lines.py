import gzip
import os
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.data.corpus import count_corpus, read_sentences
from bilm.errors import DataError
from bilm.io import lines as text_module
from bilm.io.lines import read_lines, read_stream_lines
from bilm.vocabulary.vocabulary import Vocabulary
from tests.corpora import write


@settings(deadline=None)
@given(st.text(st.sampled_from("ab \t\n\r\x85\x0b\u2028é雪😀\ufeff"), max_size=40), st.integers(1, 9))
def test_lines_are_those_of_text_mode_whatever_the_block(tmp_path_factory, text, block):
    path = write(tmp_path_factory.mktemp("lines") / "text", text)
    with open(path, encoding="utf-8-sig") as file:
        expected = [line.removesuffix("\n") for line in file]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "_BLOCK_BYTES", block)
        assert list(read_lines(path)) == expected


def test_white_space_is_that_of_python():
    assert set(text_module.WHITE_SPACE) == {c for c in map(chr, range(sys.maxunicode + 1)) if c.isspace()}


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_only_line_ends_end_a_line(tmp_path, compress):
    """All readers agree: of files, of streams, of vocabularies, and the counting."""
    inside = [c for c in text_module.WHITE_SPACE if c not in "\r\n"]
    line = "".join(f"a{c}" for c in inside)
    path = write(tmp_path / "text", compress(f"{line}\nb\rc\r\nd".encode()))
    assert list(read_lines(path)) == [line, "b", "c", "d"]
    with path.open("rb") as stream:
        assert list(read_stream_lines(stream, "text")) == [line, "b", "c", "d"]
    assert list(read_sentences(path)) == [["a"] * len(inside), ["b"], ["c"], ["d"]]
    counts = count_corpus([path], Vocabulary.from_words(["<S>", "</S>", "<UNK>", "a"]))
    assert (counts.n_sentences, counts.n_words, counts.n_oov) == (4, len(inside) + 3, 3)


def test_empty_file(tmp_path):
    assert list(read_lines(write(tmp_path / "text", ""))) == []
    assert list(read_lines(write(tmp_path / "mark", b"\xef\xbb\xbf"))) == []


def test_a_very_long_line(tmp_path):
    word = "x" * 3_000_000
    assert list(read_lines(write(tmp_path / "text", f"a\n{word}\nb\n"))) == ["a", word, "b"]


@pytest.mark.parametrize(
    ("character", "message"), [(b"x", "line 2: the line has more than 16 MiB"), (b"\0", "line 2: .* are NUL")]
)
def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, character, message):
    with gzip.open(tmp_path / "bomb", "wb", compresslevel=1) as file:
        file.write(b"a\n")
        for _ in range(200):
            file.write(character * (1 << 20))
    tracemalloc.start()
    with pytest.raises(DataError, match=f"bomb: {message}"):
        list(read_lines(tmp_path / "bomb"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 26


@pytest.mark.parametrize("block", [3, 1 << 20])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\r\nb\rc\n\xff\n", r"line 4: not UTF-8 \(byte 0xff: invalid start byte\)"),
        (b"a\n\xc3", r"line 2: not UTF-8 \(byte 0xc3: unexpected end of data\)"),
        ("a\nb\né".encode("latin-1"), "line 3: not UTF-8"),
        (b"a\nb\0c\n", "line 2: 17% of the bytes are NUL.*; .* remove NUL bytes with tr"),
        ("雪雪".encode("utf-16"), r"line 1: not UTF-8 \(byte 0xff: .*\); convert it with iconv"),
        (
            "a\n".encode("utf-16-le"),
            "line 1: .*% of the bytes are NUL.*; if it is UTF-16 or UTF-32, convert it",
        ),
    ],
)
def test_what_is_not_text_is_refused_with_its_line(tmp_path, monkeypatch, data, message, block):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", block)
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


@pytest.mark.parametrize("block", [5, 1 << 20])
def test_stray_nul_bytes_are_characters(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", block)
    lines = ["a line without", *["ten characters"] * 20, "E \0 P\0 \0", "ten characters"]
    assert list(read_lines(write(tmp_path / "text", "\n".join(lines)))) == lines


def test_a_file_full_of_nul_bytes_is_refused_where_that_begins(tmp_path):
    for encoding in ("utf-16-le", "utf-16-be", "utf-32-le"):
        wide = "".join(f"{k} a line of text\n" for k in range(200)).encode(encoding)
        path = write(tmp_path / "text", b"plain\n" * 50 + wide)
        with pytest.raises(DataError, match="text: line 51: .*% of the bytes are NUL"):
            list(read_lines(path))
    path = write(tmp_path / "text", b"plain\n" * 50 + "Слово и дело\n".encode("utf-16-le") * 50)
    with pytest.raises(DataError, match="text: line 51: "):
        list(read_lines(path))
