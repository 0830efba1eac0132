"""The table of weight names: bilm's, bilm-tf's TensorFlow 1 variables, and HDF5 datasets.

Every array has the same layout under all three names, so that transfer is renaming.
"""

import re
from dataclasses import dataclass

from bilm.options import Options

GLOBAL_STEP = "global_step"
TRAIN_PERPLEXITY = "train_perplexity"
ADAGRAD = "/Adagrad"
"""TensorFlow 1's suffix of a variable's name for its Adagrad accumulator."""

_HDF5_LEAVES = {"kernel": "W_0", "bias": "B", "projection/kernel": "W_P_0"}
ONE_LAYER = ("/RNN/LSTMCell/", "/RNN/MultiRNNCell/Cell0/LSTMCell/")
"""Group of the only layer of a model in bilm-tf's dump, and the one that bilm-tf itself and others read."""


@dataclass(frozen=True)
class WeightName:
    """An array's shape and its names: bilm's own, in a TensorFlow 1 checkpoint, and in HDF5."""

    own: str
    tf1: str
    hdf5: str
    shape: tuple[int, ...]

    @property
    def is_softmax(self) -> bool:
        """True for arrays of the output layer, which inference does not need."""
        return self.own.startswith("softmax/")


def weight_names(options: Options, of_dump: bool = False) -> tuple[WeightName, ...]:
    """List all arrays of the model that the options describe, softmax last.

    Without ``n_tokens_vocab``, as in the options of dumped weights, the list has no softmax, and a word
    embedding has -1, unknown, rows.

    Args:
        options: options of the model.
        of_dump: see `dump_names`.
    """
    lstm, cnn = options.lstm, options.char_cnn
    n_words = -1 if of_dump or options.n_tokens_vocab is None else options.n_tokens_vocab
    entries: list[tuple[str, str, tuple[int, ...]]] = []  # bilm's name, TensorFlow's, shape
    if cnn is None:
        entries.append(("encoder/embedding", "embedding", (n_words, lstm.projection_dim)))
    else:
        own, dim = "encoder/char_cnn/", cnn.n_filters
        entries.append((own + "char_embed", "char_embed", (261, cnn.embedding_dim)))
        for i, (width, number) in enumerate(cnn.filters):
            entries.append((f"{own}W_cnn_{i}", f"CNN/W_cnn_{i}", (1, width, cnn.embedding_dim, number)))
            entries.append((f"{own}b_cnn_{i}", f"CNN/b_cnn_{i}", (number,)))
        for i in range(cnn.n_highway):
            for gate in ("carry", "transform"):
                entries.append((f"{own}high_{i}_W_{gate}", f"CNN_high_{i}/W_{gate}", (dim, dim)))
                entries.append((f"{own}high_{i}_b_{gate}", f"CNN_high_{i}/b_{gate}", (dim,)))
        if dim != lstm.projection_dim:
            entries.append((own + "W_proj", "CNN_proj/W_proj", (dim, lstm.projection_dim)))
            entries.append((own + "b_proj", "CNN_proj/b_proj", (lstm.projection_dim,)))
    for direction, name in enumerate(("forward", "backward")[: options.n_directions]):
        scope = f"RNN_{direction}/rnn" if options.bidirectional else "rnn"
        for layer in range(lstm.n_layers):
            cell = f"multi_rnn_cell/cell_{layer}/lstm_cell" if lstm.n_layers > 1 else "lstm_cell"
            own, tf1 = f"encoder/{name}_{layer}", f"{scope}/{cell}"
            entries.append((f"{own}/kernel", f"{tf1}/kernel", (2 * lstm.projection_dim, 4 * lstm.dim)))
            entries.append((f"{own}/bias", f"{tf1}/bias", (4 * lstm.dim,)))
            if lstm.use_projection:
                shape = (lstm.dim, lstm.projection_dim)
                entries.append((f"{own}/projection", f"{tf1}/projection/kernel", shape))
    if of_dump or options.n_tokens_vocab is not None:
        if of_dump or not options.share_embedding_softmax:
            entries.append(("softmax/W", "softmax/W", (n_words, lstm.projection_dim)))
        entries.append(("softmax/b", "softmax/b", (n_words,)))
    return tuple(WeightName(own, f"lm/{tf1}", hdf5_name(tf1), shape) for own, tf1, shape in entries)


def dump_names(options: Options) -> tuple[WeightName, ...]:
    """List all arrays that a dump of the model may have, the softmax included; numbers of words are -1."""
    return weight_names(options, of_dump=True)


def hdf5_name(tf1: str) -> str:
    """Return the name of a variable in bilm-tf's dump; unidirectional models keep TensorFlow's leaf names."""
    name = tf1.replace("/multi_rnn_cell/cell_", "/MultiRNNCell/Cell").replace("/lstm_cell/", "/LSTMCell/")
    if (match := re.fullmatch(r"(RNN_\d)/rnn/(?:MultiRNNCell/Cell(\d+)/)?LSTMCell/(.+)", name)) is None:
        return name
    return f"{match[1]}/RNN/MultiRNNCell/Cell{match[2] or 0}/LSTMCell/{_HDF5_LEAVES[match[3]]}"
