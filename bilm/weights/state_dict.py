"""ELMo in the state dict of a PyTorch model, as AllenNLP's models have it: the layout, and a reader.

Source: the functions in AllenNLP's ``modules/elmo.py`` and ``elmo_lstm.py`` that load bilm-tf's weights.
"""

import re
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from bilm.errors import WeightsError
from bilm.io import foreign, messages
from bilm.weights.arrays import Arrays, as_weights

_BEFORE_1_6 = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # start of PyTorch's files up to 1.5
_SAFE = (2, 6)  # older versions of PyTorch may execute code in a file
_CELL = "MultiRNNCell/Cell#/LSTMCell"
_CHARACTERS = "_token_embedder._char_embedding_weights"


def _transform(weights: np.ndarray) -> np.ndarray:
    """Return the first half of a highway's weights."""
    return np.array_split(weights, 2)[0].T


def _carry(weights: np.ndarray) -> np.ndarray:
    """Return the second half: AllenNLP's gate multiplies the input, bilm-tf's the transformed input."""
    return -np.array_split(weights, 2)[1].T


def _gates(weights: np.ndarray, forget_bias: float = 0.0) -> np.ndarray:
    """Return the gates of an LSTM in TensorFlow's order: input, candidate, forget, output."""
    input_gate, forget, candidate, output = np.array_split(weights.T, 4, axis=-1)
    return np.concatenate([input_gate, candidate, forget - forget_bias, output], axis=-1)


def _biases(biases: np.ndarray) -> np.ndarray:
    """Return the gates' biases without the 1 that TensorFlow adds to the forget gate when it runs."""
    return _gates(biases, forget_bias=1.0)


# AllenNLP's name with # for a number, its dimensions, the conversion, and the HDF5 name. An array with two
# rows here consists of both tensors, one below the other.
_LAYOUT: list[tuple[str, int, Callable[[np.ndarray], np.ndarray], str]] = [
    (_CHARACTERS, 2, lambda table: table[1:], "char_embed"),  # without the row of padding
    ("_token_embedder.char_conv_#.weight", 3, lambda weights: weights.T[None], "CNN/W_cnn_#"),
    ("_token_embedder.char_conv_#.bias", 1, np.transpose, "CNN/b_cnn_#"),
    ("_token_embedder._highways._layers.#.weight", 2, _transform, "CNN_high_#/W_transform"),
    ("_token_embedder._highways._layers.#.weight", 2, _carry, "CNN_high_#/W_carry"),
    ("_token_embedder._highways._layers.#.bias", 1, _transform, "CNN_high_#/b_transform"),
    ("_token_embedder._highways._layers.#.bias", 1, _carry, "CNN_high_#/b_carry"),
    ("_token_embedder._projection.weight", 2, np.transpose, "CNN_proj/W_proj"),
    ("_token_embedder._projection.bias", 1, np.transpose, "CNN_proj/b_proj"),
    *(
        (f"_elmo_lstm.{direction}_layer_#.{tensor}", n_dims, convert, f"RNN_{i}/RNN/{_CELL}/{leaf}")
        for i, direction in enumerate(("forward", "backward"))
        for tensor, n_dims, convert, leaf in (
            ("input_linearity.weight", 2, _gates, "W_0"),
            ("state_linearity.weight", 2, _gates, "W_0"),
            ("state_linearity.bias", 1, _biases, "B"),
            ("state_projection.weight", 2, np.transpose, "W_P_0"),
        )
    ),
]


def is_state_dict(stream: BinaryIO) -> bool:
    """Return True for a file that `torch.save` wrote; the stream is at its beginning again."""
    head = stream.read(len(_BEFORE_1_6))
    stream.seek(0)
    if not head.startswith(foreign.ZIP_MAGIC):
        return head == _BEFORE_1_6
    return any(name.endswith("/data.pkl") for name in _sizes(stream))


