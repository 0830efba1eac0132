"""Files that other programs wrote, or a training run: what they are, and what to do with them.

They are known by their names, by those in their folder or archive, and by their first bytes.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from bilm.errors import BilmError
from bilm.io.zip_archive import ZIP_MAGIC

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
_TRANSFORMER = f"a transformer, for Hugging Face's package transformers, and not an ELMo; {_PUBLISHED}"
_EXPORTED = "a SavedModel or a Keras model, for their own loaders; give the run or the weights it was made of"

# A pattern of names of files -> what has such a file; the first that fits decides.
_BY_NAME = {
    r"weights\.th": _ALLENNLP,
    r"(encoder|token_embedder)\.pkl": _MANY_LANGS,
    r"tfhub_module\.pb": _TF_HUB,
    r"saved_model\.pb|model\.weights\.h5": _EXPORTED,
    r"model\.safetensors.*|pytorch_model\.bin.*|tf_model\.h5|flax_model\.msgpack": _TRANSFORMER,
    r"data\.pkl|pickle|.*\.(th|pth?)": _PYTORCH,
}
_TAR_ENDINGS = (".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2")
_TAR = "a tar archive; unpack it and give the folder"

# A pattern of a file's first bytes -> what it is; the first that fits decides.
_BY_START = {
    rb".{257}ustar": _TAR,
    rb"\x1f\x8b": "compressed with gzip; decompress it with gunzip",
    rb"\x80[\x02-\x05]": _PYTORCH.replace("a PyTorch file", "a Python pickle, as PyTorch's weights are"),
    rb".{7}\0\{\"": _TRANSFORMER.replace("a transformer", "a file of safetensors, usually of a transformer"),
    rb"version https://git-lfs": "a pointer of Git LFS to the file; `git lfs pull` fetches it",
    rb"\s*<(!doctype )?html": "a web page; download the file that it links to",
}
_HEAD_BYTES = 512


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
    """Say what a file or folder is and what to do, to follow "is"; None if it is not known to be foreign."""
    path = Path(path)
    try:
        if path.is_dir():
            return of_names(os.listdir(path))
        if not path.is_file():  # a pipe can be read only once, if it is ever written to
            return None
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    if head.startswith(ZIP_MAGIC):
        return of_names([path.name]) or "a ZIP archive; if it is that of a model, give it as `model`"
    if path.name.endswith(_TAR_ENDINGS):
        return _TAR
    for start, what in _BY_START.items():
        if re.match(start, head, re.DOTALL | re.IGNORECASE):
            return what
    return None


def part_of_a_run(path: str | Path) -> str | None:
    """Say what a run directory or the prefix of a checkpoint is, and how to give it; None of other paths."""
    directory, name = os.path.split(path)
    step = name.removeprefix("model.ckpt-")
    if step.isdecimal() and os.path.isfile(f"{path}.index"):
        return f"a checkpoint, given as `model` {directory or '.'} `checkpoint` {step}"
    if any(os.path.isfile(os.path.join(path, name)) for name in ("checkpoint", "bilm-run.json")):
        return f"a run directory, given as `model` {path}"
    return None


def of_names(names: Iterable[str]) -> str | None:
    """Say what has files of these names, as `what_it_is`."""
    present = [PurePosixPath(name).name for name in names]
    for pattern, what in _BY_NAME.items():
        if any(re.fullmatch(pattern, name) for name in present):
            return what
    return None
