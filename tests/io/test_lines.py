"""Lines of texts: compressed, damaged, from pipes, changed meanwhile."""

import bz2
import gzip
import io
import itertools
import lzma
import os
import shutil
import signal
import sys
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bilm.data.corpus import count_corpus
from bilm.errors import DataError
from bilm.io import lines as text_module
from bilm.io import shards as shards_module
from bilm.io.lines import lines_of, read_lines, read_stream_lines, text_blocks
from bilm.io.shards import input_files, same_shards
from bilm.vocabulary.vocabulary import Vocabulary
from tests.corpora import WORDS, pipe, write
from tests.helpers import largest_file, python

TEXT = "the cat sat\n\n雪 Zoë  sat\n"


def zstd(data):
    return pytest.importorskip("zstandard").ZstdCompressor(write_checksum=True).compress(data)


every_compression = pytest.mark.parametrize("compress", [gzip.compress, lzma.compress, bz2.compress, zstd])
small_blocks = pytest.mark.parametrize("block", [3, 1 << 20])


@example("a\r\nb\r", 2)
@given(st.text(st.sampled_from("ab \t\n\r\x85\x0b\u2028é雪😀\ufeff"), max_size=40), st.integers(1, 9))
def test_lines_match_text_mode(tmp_path_factory, text, block):
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
    assert line.split() == ["a"] * len(inside)
    counts = count_corpus([path], Vocabulary.from_words(["<S>", "</S>", "<UNK>", "a"]))
    assert (counts.n_sentences, counts.n_words, counts.n_oov) == (4, len(inside) + 3, 3)


# --- compression ----------------------------------------------------------------------------------------


@every_compression
def test_members_are_joined(tmp_path, compress):
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


def test_damaged_open_file_is_told(tmp_path):
    for library in (gzip, lzma):
        data = library.compress(b"a b\n")
        path = write(tmp_path / "text", data[:10] + b"\xff" + data[11:])
        with library.open(path) as file, pytest.raises(DataError, match="the compressed file is truncated"):
            list(lines_of(file))


@pytest.mark.parametrize("ending", ["gz", "xz", "bz2", "zst"])
def test_empty_gz_is_refused(tmp_path, ending):
    with pytest.raises(
        DataError, match=f"a.{ending}: the compressed file is truncated or corrupt .it is empty"
    ):
        list(read_lines(write(tmp_path / f"a.{ending}", b"")))
    assert list(read_lines(write(tmp_path / "a.txt", b""))) == []


def test_xz_padding_is_skipped(tmp_path):
    first, second = lzma.compress(b"a\n"), lzma.compress(b"b\n")
    for data in (first + b"\0" * 8 + second + b"\0" * 4, first + b"\0" * 4000 + second):
        assert list(read_lines(write(tmp_path / "text", data))) == ["a", "b"]


def peak_of(read):
    tracemalloc.start()
    read()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(DataError, match="needs a package: pip install zstandard"):
        list(read_lines(write(tmp_path / "a", b"\x28\xb5\x2f\xfd")))


def test_zstandard_expands_in_pieces(tmp_path):
    """Frames of 8 kB for 256 MB, which come a little at a time."""
    path = write(tmp_path / "text", zstd(b"\n" * (1 << 28)))

    def read():
        assert sum(map(len, text_blocks(path))) == 1 << 28

    assert peak_of(read) < 1 << 27


def test_endless_line_is_refused(tmp_path):
    path = write(tmp_path / "bomb", gzip.compress(b"a\n" + b"x" * (100 << 20), 1))

    def read():
        with pytest.raises(DataError, match="bomb: line 2: the line has more than 16 MiB"):
            list(read_lines(path))

    assert peak_of(read) < 1 << 26


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress, bz2.compress, zstd])
def test_streams_match_files(tmp_path, compress):
    source = io.BytesIO(compress(TEXT.encode()))
    assert list(read_stream_lines(source, "standard input")) == TEXT.splitlines()
    assert list(read_lines(write(tmp_path / "text.txt", compress(TEXT.encode())))) == TEXT.splitlines()
    assert not source.closed
    damaged = io.BytesIO(compress(b"a\n" * 99)[:-3] + b"\xff")
    with pytest.raises(DataError, match="^standard input: "):
        list(read_stream_lines(damaged, "standard input"))


def test_stream_lines_are_not_held_back():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", 0) as sink:
        lines = read_stream_lines(stream, "standard input")
        sink.write(b"a\nand")
        assert next(lines) == "a"
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
def test_binary_is_refused_with_its_line(tmp_path, monkeypatch, data, message, block):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", block)
    path = write(tmp_path / "bad.txt", data)
    with pytest.raises(DataError, match=f"bad.txt: {message}"):
        list(read_lines(path))


@small_blocks
def test_stray_nul_is_text(tmp_path, monkeypatch, block):
    monkeypatch.setattr(text_module, "_BLOCK_BYTES", block)
    lines = [
        "a line without",
        *["ten characters"] * 20,
        "E \0 P\0 \0",
        "x" * (3_000_000 if block > 5 else 99),
    ]
    assert list(read_lines(write(tmp_path / "text", "\n".join(lines)))) == lines
    assert list(read_lines(write(tmp_path / "mark", b"\xef\xbb\xbf"))) == []


