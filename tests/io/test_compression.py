import gzip
import io
import lzma
import os
import sys
import tracemalloc

import pytest

from bilm.errors import DataError
from bilm.io.lines import opened, read_lines, read_stream_lines
from tests.corpora import write

TEXT = "the cat sat\n\n雪 Zoë  sat\n"


def zstd(data):
    return pytest.importorskip("zstandard").ZstdCompressor(write_checksum=True).compress(data)


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


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, zstd])
def test_a_later_frame_is_not_left_out_when_it_is_damaged(tmp_path, compress):
    """The libraries' own readers take a text for ended there."""
    first, second = compress(b"a\n"), compress(os.urandom(5000).hex().encode())
    middle = len(second) // 2
    damaged = {
        "cut off": second[:-12],
        "cut off in its head": second[:3],
        "a byte": second[:middle] + bytes([second[middle] ^ 0xFF]) + second[middle + 1 :],
        "its first byte": b"\xff" + second[1:],
        "junk": b"junk",
    }
    for name, frame in damaged.items():
        with pytest.raises(DataError, match=f"{name}: the compressed file is truncated or corrupt"):
            list(read_lines(write(tmp_path / name, first + frame)))


def test_zeros_may_stand_behind_a_stream_of_xz(tmp_path):
    first, second = lzma.compress(b"a\n"), lzma.compress(b"b\n")
    for data in (first + b"\0" * 8 + second + b"\0" * 4, first + b"\0" * 4000 + second):
        assert list(read_lines(write(tmp_path / "text", data))) == ["a", "b"]


def test_a_little_that_stands_for_very_much(tmp_path):
    """Frames of 8 kB for 256 MB, which come a little at a time."""
    path = write(tmp_path / "text", zstd(b"\n" * (1 << 28)))
    tracemalloc.start()
    with opened(path) as content:
        n_bytes = sum(map(len, iter(lambda: content.read(1 << 20), b"")))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n_bytes == 1 << 28 and peak < 1 << 27


def test_a_name_means_nothing(tmp_path):
    assert list(read_lines(write(tmp_path / "plain.gz", "a b\n"))) == ["a b"]


def test_without_the_zstandard_package(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = write(tmp_path / "text", b"\x28\xb5\x2f\xfd....")
    with pytest.raises(DataError, match=r"text: .* pip install zstandard"):
        list(read_lines(path))


class Pipe(io.RawIOBase):
    """Bytes that come a few at a time and only once."""

    def __init__(self, data):
        self.data = data

    def readable(self):
        return True

    def readinto(self, buffer):
        taken, self.data = self.data[:5], self.data[5:]
        buffer[: len(taken)] = taken
        return len(taken)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, zstd])
@pytest.mark.parametrize("stream", [io.BytesIO, Pipe, lambda data: io.BufferedReader(Pipe(data))])
def test_streams_are_read_as_files_are(compress, stream):
    source = stream(compress(TEXT.encode()))
    assert list(read_stream_lines(source, "standard input")) == TEXT.splitlines()
    assert not source.closed
    damaged = stream(compress(b"a\n" * 99)[:-3] + b"\xff")
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
