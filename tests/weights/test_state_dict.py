"""AllenNLP's models as weights: the layout of their state dicts, and what is refused of a PyTorch file."""

import io
import json
import pickle
import sys
import tarfile
import zipfile
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

import bilm
from bilm.errors import BilmError, WeightsError
from bilm.run_directory.model_source import ModelArguments
from bilm.weights.distribution import find_distribution, find_weights
from bilm.weights.hdf5_file import read_hdf5
from tests.allennlp import ARRAYS, NAMES, START, saved, state_dict, write_tar
from tests.distributed import OPTIONS, WEIGHTS, write_folder, write_zip
from tests.helpers import FILES, run
from tests.io.test_foreign import Evil

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")  # whose import takes long

URL = "https://example.org/elmo_options.json"
CONFIG = json.dumps({"model": {"token_embedders": {"elmo": {"options_file": URL}}}}).encode()


@pytest.fixture(scope="module")
def model_tar(tmp_path_factory):
    files = {"config.json": CONFIG, "weights.th": saved(state_dict()), "vocabulary/tokens.txt": b"a\n"}
    return write_tar(tmp_path_factory.mktemp("allennlp") / "model.tar.gz", files)


def assert_is_the_model(found):
    for name in NAMES:
        np.testing.assert_allclose(found[name.own], ARRAYS[name.own], rtol=0, atol=2e-7, err_msg=name.own)
        if not name.hdf5.endswith("/B"):  # where AllenNLP's 1 was added and subtracted
            np.testing.assert_array_equal(found[name.own], ARRAYS[name.own], err_msg=name.own)
    assert len(found) == len(NAMES) == 31


@pytest.mark.parametrize("start", [START, "module." + START, "_elmo_lstm.", ""])
@pytest.mark.parametrize("as_zip", [True, False], ids=["zip", "before 1.6"])
def test_state_dict_has_the_arrays(start, as_zip, tmp_path):
    path = tmp_path / "best.th"
    path.write_bytes(saved(state_dict(start), _use_new_zipfile_serialization=as_zip))
    assert_is_the_model(find_weights(path).read(NAMES))


def test_one_model_under_two_names_is_read(tmp_path):
    tensors = state_dict()
    again = {f"other.{name.removeprefix(START)}": tensor for name, tensor in tensors.items()}
    (tmp_path / "best.th").write_bytes(saved(tensors | again))
    assert_is_the_model(find_weights(tmp_path / "best.th").read(NAMES))


def test_archive_and_folder_are_models(model_tar, tmp_path):
    assert_is_the_model(find_weights(model_tar).read(NAMES))
    files = {"config.json": CONFIG, "best.th": saved(state_dict()), "model_state_epoch_1.th": b"x"}
    folder = write_folder(tmp_path / "folder", files | {"options.json": OPTIONS.read_bytes()})
    (folder / "model.tgz").write_bytes(model_tar.read_bytes())
    in_tar = {"in/options.json": OPTIONS.read_bytes(), "in/w.hdf5": WEIGHTS.read_bytes()}
    tar = write_tar(tmp_path / "x", in_tar, "w")  # known by its content
    files = {"weights.th": saved(state_dict()), "fta/model.elmo.weight_file": b"of before it was fine-tuned"}
    files |= {"fta/model.elmo.options_file": OPTIONS.read_bytes(), "best.th": b"of an earlier epoch"}
    whole = write_tar(tmp_path / "whole.tar.gz", files), write_folder(tmp_path / "unpacked", files)
    for path in (folder, folder / "best.th", folder / "model.tgz", tar, *whole):
        assert_is_the_model(ModelArguments(path).open().arrays())
    assert str(ModelArguments(tar).open().weight_file) == f"{tar}/in/w.hdf5"
    dump = bilm.dump_weights(model=folder, outfile=tmp_path / "dump.hdf5")
    assert_is_the_model(read_hdf5(dump.weight_file, NAMES))
    assert "weights" in run("info", folder / "best.th")


def test_classes_take_an_archive(model_tar):
    expected = bilm.Elmo(*FILES).encoder.get_weights()
    for encoder in (
        bilm.ElmoEmbedder(FILES[0], model_tar).model.encoder,
        bilm.Elmo(FILES[0], model_tar).encoder,
        bilm.BidirectionalLanguageModel(FILES[0], model_tar).encoder,
    ):
        for found, wanted in zip(encoder.get_weights(), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-7)


# --- what is refused ------------------------------------------------------------------------------------