# --- files that are read more than once, and pipes ------------------------------------------------


def counted(*paths):
    return count_corpus(paths, WORDS).shards


@pytest.mark.parametrize(
    ("text", "problem"), [(b"a b\n", "6 bytes before, 4 now"), (b"a c\nb\n", "but different content")]
)
def test_replaced_file_is_refused(tmp_path, text, problem):
    path = write(tmp_path / "text", b"a b\nc\n")
    (shard,) = counted(path)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    write(path, text)
    os.utime(path, ns=times)
    with pytest.raises(DataError, match=f"text: differs from the file that was counted: .*{problem}"):
        list(read_lines(shard))


def test_growing_file_is_refused(tmp_path):
    """At the next block, not only at its end."""
    path = write(tmp_path / "text", "a\n" * (1 << 21))
    (shard,) = counted(path)
    lines = read_lines(shard)
    next(lines)
    with path.open("a") as file:
        file.write("b\n")
    with pytest.raises(DataError, match="4,194,304 bytes before, 4,194,306 now"):
        list(itertools.islice(lines, 1 << 20))
    path.unlink()
    with pytest.raises(DataError, match="text: No such file"):
        list(read_lines(shard))


def test_same_shards_are_found_elsewhere(tmp_path, monkeypatch):
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
    files = [write(tmp_path / "here" / name, text) for name, text in (("a", "a b\n"), ("b", "b a\n"))]
    before = counted(*files)
    with monkeypatch.context() as patch:
        patch.setattr(shards_module, "read_shard", pytest.fail)
        assert same_shards(before, files) == before, "of the same place, size and time, and not read"
    moved = [Path(shutil.copy(path, tmp_path / "there")) for path in files]
    assert [shard.checksum for shard in same_shards(before, moved)] == [shard.checksum for shard in before]
    with pytest.raises(DataError, match="b: differs from the file that was counted"):
        same_shards(before, moved[::-1])
    with pytest.raises(DataError, match="2 files before, 1 now"):
        same_shards(before, moved[:1])
    write(moved[1], "b b\n")
    with pytest.raises(DataError, match="there/b: .*4 bytes as before"):
        same_shards(before, moved)
    write(files[1], "b b\n")
    os.utime(files[1], ns=(1, 1))
    with pytest.raises(DataError, match="here/b: .*4 bytes as before"):
        same_shards(before, files)
    moved[1].unlink()
    with pytest.raises(DataError, match="there/b: No such file"):
        same_shards(before, moved)


# --- pipes ----------------------------------------------------------------------------------------------

has_names_of_open_files = pytest.mark.skipif(
    not Path("/proc/self/fd").exists(), reason="the system has no names for open files"
)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """The directory of temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_standard_input_is_copied(directory, tmp_path, monkeypatch, compress):
    monkeypatch.setattr(shards_module, "_BLOCK_BYTES", 3)
    other = write(tmp_path / "other", "x")
    with input_files([str(other), "-"], stream=io.BytesIO(compress(b"a b\nc\n"))) as files:
        assert files[0] == other and directory in files[1].parents
        assert [list(read_lines(files[1])) for _ in range(2)] == [["a b", "c"]] * 2
    assert list(directory.iterdir()) == []
    stream = io.BytesIO(b"a")
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "-", "x")
    with input_files(["./-", "o*"], stream=stream) as files:
        assert files == (Path("-"), Path("other")) and stream.read() == b"a", "nothing is read without a dash"


@has_names_of_open_files
def test_pipe_is_read_twice(directory, tmp_path):
    name = pipe(gzip.compress(b"a b\nc\n"))
    with input_files([name, name]) as (path,):
        assert [list(read_lines(path)) for _ in range(2)] == [["a b", "c"]] * 2
    assert list(directory.iterdir()) == []
    with pytest.raises(DataError, match="null: is a device, a pipe or a socket, expected a file"):
        input_files(["/dev/null"]).__enter__()


@has_names_of_open_files
def test_errors_name_the_users_input(directory):
    name = pipe(b"a\n\xff\n")
    for pattern, label in (("-", "standard input"), (name, name)):
        with input_files([pattern], stream=io.BytesIO(b"a\n\xff\n")) as (path,):
            with pytest.raises(DataError, match=f"^{label}: line 2: not UTF-8"):
                list(read_lines(path))


def test_empty_or_large_input_is_refused(directory):
    def refused(message, patterns=("-",), text=b"a\n"):
        with pytest.raises(DataError, match=message), input_files(patterns, stream=io.BytesIO(text)):
            pass

    refused(r"standard input \(-\) was given 2 times", ["-", "a", "-"])
    refused("standard input is empty", text=b"")
    with largest_file(1):
        refused("cannot be kept in .*: File too large; set TMPDIR")
    assert list(directory.iterdir()) == []


@has_names_of_open_files
def test_killed_process_leaves_no_copy(directory):
    code = """
import io, os, signal
from bilm.io.shards import input_files
from bilm.io.lines import read_lines
with input_files(["-"], stream=io.BytesIO(b"a b\\n")) as (path,):
    print(list(read_lines(path)), path.stat().st_size, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = python("-c", code)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "['a b'] 4\n"), done.stderr
    assert [path for path in directory.rglob("*") if path.is_file()] == []
