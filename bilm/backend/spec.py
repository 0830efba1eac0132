"""What backends are told of arguments, and how much they take at once."""

from __future__ import annotations

from dataclasses import dataclass

WORDS_AT_ONCE = 1024
"""Words taken through the convolutions together: results take up to 200 kB a word and 1000 filters."""
TOKENS_AT_ONCE = 3072
"""Tokens whose share of the gates is held in memory: 4 * dim numbers each."""


def power_of_two(number: int) -> int:
    """The smallest that is no smaller, so that what is compiled anew for each size has few sizes."""
    return 1 << max(number - 1, 0).bit_length()


@dataclass(frozen=True)
class Spec:
    """Shape and type of a tensor.

    Attributes:
        shape: None for sizes that differ from call to call.
        dtype: its name.
    """

    shape: tuple[int | None, ...]
    dtype: str
