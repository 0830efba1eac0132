"""Files of other programs: each is told by name, with what to do."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import tarfile

import pytest

from bilm.errors import WeightsError
from bilm.io.foreign import explained, what_it_is
from tests.distributed import OPTIONS, VOCABULARY, WEIGHTS, write_folder, write_zip

ALLENNLP_CONFIG = {
    "dataset_reader": {"type": "sst_tokens"},
    "model": {
        "text_field_embedder": {
            "token_embedders": {
                "elmo": {
                    "type": "elmo_token_embedder",
                    "options_file": "https://example.org/elmo_options.json",
                    "weight_file": "https://example.org/elmo_weights.hdf5",
                }
            }
        }
    },
    "trainer": {"num_epochs": 3},
}
ALLENNLP = "an AllenNLP archive, whose weights are PyTorch's"
PYTORCH = "a PyTorch file, which bilm does not read"


def tar(names, compress=True) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz" if compress else "w") as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["config.json", "weights.th", "vocabulary"], ALLENNLP),
        (["config.json", "encoder.pkl", "token_embedder.pkl", "char.dic"], "a model of ELMoForManyLangs"),
        (["saved_model.pb", "tfhub_module.pb"], "a module of TF-Hub"),
        (["saved_model.pb"], "a TensorFlow SavedModel"),
        (["config.json", "pytorch_model.bin", "vocab.txt"], "a transformer"),
        (["config.json", "model.safetensors"], "a transformer"),
        (["config.json", "tf_model.h5"], "a transformer"),
        (["best.th"], PYTORCH),
        (["metadata.json", "config.json", "model.weights.h5"], "a Keras model"),
    ],
)
def test_folders_and_archives(names, what, tmp_path):
    files = dict.fromkeys(names, b"{}")
    (tmp_path / "model.tar.gz").write_bytes(tar(names))
    (tmp_path / "model.tar").write_bytes(tar(names, compress=False))
    for path in (
        write_folder(tmp_path / "folder", files),
        write_zip(tmp_path / "x.zip", {f"in/{name}": data for name, data in files.items()}),
        tmp_path / "model.tar.gz",
        tmp_path / "model.tar",
    ):
        found = what_it_is(path)
        assert found is not None and found.startswith(what), path
        assert "; " in found, "what to do"


class Evil:
    """What would be noticed if it were unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (pickle.dumps(Evil(), protocol=2), "a Python pickle, as PyTorch's weights are"),
        (pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2), "a Python pickle"),
        (struct.pack("<Q", 20) + b'{"a": {"dtype": 1}}  ', "a file of safetensors, usually of a transformer"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS"),
        (b"<!DOCTYPE html>\n<html>", "a web page; download"),
        (b" <html>", "a web page"),
        (gzip.compress(b"text"), "compressed with gzip; decompress it"),
        (tar(["a"]), "a tar archive; unpack it and give the folder"),
        (tar(["options.json", "model.hdf5"]), "a tar archive; unpack it and give the folder"),
        (json.dumps(ALLENNLP_CONFIG).encode(), "the configuration of an AllenNLP model"),
        (b'{"model_type": "bert", "x": 1}', "the configuration of a transformer (bert)"),
        (b'{"token_embedder": {}, "encoder": {}}', "the configuration of a model of ELMoForManyLangs"),
    ],
)
def test_files(data, what, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(data)
    found = what_it_is(path)
    assert found is not None and found.startswith(what)


def test_pytorch_archives(tmp_path):
    path = write_zip(tmp_path / "model.pt", {"archive/data.pkl": b"", "archive/version": b"3"})
    assert (what_it_is(path) or "").startswith(PYTORCH)
    path.write_bytes(tar(["sys_info", "pickle", "storages", "tensors"], compress=False))
    assert (what_it_is(path) or "").startswith(PYTORCH)


def test_allennlp_says_which_elmo_it_has(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(ALLENNLP_CONFIG))
    found = what_it_is(tmp_path / "config.json") or ""
    assert (
        "options_file https://example.org/elmo_options.json; weight_file https://example.org/elmo_w" in found
    )
    (tmp_path / "config.json").write_text('{"trainer": {}}')
    assert (what_it_is(tmp_path / "config.json") or "").endswith("it names no ELMo")


@pytest.mark.parametrize("path", [OPTIONS, WEIGHTS, VOCABULARY, OPTIONS.parent, OPTIONS.parent / "none"])
def test_what_is_not_foreign(path):
    assert what_it_is(path) is None


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\x80", b"PK\x03\x04", b"\x1f\x8b", b"\x1f\x8b" * 500, b"[1]", b'{"a":']
)
def test_what_cannot_be_known(data, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(data)
    assert what_it_is(path) is None


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert what_it_is(tmp_path / "pipe") is None


def test_a_tar_bomb_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "bomb.tar.gz"
    with gzip.open(path, "wb") as file:
        member = tarfile.TarInfo("big")
        member.size = 1 << 27
        file.write(member.tobuf())
        for _ in range(1 << 7):
            file.write(bytes(1 << 20))
    assert what_it_is(path) == "a tar archive; unpack it and give the folder"


def test_the_error_is_explained(tmp_path):
    path = tmp_path / "weights.th"
    path.write_bytes(pickle.dumps(1, protocol=2))
    with pytest.raises(WeightsError, match=r"weights.th: is a Python pickle"), explained(path, WeightsError):
        raise WeightsError("file signature not found")
    with pytest.raises(WeightsError, match="^damaged$"), explained(WEIGHTS, WeightsError):
        raise WeightsError("damaged")
