import gzip
import io
import lzma
import os
import sys
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilm.data.corpus import count_corpus, read_sentences
from bilm.errors import DataError
from bilm.io import lines as text_module
from bilm.io.lines import read_lines, read_stream_lines, text_blocks
from bilm.vocabulary.vocabulary import Vocabulary
from tests.corpora import write

TEXT = "the cat sat\n\n雪 Zoë  sat\n"


def zstd(data):
    return pytest.importorskip("zstandard").ZstdCompressor(write_checksum=True).compress(data)


every_compression = pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, zstd])
small_blocks = pytest.mark.parametrize("block", [3, 1 << 20])


@settings(deadline=None)
@given(st.text(st.sampled_from("ab \t\n\r\x85\x0b\u2028é雪😀\ufeff"), max_size=40), st.integers(1, 9))
def test_lines_are_those_of_text_mode_whatever_the_block(tmp_path_factory, text, block):
    path = write(tmp_path_factory.mktemp("lines") / "text", text)
    with open(path, encoding="utf-8-sig") as file:
        expected = [line.removesuffix("\n") for line in file]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "_BLOCK_BYTES", block)
        assert list(read_lines(path)) == expected


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_only_line_ends_end_a_line(tmp_path, compress):
    """All readers agree: of files, of streams, and the counting."""
    spaces = {c for c in map(chr, range(sys.maxunicode + 1)) if c.isspace()}
    assert set(text_module.WHITE_SPACE) == spaces
    inside = spaces - {"\r", "\n"}
    line = "".join(f"a{c}" for c in inside)
    path = write(tmp_path / "text", compress(f"{line}\nb\rc\r\nd".encode()))
    assert list(read_lines(path)) == [line, "b", "c", "d"]
    with path.open("rb") as stream:
        assert list(read_stream_lines(stream, "text")) == [line, "b", "c", "d"]
    assert list(read_sentences(path)) == [["a"] * len(inside), ["b"], ["c"], ["d"]]
    counts = count_corpus([path], Vocabulary.from_words(["<S>", "</S>", "<UNK>", "a"]))
    assert (counts.n_sentences, counts.n_words, counts.n_oov) == (4, len(inside) + 3, 3)


# --- compression ----------------------------------------------------------------------------------------


@every_compression
def test_several_compressed_members_are_one_text(tmp_path, compress):
    path = write(tmp_path / "text", compress(b"a\nb") + compress(b"c\nd\n"))
    assert list(read_lines(path)) == ["a", "bc", "d"]
    assert list(read_lines(write(tmp_path / "plain.gz", "a b\n"))) == ["a b"], "a name means nothing"


@every_compression
@pytest.mark.parametrize("first", [b"", b"a\n"], ids=["alone", "after another"])
def test_damaged_compression_names_the_file(tmp_path, compress, first):
    """The libraries' own readers take a text for ended at a later frame that is damaged."""
    frame = compress(os.urandom(5000).hex().encode())
    middle = len(frame) // 2
    damaged = {
        "cut off": frame[:-12],
        "a byte": frame[:middle] + bytes([frame[middle] ^ 0xFF]) + frame[middle + 1 :],
    }
    if first:
        damaged |= {"head": frame[:3], "first byte": b"\xff" + frame[1:], "junk": b"junk"}
    for name, data in damaged.items():
        with pytest.raises(DataError, match=f"{name}: the compressed file is truncated or corrupt"):
            list(read_lines(write(tmp_path / name, (compress(first) if first else b"") + data)))


def test_zeros_may_stand_behind_a_stream_of_xz(tmp_path):
    first, second = lzma.compress(b"a\n"), lzma.compress(b"b\n")
    for data in (first + b"\0" * 8 + second + b"\0" * 4, first + b"\0" * 4000 + second):
        assert list(read_lines(write(tmp_path / "text", data))) == ["a", "b"]


def peak_of(read):
    tracemalloc.start()
    read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_a_little_that_stands_for_very_much(tmp_path):
    """Frames of 8 kB for 256 MB, which come a little at a time."""
    path = write(tmp_path / "text", zstd(b"\n" * (1 << 28)))

    def read():
        assert sum(map(len, text_blocks(path))) == 1 << 28

    assert peak_of(read) < 1 << 27


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path):
    path = write(tmp_path / "bomb", gzip.compress(b"a\n" + b"x" * (100 << 20), 1))

    def read():
        with pytest.raises(DataError, match="bomb: line 2: the line has more than 16 MiB"):
            list(read_lines(path))

    assert peak_of(read) < 1 << 26


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, zstd])
def test_streams_are_read_as_files_are(tmp_path, compress):
    source = io.BytesIO(compress(TEXT.encode()))
    assert list(read_stream_lines(source, "standard input")) == TEXT.splitlines()
    assert list(read_lines(write(tmp_path / "text.txt", compress(TEXT.encode())))) == TEXT.splitlines()
    assert not source.closed
    damaged = io.BytesIO(compress(b"a\n" * 99)[:-3] + b"\xff")
    with pytest.raises(DataError, match="^standard input: "):
        list(read_stream_lines(damaged, "standard input"))


def test_lines_of_a_stream_come_when_they_are_there():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", 0) as sink:
        lines = read_stream_lines(stream, "standard input")
        sink.write(b"a line\nand")
        assert next(lines) == "a line"
        sink.write(b" another\n")
        assert next(lines) == "and another"


# --- what is text ---------------------------------------------------------------------------------------


@small_blocks
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a\r\nb\rc\n\xff\n", r"line 4: not UTF-8 \(byte 0xff: invalid start byte\); convert it with iconv"),
        (b"a\n\xc3", r"line 2: not UTF-8 \(byte 0xc3: unexpected end of data\)"),
        ("雪雪".encode("utf-16"), "line 1: not UTF-8"),
        (b"a\nb\0c\n", "line 2: 17% of the bytes are NUL.*; .* remove NUL bytes with tr"),
        ("a\n".encode("utf-16-le"), "line 1: .*% of the bytes are NUL.*; if it is UTF-16 or UTF-32, convert"),
    ],
)
def test_what_is_not_text_is_refused_with_its_line(tmp_path, monkeypatch, data, message, block):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", block)
    path = write(tmp_path / "bad.txt", data)
    with pytest.raises(DataError, match=f"bad.txt: {message}"):
        list(read_lines(path))


@small_blocks
def test_stray_nul_bytes_and_very_long_lines_are_text(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", block)
    lines = [
        "a line without",
        *["ten characters"] * 20,
        "E \0 P\0 \0",
        "x" * (3_000_000 if block > 5 else 99),
    ]
    assert list(read_lines(write(tmp_path / "text", "\n".join(lines)))) == lines
    assert list(read_lines(write(tmp_path / "mark", b"\xef\xbb\xbf"))) == []
