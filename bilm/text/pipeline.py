"""The steps from text to tokenised sentences, as a corpus and its models keep them in ``text.json``."""

import dataclasses
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Annotated, NamedTuple

from icu4py import icu_version
from icu4py.breakers import SentenceBreaker, WordBreaker
from icu4py.locale import Locale

from bilm.errors import ArgumentError, DataError, checked
from bilm.io import PathLike, in_groups
from bilm.io.json_objects import Bounds, JsonObject, parse_json
from bilm.io.lines import INVISIBLE, invisible_in
from bilm.io.outputs import read_file
from bilm.io.run_files import TEXT_FILE
from bilm.options.parameters import UnicodeForm, normaliser
from bilm.text.abbreviations import join_at_abbreviations
from bilm.text.settings import Split, problems_of

_LOG = logging.getLogger(__name__)

VERSION = 1
"""Version of the steps; another one is needed when the same text would become other tokens."""

PARAGRAPH = "\u2029"  # Unicode's paragraph separator; the sentence breaker ends a sentence at it
_LINE_ENDS = re.compile(r"[\n\v\f\r\x85\u2028]+")
# Scripts without spaces between words, where a line end is none either.
_SOUTH_EAST = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # where zero-width spaces separate words
_UNSPACED = _SOUTH_EAST + "\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef"
_UNSPACED_LINE_END = re.compile(rf"\n(?<=[{_UNSPACED}]\n)[\n\t ]*(?=[{_UNSPACED}])")
HYPHENS = "-=\u2010\u00ac\u2e17"
"""Hyphens of divided words, as in a set of a regular expression: also those of OCR and of Fraktur."""
_DIVIDED = re.compile(rf"(?<=[^\s\d-])[{HYPHENS}][ \t]*\n[\n\t ]*(?!(?:and|und|oder)\b|\w+-\w)(?=([^\W\d_]))")
DIVIDED = "hyphens at line ends"
"""Name of the hyphens of divided words among the removed characters."""
# A soft hyphen at a line's end joins the parts of the word.
_ANY_INVISIBLE = re.compile(f"\u00ad\n[\n\t ]*|[{''.join(INVISIBLE.values())}]")
_ZERO_WIDTH_SPACE = re.compile(rf"(?<=[{_SOUTH_EAST}])\u200b+(?=[{_SOUTH_EAST}])")
# Characters that ICU takes for no letters: private ones, as medievalists use, and subscripts, as in lú₂.
_LETTER = re.compile("[\ue000-\uf8ff\u2080-\u2089\U000f0000-\U0010ffff]")
# Marks that ICU leaves on the wrong side: directly before a sentence, or after a space at its beginning.
_OPENING, _CLOSING = "([{“‘„‚«‹「『《〈【〔（［｛", '"”’»›'
_CLOSING_MARKS = re.compile(rf"[{_CLOSING}]+(?!\S)[^\S\u2029]*\u2029?")
# Languages whose editions begin sentences with small letters, before which ICU sees abbreviations.
_SMALL_LETTERS = ("cop", "got", "grc")
_FULL_STOP = re.compile(r"(?<=[\w\u0300-\u036f]{2}\.) +(?=\w)")
# Codes of languages -> those that ICU knows. Ancient Greek has the question mark of modern Greek; the others
# are the bibliographic codes of ISO 639-2, as catalogues of libraries have them.
_RULES_OF = {"grc": "el", "alb": "sq", "arm": "hy", "baq": "eu", "bur": "my", "chi": "zh", "cze": "cs"}
_RULES_OF |= {"dut": "nl", "fre": "fr", "geo": "ka", "ger": "de", "gre": "el", "ice": "is", "mac": "mk"}
_RULES_OF |= {"mao": "mi", "may": "ms", "per": "fa", "rum": "ro", "slo": "sk", "tib": "bo", "wel": "cy"}
_GAP = "\ufdd0"  # no character of a text; it is a word wherever it stands
# Ends of sentences that no language sees as abbreviations.
_STOP = "(?:(?<=[^\\s.]{5})\\.|[!?…‽।॥؟۔։።፧།။។\u037e])"
_SENTENCE_END = re.compile(rf"({_STOP}|[。！？｡])[\"'”’»›)\]」』]*$")
_LONG_PARAGRAPH, _LONGEST_PARAGRAPH = 2_000, 8_000  # characters
_PORTION = 1 << 14  # characters, which are tokenised at once, since ICU is slow to start
_CLOSED = "[\"'”’»)]*\\s(?!\\s*[”’»›])"
_PART_END = rf"(?:{_STOP}{_CLOSED}|[。！？｡][”’」』）》]*|$)"
_LONG_PART = rf".{{{_LONG_PARAGRAPH}}}.{{0,{_LONGEST_PARAGRAPH - _LONG_PARAGRAPH}}}?{_PART_END}"
_PART_OF_LINE = re.compile(rf"(?s){_LONG_PART}|.{{{_LONGEST_PARAGRAPH}}}.*?(?:\.{_CLOSED}|{_PART_END})|.+")


