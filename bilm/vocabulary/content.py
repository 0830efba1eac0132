"""A vocabulary from the content of its file, which may be a member of an archive."""

from __future__ import annotations

from bilm.vocabulary.check import require_valid
from bilm.vocabulary.file import SKIPPED_LINE, vocabulary_bytes, vocabulary_lines
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary


def parse_vocabulary(data: bytes, name: str, max_word_length: int | None = None) -> Vocabulary:
    """Validate what is in a vocabulary file, as `load_vocabulary`.

    Args:
        data: The bytes of the file, compressed or not.
        name: What to call it in an error.
        max_word_length: As for `load_vocabulary`.

    Raises:
        VocabularyError: As `load_vocabulary`.
    """
    lines = vocabulary_lines(vocabulary_bytes(data, name), name)
    require_valid(name, lines)
    words = [word for word in map(str.strip, lines) if word != SKIPPED_LINE]
    if max_word_length is None:
        return Vocabulary.from_words(words)
    return UnicodeCharsVocabulary.from_words(words, max_word_length)
