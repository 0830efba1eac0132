"""How large compressed data may become: a few bytes must not fill the memory or the disk."""

from __future__ import annotations

_ALWAYS = 1 << 26  # bytes, which every machine has
_MOST_RATIO = 32  # of a text, or of weights with many zeros; deflate reaches 1,032


def most_expanded(n_compressed: int) -> int:
    """The bytes that may come of this number of compressed bytes; more is not a text or a model."""
    return max(_ALWAYS, _MOST_RATIO * n_compressed)
