import gzip
import io
import os
import resource
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from bilm.data.corpus import count_corpus, find_files
from bilm.errors import DataError
from bilm.io import shards as shards_module
from bilm.io.lines import read_lines
from bilm.io.shards import same_shards, spooled
from tests.corpora import WORDS, pipe, write
from tests.helpers import python


def counted(*paths):
    return count_corpus(paths, WORDS).shards


@pytest.mark.parametrize(
    ("text", "problem"), [(b"a b\n", "6 bytes before, 4 now"), (b"a c\nb\n", "but different content")]
)
def test_another_text_in_its_place_is_noticed(tmp_path, text, problem):
    path = write(tmp_path / "text", b"a b\nc\n")
    (shard,) = counted(path)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    write(path, text)
    os.utime(path, ns=times)
    with pytest.raises(DataError, match=f"text: the file has changed since it was counted: .*{problem}"):
        list(read_lines(shard))


def test_a_file_that_grows_or_goes_while_it_is_read(tmp_path):
    path = write(tmp_path / "text", "a\n" * (1 << 20))
    (shard,) = counted(path)
    lines = read_lines(shard)
    next(lines)
    with path.open("a") as file:
        file.write("b\n")
    with pytest.raises(DataError, match="2,097,152 bytes before, 2,097,154 now"):
        list(lines)
    path.unlink()
    with pytest.raises(DataError, match="text: No such file"):
        list(read_lines(shard))


def test_the_same_shards(tmp_path, monkeypatch):
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
    files = [write(tmp_path / "here" / name, text) for name, text in (("a", "a b\n"), ("b", "b a\n"))]
    before = counted(*files)
    with monkeypatch.context() as patch:
        patch.setattr(shards_module, "read_shard", pytest.fail)
        assert same_shards(before, files) == before, "of the same place, size and time, and not read"
    moved = [Path(shutil.copy(path, tmp_path / "there")) for path in files]
    assert [shard.checksum for shard in same_shards(before, moved)] == [shard.checksum for shard in before]
    with pytest.raises(DataError, match="another order; the first was a"):
        same_shards(before, moved[::-1])
    with pytest.raises(DataError, match="2 files before, 1 now"):
        same_shards(before, moved[:1])
    write(moved[1], "b b\n")
    with pytest.raises(DataError, match="there/b: .*4 bytes as before"):
        same_shards(before, moved)
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
def test_standard_input_is_a_file_for_a_while(directory, tmp_path, monkeypatch, compress):
    monkeypatch.setattr(shards_module, "_BLOCK_BYTES", 3)
    other = write(tmp_path / "other", "x")
    with spooled([other, Path("-")], io.BytesIO(compress(b"a b\nc\n"))) as patterns:
        files = find_files(patterns)
        assert files[0] == other and directory in files[1].parents
        assert [list(read_lines(files[1])) for _ in range(2)] == [["a b", "c"]] * 2
    assert list(directory.iterdir()) == []
    stream = io.BytesIO(b"a")
    with spooled(["./-", "a*"], stream) as patterns:
        assert patterns == ("./-", "a*") and stream.read() == b"a", "nothing is read without a dash"


@has_names_of_open_files
def test_what_a_shell_substitutes_is_read_as_often_as_needed(directory, tmp_path):
    name = pipe(gzip.compress(b"a b\nc\n"))
    with spooled([tmp_path, name, name], io.BytesIO()) as patterns:
        assert patterns[0] == tmp_path and patterns[1] == patterns[2]
        assert [list(read_lines(patterns[1])) for _ in range(2)] == [["a b", "c"]] * 2
    assert list(directory.iterdir()) == []
    with pytest.raises(DataError, match="null: is a device, a pipe or a socket; give a file"):
        spooled(["/dev/null"], io.BytesIO()).__enter__()


@has_names_of_open_files
def test_errors_name_what_the_user_gave(directory):
    name = pipe(b"a\n\xff\n")
    for pattern, given in (("-", "standard input"), (name, name)):
        with spooled([pattern], io.BytesIO(b"a\n\xff\n")) as (path,):
            with pytest.raises(DataError, match=f"^{given}: line 2: not UTF-8"):
                list(read_lines(path))


def test_input_that_cannot_be_read_or_kept(directory):
    def refused(message, patterns=("-",), text=b"a\n"):
        with pytest.raises(DataError, match=message), spooled(patterns, io.BytesIO(text)):
            pass

    refused(r"standard input \(-\) was given 2 times", ["-", "a", "-"])
    refused("standard input is empty", text=b"")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        refused("cannot be kept in .*: File too large; set TMPDIR")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(directory.iterdir()) == []


@has_names_of_open_files
def test_a_killed_process_leaves_no_text(directory):
    code = """
import io, os, signal
from bilm.io.shards import spooled
from bilm.io.lines import read_lines
with spooled(["-"], io.BytesIO(b"a b\\n")) as (path,):
    print(list(read_lines(path)), path.stat().st_size, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = python("-c", code)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "['a b'] 4\n"), done.stderr
    assert [path for path in directory.rglob("*") if path.is_file()] == []
