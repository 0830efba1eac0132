import errno
import gzip
import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from bilm.data.corpus import find_files
from bilm.errors import DataError
from bilm.io import shards as stdin_module
from bilm.io.lines import read_lines
from bilm.io.shards import read_shard, same_shards, spooled
from tests.corpora import pipe, write
from tests.helpers import run


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_standard_input_is_a_file_for_a_while(directory, tmp_path, monkeypatch, compress):
    monkeypatch.setattr(stdin_module, "_BLOCK_BYTES", 3)
    other = write(tmp_path / "other", "x")
    with spooled([other, Path("-")], io.BytesIO(compress(b"a b\nc\n"))) as patterns:
        files = find_files(patterns)
        assert files[0] == other
        assert [list(read_lines(files[1])) for _ in range(2)] == [["a b", "c"]] * 2
        assert directory in files[1].parents
    assert list(directory.iterdir()) == []


def test_nothing_is_read_without_a_dash(directory):
    stream = io.BytesIO(b"a")
    with spooled(["./-", "a*"], stream) as patterns:
        assert patterns == ("./-", "a*")
    assert stream.read() == b"a"


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="the system has no names for open files")
def test_what_a_shell_substitutes_is_read_as_often_as_needed(directory, tmp_path):
    name = pipe(gzip.compress(b"a b\nc\n"))
    with spooled([tmp_path, name, name], io.BytesIO()) as patterns:
        assert patterns[0] == tmp_path and patterns[1] == patterns[2]
        for _ in range(2):
            assert list(read_lines(patterns[1])) == ["a b", "c"]
    assert list(directory.iterdir()) == []
    name = pipe(b"a\n\xff\n")
    with (
        pytest.raises(DataError, match=f"^{name}: line 2: not UTF-8"),
        spooled([name], io.BytesIO()) as (path,),
    ):
        list(read_lines(path))
    with pytest.raises(DataError, match="/dev/null is empty"), spooled(["/dev/null"], io.BytesIO()):
        pass


def test_a_named_pipe_is_read_as_often_as_needed(directory, tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("a b\n",))
    writer.start()
    with spooled([Path("../pipe")], io.BytesIO()) as (path,):
        assert directory in path.parents and str(path).endswith(str(tmp_path / "pipe"))
        assert [list(read_lines(path)) for _ in range(2)] == [["a b"]] * 2
    writer.join()
    assert list(directory.iterdir()) == [] and (tmp_path / "pipe").exists()


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="the system has no names for open files")
def test_commands_take_what_a_shell_substitutes(tmp_path):
    text = pipe(b"a b a\n")
    run("vocab", "build", "--train-prefix", text, "--outfile", tmp_path / "vocab")
    assert (tmp_path / "vocab").read_text().split() == ["<S>", "</S>", "<UNK>", "a", "b"]
    vocabulary = pipe((tmp_path / "vocab").read_bytes())
    checked = run("vocab", "check", vocabulary, "--train-prefix", pipe(b"a b c\n"))
    assert "1 of 3 words of the corpus are out of vocabulary" in checked


def test_errors_about_the_content_call_it_standard_input(directory):
    with (
        pytest.raises(DataError, match="^standard input: line 2: not UTF-8"),
        spooled(["-"], io.BytesIO(b"a\n\xff\n")) as (path,),
    ):
        list(read_lines(path))
    assert list(directory.iterdir()) == []


def test_input_that_cannot_be_read_or_kept(directory, monkeypatch):
    def enter(patterns=("-",), stream=None):
        with spooled(patterns, stream or io.BytesIO(b"a\n")):
            pass

    class Failing(io.BytesIO):
        def read(self, size=-1):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(DataError, match=r"standard input \(-\) was given 2 times"):
        enter(["-", "a", "-"])
    with pytest.raises(DataError, match="standard input is empty"):
        enter(stream=io.BytesIO())
    with pytest.raises(DataError, match="standard input: Input/output error"):
        enter(stream=Failing(b"a"))
    assert list(directory.iterdir()) == []
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, limits[1]))
    try:
        with pytest.raises(DataError, match="cannot be kept in .*: File too large; set TMPDIR"):
            enter()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(directory.iterdir()) == []
    monkeypatch.setattr(tempfile, "tempdir", str(directory / "gone"))
    with pytest.raises(DataError, match="cannot be kept in a temporary file: No such file"):
        enter()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system has no names for open files")
def test_a_killed_process_leaves_no_text(directory):
    code = """
import io, os, signal
from bilm.io.shards import read_shard, same_shards, spooled
from bilm.io.lines import read_lines
with spooled(["-"], io.BytesIO(b"a b\\n")) as (path,):
    print(list(read_lines(path)), path.stat().st_size, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "['a b'] 4\n"), done.stderr
    assert [path for path in directory.rglob("*") if path.is_file()] == []


def test_standard_input_that_changed_is_called_by_its_name():
    with spooled(["-"], io.BytesIO(b"a b\n")) as (path,):
        before = [read_shard(path)]
    for text, problem in ((b"a c\n", "content"), (b"a\n", "4 bytes before, 2 now")):
        with spooled(["-"], io.BytesIO(text)) as (path,), pytest.raises(DataError) as caught:
            same_shards(before, [path])
        assert str(caught.value).startswith("standard input: the file has changed since it was counted: ")
        assert str(caught.value).endswith(problem)
