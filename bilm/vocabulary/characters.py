"""Words as rows of character ids.

Character ids are UTF-8 bytes 0-255 and five marks: 256 begins a sentence, 257 ends it, 258 begins a
word, 259 ends it, 260 pads.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = range(256, 261)


class PackedWords:
    """Rows of words, kept end to end without their padding: two bytes a character.

    A word is 258, its UTF-8 bytes cut to ``width - 2``, 259, then 260 up to `width`.

    Args:
        words: Surrogates in them, which are not text, have no characters, as in bilm-tf.
        width: Characters of a row.
    """

    def __init__(self, words: Iterable[str], width: int) -> None:
        n_bytes = width - 2
        encoded = [word.encode("utf-8", "ignore")[:n_bytes] for word in words]
        self.lengths = np.fromiter(map(len, encoded), np.int32, len(encoded)) + np.int32(2)
        ends = np.cumsum(self.lengths, dtype=np.int64)
        self._starts = ends - self.lengths
        # With room for the marks, and for a whole row after the last word.
        joined = b"".join([b"\0" + b"\0\0".join(encoded), bytes(width + 1)])
        self._characters = np.frombuffer(joined, np.uint8).astype(np.uint16)
        self._characters[self._starts] = BEGIN_WORD
        self._characters[ends - 1] = END_WORD

    def set_mark(self, number: int, mark: int) -> None:
        """Replace the characters of a word of at least one byte by a single mark."""
        start = self._starts[number]
        self._characters[start : start + 3] = BEGIN_WORD, mark, END_WORD
        self.lengths[number] = 3

    def rows(self, numbers: np.ndarray, width: int) -> np.ndarray:
        """Return the first `width` characters of words, int32 (n, width)."""
        flat = self._characters
        views = np.ndarray((len(flat) - width + 1, width), flat.dtype, flat, strides=flat.strides * 2)
        rows = views[self._starts[numbers]]  # from the start of each word on
        rows[np.arange(width, dtype=np.int32) >= self.lengths[numbers, None]] = PADDING
        return rows.astype(np.int32)


def mark_row(mark: int, width: int) -> np.ndarray:
    """Return the row of a sentence mark, int32 (width,)."""
    row = np.full(width, PADDING, np.int32)
    row[:3] = BEGIN_WORD, mark, END_WORD
    return row
