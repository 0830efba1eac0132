"""Files that other programs wrote: what they are, and what to do with them.

They are known by their first bytes, by the names in an archive or a folder, or by the keys of their JSON.
Nothing is unpickled or unpacked.
"""

from __future__ import annotations

import os
import re
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from bilm.errors import BilmError, DataError
from bilm.io.compression import decompressed
from bilm.io.json import parse_json
from bilm.io.messages import excerpt
from bilm.io.zip_archive import ZIP_MAGIC, ZipArchive

_PUBLISHED = "models that bilm reads (options.json with HDF5 weights) are at vectors.nlpl.eu"
_ALLENNLP = (
    "an AllenNLP archive, whose weights are PyTorch's; if its model uses ELMo, options_file and weight_file "
    "in its config.json name the two files to give instead"
)
_PYTORCH = "a PyTorch file, which bilm does not read; give HDF5 weights with their options.json"
_MANY_LANGS = (
    "a model of ELMoForManyLangs, another network in PyTorch's pickles, for the package of that name; "
    f"{_PUBLISHED}"
)
_TF_HUB = (
    "a module of TF-Hub, for tensorflow_hub; AllenNLP publishes the weights of its ELMo as options.json with "
    "HDF5: give those"
)
_SAVED_MODEL = (
    "a TensorFlow SavedModel, for tf.saved_model.load; give the run or the weights that it was exported from"
)
_TRANSFORMER = f"a transformer, for Hugging Face's package transformers, and not an ELMo; {_PUBLISHED}"
_KERAS = "a Keras model, for keras.models.load_model; give the run or the weights that it was made of"

# A file's name -> what has such a file; the first that is there decides.
_BY_NAME = {
    "weights.th": _ALLENNLP,
    "encoder.pkl": _MANY_LANGS,
    "token_embedder.pkl": _MANY_LANGS,
    "tfhub_module.pb": _TF_HUB,
    "saved_model.pb": _SAVED_MODEL,
    "model.safetensors": _TRANSFORMER,
    "pytorch_model.bin": _TRANSFORMER,
    "model.safetensors.index.json": _TRANSFORMER,
    "pytorch_model.bin.index.json": _TRANSFORMER,
    "tf_model.h5": _TRANSFORMER,
    "flax_model.msgpack": _TRANSFORMER,
    "data.pkl": _PYTORCH,
    "pickle": _PYTORCH,
    "model.weights.h5": _KERAS,
}
_PYTORCH_ENDINGS = (".th", ".pt", ".pth")

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_GZIP_MAGIC = b"\x1f\x8b"
_TAR = slice(257, 262)  # where a tar archive says "ustar"
_HEAD_BYTES = 512
_MOST_JSON = 1 << 20
_MOST_UNPACKED = 1 << 26  # bytes of a tar archive that are looked through
_MOST_MEMBERS = 64


@contextmanager
def explained(path: str | Path, failure: type[BilmError]) -> Iterator[None]:
    """Say what a file is that cannot be read as what it was given for.

    Raises:
        BilmError: of the class `failure`, for one of that class, with what the file is where that is known.
    """
    try:
        yield
    except failure as error:
        what = what_it_is(path)
        if what is None:
            raise
        raise failure(f"{path}: is {what}") from error


def what_it_is(path: str | Path) -> str | None:
    """What a file or folder is and what to do, to follow "is"; None if it is not known to be foreign."""
    path = Path(path)
    try:
        if path.is_dir():
            return _of_folder(path)
        if not path.is_file():  # a pipe can be read only once, if it is ever written to
            return None
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        return _of_file(path, head)
    except (OSError, DataError):
        return None


def of_names(names: Iterable[str]) -> str | None:
    """What has files of these names, as `what_it_is`."""
    present = {PurePosixPath(name).name for name in names}
    for name, what in _BY_NAME.items():
        if name in present:
            return what
    if any(name.endswith(_PYTORCH_ENDINGS) for name in present):
        return _PYTORCH
    return None


def _of_folder(path: Path) -> str | None:
    names = os.listdir(path)
    if (what := of_names(names)) is not None:
        return what
    config = path / "config.json"
    return _of_json(config) if config.is_file() else None