def _sizes(stream: BinaryIO) -> dict[str, int]:
    """Return the sizes of a ZIP archive's members by name; empty for other files."""
    try:
        with zipfile.ZipFile(stream) as archive:
            return {member.filename: member.file_size for member in archive.infolist()}
    except (zipfile.BadZipFile, ValueError, OSError, RuntimeError):
        return {}
    finally:
        stream.seek(0)


def state_dict_arrays(stream: BinaryIO, source: str) -> Arrays:
    """Read the arrays of the biLM in a state dict, by HDF5 name; nothing in the file is executed.

    Args:
        stream: a file that `torch.save` wrote.
        source: name of the file in errors.

    Raises:
        WeightsError: PyTorch is not installed or cannot read the file; or the state dict has no ELMo or
            several, or tensors that are not weights of one.
    """
    tensors = _load(stream, source)
    tables = {tensors[name].data_ptr(): name for name in tensors if name.endswith(_CHARACTERS)}  # one a biLM
    if len(tables) != 1:
        listed = ", ".join(sorted(tables.values() or tensors)[:3])
        number = "several ELMo models" if tables else "no AllenNLP ELMo"
        raise WeightsError(f"{source}: {number} among its {len(tensors):,} tensors: {listed}")
    start = tables.popitem()[1].removesuffix(_CHARACTERS)
    modules = (f"{start}_token_embedder.", f"{start}_elmo_lstm.")
    biLM = {name.removeprefix(start): tensors[name] for name in tensors if name.startswith(modules)}
    if sum(tensor.nbytes for tensor in biLM.values()) > stream.seek(0, 2):
        raise WeightsError(f"{source}: its tensors are larger than a file of its size can hold")
    parts: dict[str, list[np.ndarray]] = {}
    for template, n_dims, convert, hdf5 in _LAYOUT:
        pattern = re.compile(re.escape(template).replace(r"\#", r"(\d{1,4})"))
        for name, tensor in biLM.items():
            if (match := pattern.fullmatch(name)) is None:
                continue
            place = f"{source}: {start}{name}"
            if tensor.ndim != n_dims:
                raise WeightsError(f"{place} has shape {tuple(tensor.shape)}, expected {n_dims} dimensions")
            array = as_weights(tensor.detach().float().resolve_neg().numpy(), place, WeightsError)
            parts.setdefault(hdf5.replace("#", "".join(match.groups())), []).append(convert(array))
    with messages.os_errors_as(WeightsError, f"{source}: its LSTM kernels do not fit each other", ValueError):
        return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _load(stream: BinaryIO, source: str) -> dict[str, Any]:
    """Read all dense tensors of floats by name.

    Raises:
        WeightsError: PyTorch is missing, or cannot read the file.
    """
    try:
        import torch
    except ImportError:
        torch = None
    if torch is None or tuple(map(int, torch.__version__.split(".")[:2])) < _SAFE:
        remedy = "in a clone of bilm, run pip install '.[torch]'"
        raise WeightsError(f"{source}: is a PyTorch file, which PyTorch 2.6 or later reads; {remedy}")
    # The errors are of many classes, as the damage may be anywhere.
    with messages.os_errors_as(WeightsError, f"{source}: cannot be read by PyTorch", Exception):
        sizes = _sizes(stream)
        if sum(sizes.values()) > stream.seek(0, 2):  # PyTorch does not compress
            raise ValueError("it is compressed")
        # PyTorch does not compare the checksums; up to 1.5 it wrote none.
        if sizes and (member := zipfile.ZipFile(stream).testzip()):
            raise ValueError(f"{member} is damaged")
        stream.seek(0)
        content = torch.load(stream, map_location="cpu", weights_only=True)
    return {
        name: tensor
        for name, tensor in (content.items() if isinstance(content, dict) else ())
        if isinstance(name, str) and isinstance(tensor, torch.Tensor) and tensor.is_floating_point()
        if tensor.layout == torch.strided and tensor.device.type == "cpu"
    }