@dataclasses.dataclass(frozen=True)
class TextPipeline:
    """The steps from text to tokenised sentences.

    Invisible characters are removed, the text is put into its normal form, and sentences and words are found
    by Unicode's rules (UAX 29), with ICU's dictionaries for Thai, Lao, Khmer, Burmese, Chinese and Japanese.
    Initials, and the abbreviations of some languages, do not end a sentence. Every segment that is not white
    space is a word: punctuation stands apart.

    Attributes:
        language: code of the language, such as ``en`` or ``pt-BR``; ``und`` for the rules of no language.
        form: normal form of the text; None for the characters as they are.
        split: whether sentences, and words, are found or given.
        dehyphenate: whether words divided at line ends are joined.
        encoding: encoding of the files that are not UTF-8.
        field: key of the text in JSON lines, or the name of its column in a table.
        icu: version of ICU, whose rules and dictionaries change.
        version: version of the steps.

    Raises:
        DataError: the language is not the code of one, or the encoding unknown.
        OptionsError: the form or the split is unknown.

    Example:
        >>> steps = TextPipeline("en")  # or TextPipeline.from_file("corpus/text.json")
        >>> [*steps.sentences("The fox can't swim. Can it fly?")]
        [['The', 'fox', "can't", 'swim', '.'], ['Can', 'it', 'fly', '?']]
    """

    language: str = "und"
    form: UnicodeForm | None = UnicodeForm.NFC
    split: Split = Split.SENTENCES
    dehyphenate: bool = False
    encoding: str | None = dataclasses.field(default=None, compare=False)
    field: str = dataclasses.field(default="text", compare=False)
    icu: str = icu_version
    version: Annotated[int, Bounds(least=1, most=VERSION)] = VERSION

    def __post_init__(self) -> None:
        if problems := [*problems_of(self.language, self.encoding)]:
            raise DataError.listing("invalid steps", problems)
        object.__setattr__(self, "split", Split(self.split))
        object.__setattr__(self, "form", None if self.form is None else UnicodeForm(self.form))

    @classmethod
    def from_file(cls, path: PathLike) -> "TextPipeline":
        """Read the steps from a ``text.json``.

        Raises:
            DataError: the file is missing or damaged, or of a later version.
        """
        return cls.parse(read_file(path, DataError), str(path))

    @classmethod
    def parse(cls, content: bytes, name: str) -> "TextPipeline":
        """Read the steps from the content of a ``text.json``.

        Args:
            content: bytes of the file.
            name: name of the file in errors.

        Raises:
            DataError: the content is damaged, or of a later version.
        """
        try:
            values = JsonObject("", parse_json(content))
        except ValueError as error:
            raise DataError(f"{name}: is not JSON ({error})") from None
        pipeline = values.read_as(cls, form=values.take("form", UnicodeForm | None))
        if values.problems:
            raise DataError(f"{name}: {'; '.join(values.problems)}")
        return pipeline

    @property
    def rules(self) -> str:
        """Code of the language whose rules are followed."""
        code = Locale(self.language).language
        return _RULES_OF.get(code, code)

    @checked
    def sentences(self, text: str, gap: str | None = None) -> Iterator[list[str]]:
        """Yield the sentences of a text as lists of words.

        Args:
            text: raw text; blank lines separate paragraphs. Where lines or tokens are given, one sentence a
                line.
            gap: word that stays as it is, see `read`.
        """
        for sentence in self.read(re.split(r"\r\n|\r|\n", text), gap):
            yield sentence.split(" ")

    def read(self, lines: Iterable[str], gap: str | None = None) -> Iterator[str]:
        """Yield the sentences of a text of any length, with one space between words.

        Args:
            lines: lines of raw text, as for `sentences`.
            gap: word that stays as it is, such as ``___`` or ``[MASK]``, also beside letters and punctuation.

        Raises:
            ArgumentError: `gap` is not one word.
        """
        if gap is not None and gap.split() != [gap]:
            raise ArgumentError(f"`gap` is {gap!r:.80}; it must be one word")
        is_ordinary = gap is None or any(map(str.isalnum, gap)) and self.tokenise([gap]) == [self.word(gap)]
        if gap is not None and not is_ordinary:
            marked = self.read(line.replace(gap, _GAP) for line in lines)
            yield from (sentence.replace(_GAP, gap) for sentence in marked)
            return
        pieces = paragraphs(lines) if self.split is Split.SENTENCES else filter(str.strip, lines)
        for portion in in_groups(pieces, len, _PORTION):
            yield from self.tokenise(portion)

    def word(self, text: str) -> str:
        """Return a word as sentences have it, in its normal form; a text of several words stays as it is."""
        sentences = self.tokenise([text])
        return sentences[0] if len(sentences) == 1 and " " not in sentences[0] else text

    def tokenise(
        self, pieces: Sequence[str], split: Split | None = None, removed: Counter[str] | None = None
    ) -> list[str]:
        """Return the sentences of pieces of text, with one space between words; no sentence is empty.

        Args:
            pieces: paragraphs, lines, or tokenised lines.
            split: what the pieces are, if not `self.split`.
            removed: counts the removed characters by their names, and the hyphens of divided words also if
                these are not joined.
        """
        split = split or self.split
        if split is not Split.SENTENCES:
            pieces = [piece.replace(PARAGRAPH, " ") for piece in pieces]
        text = PARAGRAPH.join(pieces)
        if _ANY_INVISIBLE.search(text) is not None:
            if removed is not None:
                removed.update(invisible_in("".join(_ANY_INVISIBLE.findall(text))))
            text = _ANY_INVISIBLE.sub("", _ZERO_WIDTH_SPACE.sub(" ", text))
        text = normaliser(self.form)(text)
        if split is Split.TOKENS:
            lines = text.split(PARAGRAPH)
        else:
            if "\n" in text:
                text = self._dehyphenated(_UNSPACED_LINE_END.sub("", text), removed)
            text = _LINE_ENDS.sub(" ", text)
            language = self.rules
            if split is Split.SENTENCES:
                pieces = _with_their_marks(SentenceBreaker(text, language))
                if Locale(self.language).language in _SMALL_LETTERS:
                    pieces = [*chain.from_iterable(map(_FULL_STOP.split, pieces))]
                pieces = join_at_abbreviations(pieces, language)
            else:
                pieces = text.split(PARAGRAPH)
            # The line end is a word of its own, so one call finds the words of all sentences.
            lines = " ".join(_words("\n".join(map(str.strip, pieces)), language)).split("\n")
        return [sentence for line in lines if (sentence := " ".join(line.split()))]

    def _dehyphenated(self, text: str, removed: Counter[str] | None) -> str:
        r"""Count the words that are divided at line ends, and join them if `dehyphenate`.

        The hyphen stays before a capital, as in ``Goethe-\nStraße``.
        """
        if removed is not None:
            n_divided = sum(not match[1].isupper() for match in _DIVIDED.finditer(text))
            removed.update({DIVIDED: n_divided} if n_divided else {})
        if not self.dehyphenate:
            return text
        return _DIVIDED.sub(lambda match: match[0] if match[1].isupper() else "", text)


