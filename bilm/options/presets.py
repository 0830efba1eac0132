"""Complete options by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from bilm.options.hyper_parameters import Options
from bilm.options.network import CharCNNOptions, LSTMOptions

_PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


def _published(dim: int, projection_dim: int, n_highway: int) -> Options:
    return Options(
        lstm=LSTMOptions(
            dim, projection_dim, n_layers=2, cell_clip=3.0, proj_clip=3.0, use_skip_connections=True
        ),
        char_cnn=CharCNNOptions(_PUBLISHED_FILTERS, n_highway=n_highway),
        bidirectional=True,
    )


PRESETS: Mapping[str, Options] = {
    "original": _published(4096, 512, n_highway=2),
    "medium": _published(2048, 256, n_highway=1),
    "small": _published(1024, 128, n_highway=1),
    "tiny": dataclasses.replace(
        _published(256, 64, n_highway=1),
        char_cnn=CharCNNOptions(((1, 16), (2, 16), (3, 32), (4, 64), (5, 64)), n_highway=1),
        batch_size=32,
        n_epochs=2,
    ),
}
"""Complete options by name: the paper's published shapes, and one for trying out."""
