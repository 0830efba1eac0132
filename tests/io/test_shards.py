import gzip
import os
import shutil
from pathlib import Path

import pytest

from bilm.data.corpus import count_corpus
from bilm.errors import DataError
from bilm.io.lines import read_lines
from bilm.io.shards import Shard, read_shard, same_shards
from tests.corpora import WORDS, write


def counted(*paths):
    return count_corpus(paths, WORDS).shards


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_a_shard_is_read_as_its_file(tmp_path, compress):
    path = write(tmp_path / "text", compress(b"a b\nc\n"))
    (shard,) = counted(path)
    assert (shard.path, shard.size, shard.name) == (str(path), path.stat().st_size, "text")
    assert shard == read_shard(path)
    for _ in range(2):
        assert list(read_lines(shard)) == ["a b", "c"]
    os.utime(path, ns=(0, 0))  # another time alone means nothing
    assert list(read_lines(shard)) == ["a b", "c"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"a b\nc\na\n", "6 bytes before, 8 now"),
        (b"a b\n", "6 bytes before, 4 now"),
        (b"a c\nb\n", "6 bytes as before, but different content"),
    ],
)
def test_another_text_in_its_place_is_noticed(tmp_path, text, problem):
    path = write(tmp_path / "text", b"a b\nc\n")
    (shard,) = counted(path)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    write(path, text)
    os.utime(path, ns=times)
    with pytest.raises(DataError, match=f"text: the file has changed since it was counted: {problem}"):
        list(read_lines(shard))


def test_a_file_that_grows_or_goes_while_it_is_read(tmp_path):
    path = write(tmp_path / "text", "a\n" * (1 << 21))
    (shard,) = counted(path)
    lines = read_lines(shard)
    next(lines)
    with path.open("a") as file:
        file.write("b\n")
    with pytest.raises(DataError, match="4,194,304 bytes before, 4,194,306 now"):
        list(lines)
    path.unlink()
    with pytest.raises(DataError, match="text: No such file"):
        list(read_lines(shard))


def test_the_same_shards(tmp_path):
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
    files = [write(tmp_path / "here" / name, text) for name, text in (("a", "a b\n"), ("b", "b a\n"))]
    before = counted(*files)
    assert same_shards(before, files) == before
    moved = [Path(shutil.copy(path, tmp_path / "there")) for path in files]
    assert [shard.checksum for shard in same_shards(before, moved)] == [shard.checksum for shard in before]
    with pytest.raises(DataError, match="another order: file 1 was a, and is now b"):
        same_shards(before, moved[::-1])
    with pytest.raises(DataError, match="2 files before, 1 now"):
        same_shards(before, moved[:1])
    write(moved[1], "b b\n")
    with pytest.raises(DataError, match="there/b: .*4 bytes as before"):
        same_shards(before, moved)
    moved[1].unlink()
    with pytest.raises(DataError, match="there/b: No such file"):
        same_shards(before, moved)


def test_files_of_the_same_place_size_and_time_are_not_read(tmp_path, monkeypatch):
    path = write(tmp_path / "a", "a b\n")
    before = counted(path)

    def read(path):
        raise AssertionError(path)

    monkeypatch.setattr("bilm.io.shards.read_shard", read)
    assert same_shards(before, [path]) == before


def test_files_of_one_name_are_several(tmp_path):
    files = []
    for k in range(2):
        (tmp_path / str(k)).mkdir()
        files.append(write(tmp_path / str(k) / "text", "a\n" * (k + 1)))
    before = counted(*files)
    with pytest.raises(DataError, match="another order"):
        same_shards(before, files[::-1])


def test_a_shard_is_a_path():
    assert os.fspath(Shard("a/b", 1, 2, 3)) == "a/b"
