"""The sections of ``options.json`` that describe the network: ``char_cnn`` and ``lstm``.

The rest of the file, and what holds between the sections, is in `bilm.options.hyper_parameters`.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Annotated, Any

from bilm.io.json import Bounds, JsonObject, is_kind
from bilm.io.messages import shown

# Far beyond every model, and little enough for what is made of them before any array is: lists of names,
# numbers of float32.
MOST_LAYERS = 1000
LARGEST = 1 << 20
HIGHEST = 3.4e38

_BUCKET_LENGTHS = (6, 8, 10, 13, 18, 26)

Size = Annotated[int, Bounds(least=1, most=LARGEST)]
AboveZero = Annotated[float, Bounds(above=0, most=HIGHEST)]


class Activation(str, enum.Enum):
    """Activation of the character convolutions."""

    RELU = "relu"
    TANH = "tanh"


def length_buckets(max_characters: int, max_filter_width: int) -> tuple[int, ...]:
    """Return the widths of the length buckets, ascending; the last is `max_characters`.

    A word of L characters (word marks included) belongs in the first bucket of at least
    ``min(max_characters, L + max_filter_width)``: wide enough for a convolution window that lies in
    the padding wholly, so that the maximum over positions is the same as in a full row.

    Args:
        max_characters: Characters of a full row.
        max_filter_width: Of the widest filter.
    """
    widths = {min(max_characters, length + max_filter_width) for length in _BUCKET_LENGTHS}
    return tuple(sorted(widths | {max_characters}))


@dataclasses.dataclass(frozen=True)
class CharCNNOptions:
    """The character encoder: ``filters`` are (width, number) pairs, widths in characters."""

    filters: tuple[tuple[int, int], ...]
    activation: Activation = Activation.RELU
    embedding_dim: int = 16
    max_characters_per_token: Annotated[int, Bounds(least=3, most=LARGEST)] = 50
    n_highway: int = 0

    @property
    def n_filters(self) -> int:
        """Number of filters of all widths: the width of the highway layers."""
        return sum(number for _, number in self.filters)

    @property
    def max_width(self) -> int:
        """Width of the widest filter, in characters."""
        return max(width for width, _ in self.filters)

    @property
    def bucket_widths(self) -> tuple[int, ...]:
        """Columns of the length buckets of its words, see `length_buckets`."""
        return length_buckets(self.max_characters_per_token, self.max_width)

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

    dim: Size
    projection_dim: Size
    n_layers: Annotated[int, Bounds(least=1, most=MOST_LAYERS)] = 1
    cell_clip: AboveZero | None = None
    proj_clip: AboveZero | None = None
    use_skip_connections: bool = False

    @property
    def use_projection(self) -> bool:
        """Whether the cells project their output to fewer dimensions."""
        return self.projection_dim < self.dim


def read_char_cnn(section: JsonObject) -> CharCNNOptions:
    """Read the section of the character encoder; each problem is noted, as in `JsonObject`."""
    n_characters = section.take("n_characters", "an integer", 261)
    if n_characters not in (261, 262):
        section.problems.append(
            f"char_cnn.n_characters: must be 261 (training) or 262 (inference), got {n_characters}"
        )
    return section.read_as(
        CharCNNOptions,
        filters=_read_filters(section),
        embedding_dim=section.section("embedding").take("dim", "an integer", least=1, most=LARGEST),
        n_highway=section.take("n_highway", "an integer", None, least=0, most=MOST_LAYERS) or 0,
    )


def _read_filters(section: JsonObject) -> tuple[tuple[int, int], ...]:
    filters = section.take("filters", "a list") or []
    pairs = tuple((pair[0], pair[1]) for pair in filters if _is_filter(pair))
    if len(pairs) != len(filters) or (not filters and isinstance(section.values.get("filters"), list)):
        section.problems.append(
            f"char_cnn.filters: expected pairs [width, number], got {shown(filters)}; "
            f"each number from 1 to {LARGEST}"
        )
    return pairs


def _is_filter(pair: object) -> bool:
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(is_kind(n, "an integer") and 1 <= n <= LARGEST for n in pair)
    )
