"""Files of other programs, told by name with what to do, and ZIP archives: what is read of them."""

import gzip
import os
import pickle
import struct
import zipfile

import pytest

from bilm.errors import WeightsError
from bilm.io.archives import ZipArchive
from bilm.io.foreign import describe_names, explained, what_it_is
from tests import helpers
from tests.distributed import OPTIONS, VOCABULARY, WEIGHTS, write_folder, write_zip

ALLENNLP = "an AllenNLP model without the biLM's options"
OTHER = "a model of another kind"
PYTORCH = "a PyTorch file; bilm reads AllenNLP's ELMo in it"


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["config.json", "weights.th", "vocabulary"], ALLENNLP),
        (["config.json", "encoder.pkl", "token_embedder.pkl", "char.dic"], OTHER),
        (["saved_model.pb", "tfhub_module.pb"], OTHER),
        (["saved_model.pb"], OTHER),
        (["config.json", "tf_model.h5"], OTHER),
        (["best.th"], PYTORCH),
        (["metadata.json", "config.json", "model.weights.h5"], OTHER),
    ],
)
def test_folders_are_described(names, what, tmp_path):
    files = dict.fromkeys(names, b"{}")
    for found in (
        what_it_is(write_folder(tmp_path / "folder", files)),
        describe_names(f"in/{name}" for name in names),
    ):
        assert found is not None and found.startswith(what)
        assert "; " in found, "what to do"


class Evil:
    """What would be noticed if it were unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("pickle", pickle.dumps(Evil(), protocol=2), "a Python pickle, which bilm does not read"),
        ("safetensors", struct.pack("<Q", 20) + b'{"a": {"dtype": 1}}  ', OTHER),
        ("lfs", b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        ("page", b"<!DOCTYPE html>\n<html>", "a web page; download"),
        ("gzip", gzip.compress(b"text", mtime=0), "compressed with gzip; decompress it"),
        ("x.tar.gz", gzip.compress(b"text", mtime=0), "a tar archive; if it contains a model, give it as"),
        ("zip", b"PK\x03\x04", "a ZIP archive; if it contains a model, give it as"),
        ("model.pt", b"PK\x03\x04", PYTORCH),
    ],
)
def test_files_are_described(name, data, what, tmp_path):
    (tmp_path / name).write_bytes(data)
    assert (what_it_is(tmp_path / name) or "").startswith(what)


@pytest.mark.parametrize("path", [OPTIONS, WEIGHTS, VOCABULARY, OPTIONS.parent, OPTIONS.parent / "none"])
def test_own_files_are_not_described(path):
    assert what_it_is(path) is None


def test_pipe_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert what_it_is(tmp_path / "pipe") is None


def test_error_is_explained(tmp_path):
    path = tmp_path / "weights.th"
    path.write_bytes(pickle.dumps(1, protocol=2))
    with pytest.raises(WeightsError, match=r"weights.th: is a Python pickle"), explained(path, WeightsError):
        raise WeightsError("file signature not found")
    with pytest.raises(WeightsError, match="^damaged$"), explained(WEIGHTS, WeightsError):
        raise WeightsError("damaged")


# --- ZIP archives ---------------------------------------------------------------------------------


def refused(path):
    return helpers.refused(lambda path: ZipArchive(path).read("a"), path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_read(method, tmp_path):
    archive = ZipArchive(
        write_zip(tmp_path / "x.zip", {"a": b"one", "in/b": b"two" * 1000, "in/": b""}, method)
    )
    assert archive.sizes == {"a": 3, "in/b": 3000}
    assert archive.read("in/b") == b"two" * 1000


def test_bomb_is_refused(tmp_path):
    path = write_zip(tmp_path / "x.zip", {"a": bytes(70 << 20)})
    assert "bytes expand to 73,400,320; this is not a model" in refused(path)
    data = bytearray(path.read_bytes())
    struct.pack_into("<L", data, data.index(b"PK\x01\x02") + 20, 70 << 20)  # as if it were not compressed
    path.write_bytes(data)
    assert "bytes expand to 73,400,320; this is not a model" in refused(path)


def test_false_size_is_refused(tmp_path):
    path = write_zip(tmp_path / "x.zip", {"a": bytes(5000)})
    data = path.read_bytes()
    for claimed in (5001, 4999, 1 << 31):
        path.write_bytes(data.replace(struct.pack("<L", 5000), struct.pack("<L", claimed)))
        assert refused(path)


def test_encrypted_member_is_refused(tmp_path):
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