def _of_file(path: Path, head: bytes) -> str | None:
    if head.startswith(ZIP_MAGIC):
        names = ZipArchive(path).names
        return of_names(names) or "a ZIP archive; if it is that of a model, give it as `model`"
    if head.startswith(_GZIP_MAGIC):
        return _of_gzip(path)
    if head[_TAR] == b"ustar":
        return _of_tar(path)
    if re.match(rb"\x80[\x02-\x05]", head):
        return _PYTORCH.replace("a PyTorch file", "a Python pickle, as PyTorch's weights are")
    if head[8:10] == b'{"' and head[7:8] == b"\0":
        return _TRANSFORMER.replace("a transformer", "a file of safetensors, usually of a transformer")
    if head.startswith(b"version https://git-lfs"):
        return "a pointer of Git LFS to the file; `git lfs pull` fetches it"
    start = head.lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "a web page; download the file that it links to"
    return _of_json(path) if start.startswith(b"{") else None


def is_hdf5(path: Path) -> bool:
    """Whether a file begins as HDF5 does."""
    try:
        with path.open("rb") as file:
            return file.read(len(_HDF5_MAGIC)) == _HDF5_MAGIC
    except OSError:
        return False


def _of_gzip(path: Path) -> str:
    with path.open("rb") as file, decompressed(file, str(path)) as stream:
        head = stream.read(_HEAD_BYTES)
    return _of_tar(path) if head[_TAR] == b"ustar" else "compressed with gzip; decompress it with gunzip"


def _of_tar(path: Path) -> str:
    """By the names of its first members."""
    unknown = "a tar archive; unpack it and give the folder"
    names: list[str] = []
    try:
        with path.open("rb") as file, decompressed(file, str(path)) as stream:
            beginning: Any = _Bounded(stream)
            with tarfile.open(fileobj=beginning, mode="r|") as archive:
                names += [member.name for member in islice(archive, _MOST_MEMBERS)]
    except (tarfile.TarError, DataError, OSError, EOFError, ValueError, zlib.error, OverflowError):
        pass
    return of_names(names) or unknown


class _Bounded:
    """The beginning of a stream, after which it seems to end."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._left = stream, _MOST_UNPACKED

    def read(self, n_bytes: int) -> bytes:
        data = self._stream.read(min(n_bytes, self._left))
        self._left -= len(data)
        return data


def _of_json(path: Path) -> str | None:
    if path.stat().st_size > _MOST_JSON:
        return None
    return of_config(path.read_bytes())


def of_config(data: bytes) -> str | None:
    """What has such a configuration, as `what_it_is`."""
    try:
        values = parse_json(data.decode("utf-8-sig"))
    except ValueError:
        return None
    if not isinstance(values, Mapping) or "lstm" in values:
        return None
    if "dataset_reader" in values or "trainer" in values:
        return _of_allennlp(values)
    if {"model_type", "architectures", "transformers_version"} & values.keys():
        kind = values.get("model_type")
        named = f" ({excerpt(kind)})" if isinstance(kind, str) else ""
        return "the configuration of " + _TRANSFORMER.replace("a transformer", f"a transformer{named}")
    if "token_embedder" in values:
        return "the configuration of " + _MANY_LANGS
    return None


def _of_allennlp(values: Mapping[str, object]) -> str:
    """AllenNLP's configuration, with the files of the ELMo in it."""
    found: dict[str, str] = {}
    inner: list[object] = [values]
    for value in inner:  # grows meanwhile
        if isinstance(value, Mapping):
            found |= {
                key: text
                for key, text in value.items()
                if key in ("options_file", "weight_file") and isinstance(text, str)
            }
            inner += value.values()
        elif isinstance(value, list):
            inner += value
    advice = "; ".join(f"{key} {excerpt(text)}" for key, text in found.items())
    named = f"it names those of an ELMo: {advice}" if found else "it names no ELMo"
    return f"the configuration of an AllenNLP model, whose archive has PyTorch's weights; {named}"
