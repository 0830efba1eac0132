"""A run's copy of its vocabulary: ``vocab.txt``, with its SHA-256 next to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bilm.errors import CheckpointError, VocabularyError
from bilm.io.shown import quoted
from bilm.run_directory.files import sha256
from bilm.vocabulary.vocabulary import Vocabulary


class RunVocabulary:
    """The vocabulary files of a run directory; those of bilm-tf have none.

    Args:
        path: of the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "vocab.txt"
        self._digest_file = path / "vocab.txt.sha256"

    def _is_there(self) -> bool:
        """Whether the vocabulary file is the copy we made, not one that bilm-tf's user put there."""
        return self.file.is_file() and self._digest_file.is_file()

    def is_intact(self) -> bool:
        """Whether the copy is there and is what it was."""
        return self._is_there() and self._digest() == sha256(self.file.read_bytes())

    def is_lost(self) -> bool:
        """Whether there was a copy and only its sum is left."""
        return self._digest_file.is_file() and not self.file.exists()

    def _digest(self) -> str:
        return self._digest_file.read_text(errors="replace").partition(" ")[0]

    def verify(self) -> None:
        """Refuse a copy that is not what it was.

        Raises:
            CheckpointError: it was changed.
        """
        if self._is_there() and not self.is_intact():
            raise CheckpointError(f"{self.file}: changed since the run began; restore it")

    def check(self, vocabulary: Vocabulary, n_expected: int | None) -> None:
        """Refuse a vocabulary other than the run's.

        Args:
            vocabulary: the other.
            n_expected: words of the model, which is all that is known where there is no copy.

        Raises:
            VocabularyError: says what differs.
        """
        words, expected = vocabulary.words, n_expected
        if self._is_there():
            text = self.file.read_text(encoding="utf-8")
            _refuse_difference(words, text.split("\n")[:-1], self.path)
        elif self.is_lost() and self._digest() != sha256(content(vocabulary)["vocab.txt"]):
            raise VocabularyError(
                f"the vocabulary is not the one of the run in {self.path}: its SHA-256 is not "
                f"{self._digest()[:64]}"
            )
        elif expected is not None and len(words) != expected:
            raise VocabularyError(
                f"the vocabulary has {len(words)} words, the model in {self.path} {expected}; "
                "give the vocabulary that the model was trained with"
            )


def _refuse_difference(given: Sequence[str], expected: Sequence[str], path: Path) -> None:
    if list(given) == list(expected):
        return
    new, gone = len(set(given) - set(expected)), len(set(expected) - set(given))
    line = next(
        (i for i, (a, b) in enumerate(zip(given, expected, strict=False), start=1) if a != b),
        min(len(given), len(expected)) + 1,
    )
    here = quoted(given[line - 1]) if line <= len(given) else "nothing"
    there = quoted(expected[line - 1]) if line <= len(expected) else "nothing"
    raise VocabularyError(
        f"the vocabulary is not the one of the run in {path}: {len(given)} words instead of {len(expected)}, "
        f"{new} new, {gone} gone; first difference at line {line}: {here} instead of {there}"
    )


def content(vocabulary: Vocabulary) -> dict[str, bytes]:
    """What is in the files of a vocabulary, by their names."""
    text = "".join(f"{word}\n" for word in vocabulary.words).encode()
    return {"vocab.txt": text, "vocab.txt.sha256": f"{sha256(text)}  vocab.txt\n".encode()}
