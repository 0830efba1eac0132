import gzip
import lzma
import os
import sys

import pytest

from bilm.errors import DataError
from bilm.text import read_lines
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


def test_a_name_means_nothing(tmp_path):
    assert list(read_lines(write(tmp_path / "plain.gz", "a b\n"))) == ["a b"]


def test_without_the_zstandard_package(tmp_path, monkeypatch):
    for module in ("compression", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)
    path = write(tmp_path / "text", b"\x28\xb5\x2f\xfd....")
    with pytest.raises(DataError, match=r"text: .* pip install bilm\[zstd\]"):
        list(read_lines(path))