class ModelSteps(NamedTuple):
    """The ``text.json`` of a model, parsed when it is needed.

    Attributes:
        content: bytes of the file; None for a model without it.
        name: name of the file, or of the model.
    """

    content: bytes | None = None
    name: str = "the model"

    @property
    def pipeline(self) -> TextPipeline | None:
        """Steps from raw text to sentences as those of the training text; None if they are unknown.

        Raises:
            DataError: the file is damaged, or of a later version.
        """
        return None if self.content is None else TextPipeline.parse(self.content, self.name)

    def describe(self) -> str:
        """Return a line on how the words of a text are found, or on what is wrong with the file."""
        try:
            steps = self.pipeline
        except DataError as error:
            return str(error)
        if steps is None:
            return "words separated by spaces, tokenised as the training text was"
        found = "words separated by spaces" if steps.split is Split.TOKENS else f"words by ICU {steps.icu}"
        return f"{found}, language {steps.language}; `{TEXT_FILE}` has the steps from raw text"

    def require(self) -> TextPipeline:
        """Return `pipeline` to tokenise a text; warns of another version of ICU than at training.

        Raises:
            ArgumentError: the steps are unknown.
            DataError: the file is damaged, or of a later version.
        """
        pipeline = self.pipeline
        if pipeline is None:
            raise ArgumentError(
                f"{self.name}: has no {TEXT_FILE}, which says how to split raw text for it. Tokenise the "
                "text as its training text was and leave out `raw`, or train a model on a `corpus` of "
                "`bilm prepare`, which has one"
            )
        if pipeline.icu != icu_version and pipeline.split is not Split.TOKENS:
            _LOG.warning(
                "%s: the training text was tokenised by ICU %s, and this one is by ICU %s: words may differ",
                *(self.name, pipeline.icu, icu_version),
            )
        return pipeline


