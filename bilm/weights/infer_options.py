"""Inferring a model's options from the shapes of its arrays."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from bilm.errors import WeightsError
from bilm.io.messages import shown
from bilm.options import CharCNNOptions, LSTMOptions, Options

_CELL = re.compile(
    r"(?P<direction>RNN_[01]/RNN|rnn)/(?:MultiRNNCell/Cell\d+/)?LSTMCell/(?P<leaf>\w+)(?:/kernel)?"
)
_FILTER = re.compile(r"CNN/W_cnn_([0-9]{1,9})")
_HIGHWAY = re.compile(r"CNN_high_\d+/W_carry")


def infer_options(shapes: Mapping[str, tuple[int, ...]], source: str) -> Options:
    """The architecture of dumped weights.

    Args:
        shapes: by HDF5 name.
        source: what to call the file in an error.

    Returns:
        Options whose LSTM and character CNN have the sizes of the arrays, the vocabulary too where it is
        among them. Nothing else is known: clips, residuals, activation, longest word, training.

    Raises:
        WeightsError: these are not the weights of a biLM.
    """
    kernels = [shapes[name] for name, leaf in _cells(shapes) if leaf in ("W_0", "kernel")]
    if not kernels or any(len(shape) != 2 for shape in kernels):
        some = ", ".join(f"{name} {shape}" for name, shape in sorted(shapes.items())[:3]) or "none"
        raise WeightsError(f"{source}: not the weights of a biLM: no LSTM among its arrays ({some})")
    rows, columns = kernels[0]
    n_directions = len({name.partition("/")[0] for name, _ in _cells(shapes)})
    embedding = shapes.get("embedding")
    words = shapes.get("softmax/b") or embedding
    return Options(
        lstm=LSTMOptions(columns // 4, rows // 2, n_layers=len(kernels) // n_directions),
        char_cnn=None if embedding else _char_cnn(shapes),
        bidirectional=n_directions == 2,
        n_tokens_vocab=words[0] if words else None,
        share_embedding_softmax="softmax/b" in shapes and "softmax/W" not in shapes,
    )


def known_from_shapes(options: Options) -> dict[str, Any]:
    """The options that can be inferred from the shapes of arrays, in the form of an ``options.json``."""
    lstm, cnn = options.lstm, options.char_cnn
    known: dict[str, Any] = {
        "bidirectional": options.bidirectional,
        "lstm": {"dim": lstm.dim, "projection_dim": lstm.projection_dim, "n_layers": lstm.n_layers},
    }
    if cnn is not None:
        filters = [list(pair) for pair in cnn.filters]
        embedding = {"dim": cnn.embedding_dim}
        known["char_cnn"] = {"embedding": embedding, "filters": filters, "n_highway": cnn.n_highway}
    return known


def differences(given: Options, inferred: Options) -> list[str]:
    """The differences between options and the shapes of arrays, one per line; empty if they agree."""
    said, found = _flat(known_from_shapes(given)), _flat(known_from_shapes(inferred))
    if None not in (given.n_tokens_vocab, inferred.n_tokens_vocab):
        said["n_tokens_vocab"], found["n_tokens_vocab"] = given.n_tokens_vocab, inferred.n_tokens_vocab
    return [
        f"{key}: is {shown(said.get(key))}, the weights have {shown(found.get(key))}"
        for key in {**said, **found}
        if said.get(key) != found.get(key)
    ]


def _flat(values: Mapping[str, Any], section: str = "") -> dict[str, Any]:
    """Values by dotted keys."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{section}{key}.") if isinstance(value, dict) else {f"{section}{key}": value}
    return flat


def _cells(shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, str]]:
    """Names of the LSTMs' arrays, each with the last part of its name."""
    matches = [(name, _CELL.fullmatch(name)) for name in shapes]
    return [(name, match["leaf"]) for name, match in matches if match]


def _char_cnn(shapes: Mapping[str, tuple[int, ...]]) -> CharCNNOptions:
    numbers = {int(match[1]): name for name in shapes if (match := _FILTER.fullmatch(name))}
    kernels = [shapes[numbers[i]] for i in sorted(numbers)]
    return CharCNNOptions(
        filters=tuple((shape[1], shape[3]) for shape in kernels if len(shape) == 4),
        embedding_dim=(shapes.get("char_embed") or (0,))[-1],
        n_highway=sum(_HIGHWAY.fullmatch(name) is not None for name in shapes),
    )
