"""ZIP archives: what is read of them, and what is refused."""

import struct
import zipfile

import pytest

from bilm.errors import DataError
from bilm.io.zip_archive import ZipArchive
from tests.distributed import write_zip


def refused(path, name="a"):
    with pytest.raises(DataError) as caught:
        ZipArchive(path).read(name)
    text = str(caught.value)
    assert text.startswith(str(path)) and "\n" not in text
    return text.removeprefix(str(path))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_read(method, tmp_path):
    archive = ZipArchive(
        write_zip(tmp_path / "x.zip", {"a": b"one", "in/b": b"two" * 1000, "in/": b""}, method)
    )
    assert archive.sizes == {"a": 3, "in/b": 3000}
    assert archive.read("in/b") == b"two" * 1000


@pytest.mark.parametrize("name", ["../a", "in/../../a", "/a", "C:/a"])
def test_members_outside(name, tmp_path):
    path = write_zip(tmp_path / "x.zip", {"a": b"one", "b": b"two"})
    path.write_bytes(write_zip(tmp_path / "y.zip", {"a": b"one", name: b"two"}).read_bytes())
    assert "lies outside of the archive; do not use it" in refused(path)


def test_a_bomb(tmp_path):
    path = write_zip(tmp_path / "x.zip", {"a": bytes(70 << 20)})
    assert "bytes expand to 73,400,320; this is not a model" in refused(path)


def test_a_size_that_is_not_true(tmp_path):
    path = write_zip(tmp_path / "x.zip", {"a": bytes(5000)})
    data = path.read_bytes()
    for claimed in (5001, 4999, 1 << 31):
        path.write_bytes(data.replace(struct.pack("<L", 5000), struct.pack("<L", claimed)))
        assert refused(path)


def test_members_that_are_not_read(tmp_path):
    path = write_zip(tmp_path / "x.zip", {"a": b"one"}, zipfile.ZIP_BZIP2)
    assert "is encrypted, or not compressed with deflate" in refused(path)
    path = write_zip(tmp_path / "encrypted.zip", {"a": b"one"})
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    assert "is encrypted" in refused(path)
    with (
        zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive,
        pytest.warns(UserWarning, match="Duplicate"),
    ):
        archive.writestr("a", b"one")
        archive.writestr("a", b"two")
    assert "several members of the same name" in refused(tmp_path / "twice.zip")
