"""Settings of `bilm prepare`, each described once."""

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from bilm.errors import ArgumentError
from bilm.io.json_objects import Bounds, Count, JsonObject, Positive
from bilm.options.parameters import Choice, UnicodeForm, flag

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*")


class Split(Choice):
    """Form of a piece of text before it is split into words."""

    SENTENCES = "sentences"  # a paragraph, whose sentences are found
    LINES = "lines"  # a sentence
    TOKENS = "tokens"  # a sentence, whose words are separated by spaces


def is_encoding(name: str) -> bool:
    """Return whether Python knows an encoding of texts by this name."""
    try:
        b"\xe9".decode(name, "replace")
    except (LookupError, ValueError):  # unknown or not of text; of labels (idna), or no name at all
        return False
    return True


def problems_of(language: str, encoding: str | None) -> Iterator[str]:
    """Yield what is wrong with the code of a language and the name of an encoding."""
    if not _LANGUAGE.fullmatch(language):
        yield f"language: {language!r:.80} is not the code of a language, such as en, pt-BR or grc"
    if encoding is not None and not is_encoding(encoding):
        yield f"encoding: {encoding!r:.80} is not an encoding that Python knows"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of `prepare`.

    Raises:
        ArgumentError: a value is not known, or values contradict each other.
    """

    language: str = flag("und", "language, such as en or pt-BR, for abbreviations and ends of sentences")
    form: UnicodeForm | None = flag(
        UnicodeForm.NFC, "Unicode normal form of the corpus; none keeps it as it is"
    )
    keep_lines: bool = flag(False, "each line, or verse of TEI, is a sentence")
    tokens: bool = flag(False, "each line is a sentence, its words separated by spaces")
    dehyphenate: bool = flag(False, "join words that are divided at the ends of lines")
    encoding: str | None = flag(None, "encoding of the files that are not UTF-8, such as latin-1")
    field: str = flag("text", "key of the text in JSON lines, or the name of its column in a table")
    heldout: Annotated[float, Bounds(least=0, below=1)] = flag(
        0.02,
        "share of the text to hold out, of each kind of file: whole files, or stretches of files if too few "
        "fit",
    )
    unique: bool = flag(False, "drop repeated sentences; the first 4 million different ones are remembered")
    min_count: Positive = flag(2, "leave out words with fewer occurrences from the vocabulary")
    max_size: Annotated[int, Bounds(least=4)] = flag(
        200_000, "maximum number of words in the vocabulary, including the special ones"
    )
    seed: Count = flag(0, "seed of the choice of heldout text")

    @property
    def split(self) -> Split:
        """Form of the pieces of a text."""
        return Split.TOKENS if self.tokens else Split.LINES if self.keep_lines else Split.SENTENCES

    def __post_init__(self) -> None:
        problems = [*problems_of(self.language, self.encoding)]
        if self.keep_lines and self.tokens:
            problems.append("keep_lines: does not go with `tokens`, which are in lines already")
        if self.dehyphenate and self.split is not Split.SENTENCES:
            problems.append(
                "dehyphenate: does not go with `keep_lines` or `tokens`, whose lines are sentences"
            )
        if problems:
            raise ArgumentError.listing("invalid settings", problems)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> "Settings":
        """Read settings from keyword arguments; None means that the argument is missing, except for `form`.

        Raises:
            ArgumentError: an argument is unknown, has the wrong type, or is out of range.
        """
        present = {name: value for name, value in arguments.items() if value is not None or name == "form"}
        reader = JsonObject("", {"form": UnicodeForm.NFC} | present)
        settings = reader.read_as(cls, form=reader.take("form", UnicodeForm | None))
        reader.refuse_unknown()
        if reader.problems:
            raise ArgumentError("; ".join(re.sub(r"^(\w+):", r"`\1`:", text) for text in reader.problems))
        return settings