def changed(change, end="_projection.bias"):
    """What changes the tensor whose name ends so."""
    return lambda tensors: {
        name: change(tensor) if name.endswith(end) else tensor for name, tensor in tensors.items()
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors | {"x": Evil()}, "cannot be read by PyTorch: Weights only load failed"),
        (
            lambda tensors: {"a.weight": [*tensors.values()][0]},
            "no AllenNLP ELMo among its 1 tensors: a.weight",
        ),
        (lambda tensors: [*tensors.values()], "no AllenNLP ELMo among its 0 tensors: "),
        (
            lambda tensors: tensors | state_dict("other."),
            r"several ELMo models among its \d+ tensors: _text.*, other\.",
        ),
        (changed(lambda b: b[0].expand(1 << 40)), "tensors are larger than a file of its size"),
        (changed(lambda b: b[None]), r"_projection.bias has shape \(1, 12\), expected 1 dim"),
        (changed(lambda b: b * np.nan), r"_projection.bias holds nan at \[0\]"),
        (changed(lambda b: b.to("meta")), r"(?s)does not fit the .*missing: CNN_proj/b_proj"),
        (changed(lambda b: b[1:]), r"(?s)misshapen: CNN_proj/b_proj has \(11,\)"),
        (
            changed(lambda w: w[1:], "forward_layer_0.input_linearity.weight"),
            "LSTM kernels do not fit each other",
        ),
    ],
    ids=["code", "none", "list", "two", "bomb", "rank", "nan", "meta", "missing", "kernel"],
)
def test_other_tensors_are_refused(change, message, tmp_path):
    path = tmp_path / "weights.th"
    path.write_bytes(saved(change(state_dict())))
    with pytest.raises(WeightsError, match=message):
        find_weights(path).read(NAMES)


def test_damaged_tensor_is_refused(tmp_path):
    data = bytearray(saved(state_dict()))
    tensor = next(tensor for name, tensor in state_dict().items() if name.endswith("projection.bias"))
    data[data.index(tensor.numpy().tobytes()) + 2] ^= 1
    (tmp_path / "weights.th").write_bytes(data)
    with pytest.raises(WeightsError, match=r"cannot be read by PyTorch: .*/data/\d+ is damaged"):
        find_weights(tmp_path / "weights.th").read(NAMES)
    with zipfile.ZipFile(io.BytesIO(saved({"a": tensor.new_zeros(10_000)}))) as archive:
        write_zip(tmp_path / "weights.th", {name: archive.read(name) for name in archive.namelist()})
    with pytest.raises(WeightsError, match="cannot be read by PyTorch: it is compressed"):
        find_weights(tmp_path / "weights.th").read(NAMES)


def test_missing_pytorch_is_named(model_tar, monkeypatch):
    for torch in (None, SimpleNamespace(__version__="2.5.1+cpu")):  # which may execute what a file says
        monkeypatch.setitem(sys.modules, "torch", torch)
        with pytest.raises(WeightsError, match=r"model.tar.gz/weights.th: .* run pip install '.\[torch\]'"):
            find_weights(model_tar).read(NAMES)


def test_missing_options_are_named(model_tar, tmp_path):
    for path in (model_tar, write_folder(tmp_path / "m", {"config.json": CONFIG, "weights.th": b""})):
        with pytest.raises(
            WeightsError, match="an AllenNLP model without the biLM's options; put the file that"
        ):
            ModelArguments(path).open()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.tar.gz", b"text", "the tar archive cannot be read"),
        ("x.tgz", b"\x1f\x8b", "the compressed file is truncated or corrupt"),
        ("x.tar", pickle.dumps(1), "the tar archive cannot be read"),
    ],
    ids=["text", "cut", "pickle"],
)
def test_damaged_archives_are_refused(name, data, message, tmp_path):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BilmError, match=message):
        find_distribution(tmp_path / name)


def test_oversized_archives_are_refused(tmp_path):
    path = write_tar(tmp_path / "x.tar.gz", {"weights.th": bytes(70 << 20)})
    with pytest.raises(BilmError, match="expands to more than 67,108,864 bytes"):
        find_distribution(path)
    tar = write_tar(tmp_path / "x.tar", {"options.json": b"{}", "weights.th": bytes(5000)}, "w")
    tar.write_bytes(tar.read_bytes()[:3000])
    with pytest.raises(BilmError, match="the tar archive cannot be read: unexpected end of data"):
        find_distribution(tar)
    with tarfile.open(tmp_path / "link.tar", "w") as archive:
        link = tarfile.TarInfo("weights.th")
        link.type, link.linkname = tarfile.SYMTYPE, str(WEIGHTS)
        archive.addfile(link)
    with pytest.raises(WeightsError, match="no file of weights; found"):
        find_weights(tmp_path / "link.tar")
