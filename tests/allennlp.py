"""AllenNLP's models, made of the golden files: state dicts in PyTorch's files, and tar archives."""

import io
import tarfile

import numpy as np

from bilm.options.options_file import load_inference_options
from bilm.weights.hdf5_file import read_hdf5
from bilm.weights.names import dump_names
from tests.distributed import OPTIONS, WEIGHTS

NAMES = [name for name in dump_names(load_inference_options(OPTIONS)) if not name.is_softmax]
ARRAYS = read_hdf5(WEIGHTS, NAMES)
START = "_text_field_embedder.token_embedder_elmo._elmo._elmo_lstm."


def state_dict(start=START):
    """The arrays as AllenNLP converts those of bilm-tf when it loads them, among others."""
    weights = {name.hdf5: ARRAYS[name.own] for name in NAMES}
    table = weights["char_embed"]
    tensors = {"_token_embedder._char_embedding_weights": np.vstack([np.zeros_like(table[:1]), table])}
    for i in range(sum(name.startswith("CNN/W") for name in weights)):
        tensors[f"_token_embedder.char_conv_{i}.weight"] = weights[f"CNN/W_cnn_{i}"][0].transpose(2, 1, 0)
        tensors[f"_token_embedder.char_conv_{i}.bias"] = weights[f"CNN/b_cnn_{i}"]
    for i in range(sum(name.endswith("/W_carry") for name in weights)):
        high, layer = f"CNN_high_{i}", f"_token_embedder._highways._layers.{i}"
        halves = [weights[f"{high}/W_transform"].T, -weights[f"{high}/W_carry"].T]
        tensors[f"{layer}.weight"] = np.concatenate(halves)
        tensors[f"{layer}.bias"] = np.concatenate(
            [weights[f"{high}/b_transform"], -weights[f"{high}/b_carry"]]
        )
    tensors["_token_embedder._projection.weight"] = weights["CNN_proj/W_proj"].T
    tensors["_token_embedder._projection.bias"] = weights["CNN_proj/b_proj"]
    for i, direction in enumerate(("forward", "backward")):
        for layer in range(2):
            cell = f"RNN_{i}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            kernel, bias, name = weights[f"{cell}/W_0"].T, weights[f"{cell}/B"], f"{direction}_layer_{layer}"
            dim, width = len(bias) // 4, kernel.shape[1] // 2
            order = np.r_[0:dim, 2 * dim : 3 * dim, dim : 2 * dim, 3 * dim : 4 * dim]
            forget = np.r_[np.zeros(2 * dim), np.ones(dim), np.zeros(dim)].astype(np.float32)
            tensors[f"_elmo_lstm.{name}.input_linearity.weight"] = kernel[order, :width]
            tensors[f"_elmo_lstm.{name}.state_linearity.weight"] = kernel[order, width:]
            tensors[f"_elmo_lstm.{name}.state_linearity.bias"] = (bias + forget)[order]
            tensors[f"_elmo_lstm.{name}.state_projection.weight"] = weights[f"{cell}/W_P_0"].T
    tensors["_token_embedder._beginning_of_sentence_characters"] = np.arange(50)
    import torch

    ours = {start + name: torch.tensor(array) for name, array in tensors.items()}
    table = torch.ones(500, 50)  # which two modules share
    return ours | {"encoder.weight": table, "decoder.weight": table}


def saved(content, **how):
    import torch

    stream = io.BytesIO()
    torch.save(content, stream, **how)
    return stream.getvalue()


def write_tar(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path
