"""Names of datasets in a file of embeddings: line numbers, or sentences as HDF5 can hold them."""

from __future__ import annotations

# What a name in HDF5 cannot hold, and what stands for it.
_STAND_INS = str.maketrans({"/": "\N{DIVISION SLASH}", "\0": "\N{SYMBOL FOR NULL}"})
_OWN_GROUP = "."


class Keys:
    """Names of the datasets, given out line by line.

    Args:
        use_sentences: a sentence is its own key: written once, blank lines not at all. A slash becomes
            U+2215, a NUL U+2400 and a sentence that is one full stop U+2024, which HDF5 can hold.
    """

    def __init__(self, use_sentences: bool) -> None:
        self._use_sentences = use_sentences
        self._sentences: dict[str, str] = {}

    def assign(self, number: int, sentence: str) -> str | None:
        """The key of line `number`, from 0; None if the line has no dataset of its own."""
        if not self._use_sentences:
            return str(number)
        if not sentence:
            return None
        key = sentence.translate(_STAND_INS)
        key = "\N{ONE DOT LEADER}" if key == _OWN_GROUP else key
        while key in self._sentences:
            if self._sentences[key] == sentence:
                return None
            key += "\N{DIVISION SLASH}"  # of another sentence, which has the stand-in itself
        self._sentences[key] = sentence
        return key
