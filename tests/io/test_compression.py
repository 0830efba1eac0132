import gzip
import io
import lzma
import os
import sys
import tracemalloc

import pytest

from bilm.errors import DataError
from bilm.io.compression import opened
from bilm.io.lines import read_lines, read_stream_lines
from tests.corpora import write

TEXT = "the cat sat\n\n雪 Zoë  sat\n"


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


def test_several_xz_streams_are_what_xz_takes_them_for(tmp_path):
    """Zero bytes in fours may stand behind a stream, anything else that is no stream is damage."""
    first, second = lzma.compress(b"a\n"), lzma.compress(b"b\n" * 9999)
    for data in (first + second, first + b"\0" * 8 + second + b"\0" * 4, first + b"\0" * 4000):
        assert list(read_lines(write(tmp_path / "text", data)))[0] == "a"
    middle = len(second) // 2
    for behind in (
        *(second[:-8], second[:middle] + b"\xff" + second[middle + 1 :], b"\xff" + second[1:]),
        *(b"\0" * 3, b"\0" * 1023 + second, b"\0" * 4 + b"junk", b"\n"),
    ):
        path = write(tmp_path / "bad.xz", first + behind)
        with pytest.raises(DataError, match="bad.xz: the compressed file is truncated or corrupt"):
            list(read_lines(path))


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
    for module in ("compression", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
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
