"""The sections of ``options.json`` that describe the network: ``char_cnn`` and ``lstm``.

The rest of the file, and what holds between the sections, is in `bilm.options.hyper_parameters`.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from bilm.io.json_reader import JsonObject, is_kind
from bilm.io.shown import shown

# Far beyond every model, and little enough for what is made of them before any array is: lists of names,
# numbers of float32.
_MOST_LAYERS = 1000
LARGEST = 1 << 20
HIGHEST = 3.4e38


class Activation(str, enum.Enum):
    """Activation of the character convolutions."""

    RELU = "relu"
    TANH = "tanh"


@dataclasses.dataclass(frozen=True)
class CharCNNOptions:
    """The character encoder: ``filters`` are (width, number) pairs, widths in characters."""

    filters: tuple[tuple[int, int], ...]
    activation: Activation = Activation.RELU
    embedding_dim: int = 16
    max_characters_per_token: int = 50
    n_highway: int = 0

    @property
    def n_filters(self) -> int:
        """Number of filters of all widths: the width of the highway layers."""
        return sum(number for _, number in self.filters)

    @property
    def max_width(self) -> int:
        """Width of the widest filter, in characters."""
        return max(width for width, _ in self.filters)

    def to_json(self, n_characters: int) -> dict[str, Any]:
        """Its section of ``options.json``.

        Args:
            n_characters: what the section says of them: 261 in training, 262 for inference.
        """
        return {
            "activation": self.activation.value,
            "embedding": {"dim": self.embedding_dim},
            "filters": [list(pair) for pair in self.filters],
            "max_characters_per_token": self.max_characters_per_token,
            "n_characters": n_characters,
            "n_highway": self.n_highway,
        }


@dataclasses.dataclass(frozen=True)
class LSTMOptions:
    """The LSTM stack of one direction; without a projection ``projection_dim == dim``."""

    dim: int
    projection_dim: int
    n_layers: int = 1
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = False

    @property
    def use_projection(self) -> bool:
        """Whether the cells project their output to fewer dimensions."""
        return self.projection_dim < self.dim


def read_lstm(values: object, problems: list[str], unknown: list[str] | None) -> LSTMOptions:
    """Read the section of the LSTM; each problem is noted, as in `JsonObject`."""
    section = JsonObject("lstm", values, problems)
    options = LSTMOptions(
        dim=section.take("dim", "an integer", least=1, most=LARGEST),
        projection_dim=section.take("projection_dim", "an integer", least=1, most=LARGEST),
        n_layers=section.take("n_layers", "an integer", 1, least=1, most=_MOST_LAYERS),
        cell_clip=section.take("cell_clip", "a number", None, above=0, most=HIGHEST),
        proj_clip=section.take("proj_clip", "a number", None, above=0, most=HIGHEST),
        use_skip_connections=section.take("use_skip_connections", "true or false", False),
    )
    section.finish(unknown)
    return options


def read_char_cnn(values: object, problems: list[str], unknown: list[str] | None) -> CharCNNOptions:
    """Read the section of the character encoder; each problem is noted, as in `JsonObject`."""
    section = JsonObject("char_cnn", values, problems)
    embedding = JsonObject("char_cnn.embedding", section.values.get("embedding", {}), problems)
    section.taken.add("embedding")
    n_characters = section.take("n_characters", "an integer", 261)
    if n_characters not in (261, 262):
        problems.append(
            f"char_cnn.n_characters: must be 261 (training) or 262 (inference), got {n_characters}"
        )
    filters = section.take("filters", "a list") or []
    pairs = tuple(tuple(pair) for pair in filters if _is_filter(pair))
    if len(pairs) != len(filters) or (not filters and isinstance(section.values.get("filters"), list)):
        problems.append(
            f"char_cnn.filters: expected pairs [width, number], got {shown(filters)}; "
            f"each number from 1 to {LARGEST}"
        )
    options = CharCNNOptions(
        filters=pairs,
        activation=section.choice("activation", Activation, Activation.RELU),
        embedding_dim=embedding.take("dim", "an integer", least=1, most=LARGEST),
        max_characters_per_token=section.take(
            "max_characters_per_token", "an integer", 50, least=3, most=LARGEST
        ),
        n_highway=section.take("n_highway", "an integer", None, least=0, most=_MOST_LAYERS) or 0,
    )
    embedding.finish(unknown)
    section.finish(unknown)
    return options


def _is_filter(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(is_kind(n, "an integer") and 1 <= n <= LARGEST for n in pair)
    )
