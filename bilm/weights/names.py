"""The table of weight names: bilm's, bilm-tf's TensorFlow 1 variables, and HDF5 datasets.

Every array has the same layout under all three names, so that transfer is renaming.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bilm.errors import OptionsError, WeightsError
from bilm.io.json_objects import changes
from bilm.options import CharCNNOptions, LSTMOptions, Options

GLOBAL_STEP = "global_step"
TRAIN_PERPLEXITY = "train_perplexity"
ADAGRAD = "/Adagrad"
"""TensorFlow 1's suffix of a variable's name for its Adagrad accumulator."""

_HDF5_SPELLING = (
    ("/rnn/", "/RNN/"),
    ("/multi_rnn_cell/", "/MultiRNNCell/"),
    ("/cell_", "/Cell"),
    ("/lstm_cell/", "/LSTMCell/"),
)
_HDF5_LEAVES = {"projection/kernel": "W_P_0", "kernel": "W_0", "bias": "B"}
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
    for tensorflow, hdf5 in _HDF5_SPELLING:
        tf1 = tf1.replace(tensorflow, hdf5)
    if "/RNN/" in tf1:
        for leaf, hdf5 in _HDF5_LEAVES.items():
            if tf1.endswith("/" + leaf):
                return (tf1[: -len(leaf)] + hdf5).replace(*ONE_LAYER)
    return tf1


_CELL = re.compile(r"(?:RNN_[01]/RNN|rnn)/(?:MultiRNNCell/Cell\d+/)?LSTMCell/(?P<leaf>\w+)")
_FILTER = re.compile(r"CNN/W_cnn_([0-9]{1,9})")
_HIGHWAY = re.compile(r"CNN_high_\d+/W_carry")


def infer_options(shapes: Mapping[str, tuple[int, ...]], source: str) -> Options:
    """Infer the architecture from the shapes of dumped weights.

    Args:
        shapes: shapes of the arrays by HDF5 name.
        source: name of the file in errors.

    Returns:
        Options with the sizes of the LSTM, the character CNN and, if there are arrays of words, the
        vocabulary. All others are defaults: clips, residuals, activation, longest word, training.

    Raises:
        WeightsError: the arrays are not the weights of a biLM.
    """
    cells = {name: match["leaf"] for name in shapes if (match := _CELL.fullmatch(name))}
    kernels = [shapes[name] for name, leaf in cells.items() if leaf in ("W_0", "kernel")]
    if not kernels or any(len(shape) != 2 for shape in kernels):
        examples = ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items())[:3]) or "none"
        raise WeightsError(f"{source}: not the weights of a biLM: no LSTM among its arrays ({examples})")
    rows, columns = kernels[0]
    n_directions = len({name.partition("/")[0] for name in cells})
    embedding = shapes.get("embedding")
    words = shapes.get("softmax/b") or embedding
    try:
        return Options(
            lstm=LSTMOptions(columns // 4, rows // 2, n_layers=len(kernels) // n_directions),
            char_cnn=None if embedding else _inferred_char_cnn(shapes),
            bidirectional=n_directions == 2,
            n_tokens_vocab=words[0] if words else None,
            share_embedding_softmax="softmax/b" in shapes and "softmax/W" not in shapes,
        )
    except OptionsError as error:
        problems = "; ".join(error.problems)
        raise WeightsError(f"{source}: not the weights of a biLM: by its shapes, {problems}") from error


_KNOWN = {"lstm": ("dim", "projection_dim", "n_layers"), "char_cnn": ("embedding", "filters", "n_highway")}


def known_from_shapes(options: Options) -> dict[str, Any]:
    """Return the options that can be inferred from the shapes of arrays, in the form of ``options.json``."""
    values = options.to_json()
    sections = {name: keys for name, keys in _KNOWN.items() if name in values}
    known = {name: {key: values[name][key] for key in keys} for name, keys in sections.items()}
    return {"bidirectional": options.bidirectional} | known


def differences(stated: Options, inferred: Options) -> list[str]:
    """List the changes that make options fit the shapes of arrays; empty if they fit."""
    before, after = known_from_shapes(stated), known_from_shapes(inferred)
    if None not in (stated.n_tokens_vocab, inferred.n_tokens_vocab):
        before["n_tokens_vocab"], after["n_tokens_vocab"] = stated.n_tokens_vocab, inferred.n_tokens_vocab
    return [f"to fit, change {change}" for change in changes(before, after)]


def _inferred_char_cnn(shapes: Mapping[str, tuple[int, ...]]) -> CharCNNOptions:
    kernels = {int(match[1]): shapes[name] for name in shapes if (match := _FILTER.fullmatch(name))}
    filters = tuple((shape[1], shape[3]) for _, shape in sorted(kernels.items()) if len(shape) == 4)
    return CharCNNOptions(
        filters=filters,
        max_characters_per_token=max([50, *(width for width, _ in filters)]),  # which no shape tells
        embedding_dim=(shapes.get("char_embed") or (0,))[-1],
        n_highway=sum(_HIGHWAY.fullmatch(name) is not None for name in shapes),
    )