def _with_their_marks(sentences: Iterable[str]) -> list[str]:
    """Move quotation marks and brackets that open a sentence, or close one after a space, into it."""
    moved = [""]
    for sentence in sentences:
        last = moved[-1]
        if last[-1:] in _OPENING and last:
            moved[-1] = last.rstrip(_OPENING)
            sentence = last[len(moved[-1]) :] + sentence
        elif sentence[0] in _CLOSING and last[-1:] not in ("", PARAGRAPH):
            closing = _CLOSING_MARKS.match(sentence)
            if closing and (sentence[0] != '"' or last.count('"') % 2):
                moved[-1] += closing[0]
                sentence = sentence[closing.end() :]
        if sentence:
            moved.append(sentence)
    return moved[1:]


def _words(text: str, language: str) -> Iterable[str]:
    """Return words, and what is between them; private characters and subscripts are letters."""
    if _LETTER.search(text) is None:
        return WordBreaker(text, language)
    words = [*WordBreaker(_LETTER.sub("a", text), language)]
    return [text[end - len(word) : end] for word, end in zip(words, accumulate(map(len, words)), strict=True)]


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    r"""Yield the paragraphs of a text: lines up to a blank one, joined by ``\n``.

    A long paragraph ends with the line that ends a sentence, so that texts without blank lines have
    paragraphs too, and a very long one with any line. A long line is divided after a full stop or the like.
    """
    pending: list[str] = []
    size = 0
    parts = (_PART_OF_LINE.findall(line) if len(line) > _LONG_PARAGRAPH else [line] for line in lines)
    for line in chain(map(str.strip, chain.from_iterable(parts)), [""]):
        if line:
            pending.append(line)
            size += len(line)
        is_long = size > _LONG_PARAGRAPH and (size > _LONGEST_PARAGRAPH or _SENTENCE_END.search(line))
        if pending and (not line or is_long):
            yield "\n".join(pending)
            pending, size = [], 0
