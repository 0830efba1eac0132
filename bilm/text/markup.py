"""Paragraphs of markup: TEI, ALTO, PAGE and other XML, and HTML."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html.entities import html5
from html.parser import HTMLParser
from typing import BinaryIO, NamedTuple
from xml.parsers import expat

from bilm.errors import DataError
from bilm.io import in_groups
from bilm.text.pipeline import HYPHENS

_BLOCK_BYTES = 1 << 16
_LONGEST_BLOCK = 1 << 20  # characters of an element before it is cut


class _Rules(NamedTuple):
    """Meaning of elements for the text around them.

    Attributes:
        left_out: elements whose text is left out.
        blocks: elements that begin and end paragraphs; None for all that are not `inline`.
        inline: elements inside a sentence.
        lines: elements at which a line ends.
        words: elements that are set off by spaces.
        sentences: elements inside which all others are inline.
    """

    left_out: frozenset[str]
    blocks: frozenset[str] | None
    inline: frozenset[str]
    lines: frozenset[str]
    words: frozenset[str]
    sentences: frozenset[str]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _rules(
    left_out: str, blocks: str | None, inline: str = "", lines: str = "", words: str = "", sentences: str = ""
) -> _Rules:
    """Return the rules for names that are separated by spaces."""
    of_blocks = None if blocks is None else _names(blocks)
    return _Rules(_names(left_out), of_blocks, *map(_names, (inline, lines, words, sentences)))


_RUBY = "rp rt rtc"  # readings, beside the words that they belong to
_INLINE = (
    "a abbr acronym b bdi bdo big c cite code data del dfn em emph font foreign hi i img ins kbd label lb "
    "mark milestone name nobr num pb persName placeName q rb ref ruby samp seg small span strike strong sub "
    "sup term time tt u var w wbr"
)
_RULES = {
    "TEI": _rules(
        "teiHeader facsimile sourceDoc standOff front back note noteGrp fw gap desc figDesc del surplus wit "
        f"witDetail index mulu {_RUBY}",
        "text body group floatingText div div0 div1 div2 div3 div4 div5 div6 div7 p ab head lg sp "
        "speaker stage list item table row cell epigraph opener closer salute signed dateline trailer "
        "argument byline label figure u s entry sense castList castItem docTitle titlePart",
        lines="lb pb cb gb milestone addrLine",
        words="l w pc gap",
    ),
    "ALTO": _rules(
        "Description Styles Tags ReadingOrder TopMargin BottomMargin LeftMargin RightMargin",
        "Page TextBlock ComposedBlock",
        lines="TextLine",
    ),
    "PAGE XML": _rules("Metadata ReadingOrder", "Page TextRegion", lines="TextLine"),
    "other XML": _rules(
        f"script style teiHeader cesHeader footnote fn {_RUBY}", None, _INLINE, "br lb", "w", "s"
    ),
    "HTML": _rules(
        f"script style nav head template noscript svg math select button iframe textarea {_RUBY}",
        None,
        f"{_INLINE} s",
        lines="br",
        words="img",
    ),
}
_IN_HEAD = _names("base link meta title style script noscript template")  # of HTML
_OF_ELEMENTS = _names("app choice subst")  # of TEI; white space in them is between elements
# In a TEI ``choice``, what the source has; the first of the other readings is taken, as of an ``app``.
_OF_SOURCE = _names("sic orig abbr am facs")
_READINGS = _names("app choice lem rdg corr reg expan unclear dipl norm")
_LEFT_OUT_OF = {"choice": _OF_SOURCE, "chosen": _OF_SOURCE | _READINGS, "expan": _names("am")}


class _Blocks:
    """Paragraphs from the events of a parser of markup.

    Of an apparatus (``app``), the lemma or else the first reading is kept.
    """

    def __init__(self, rules: _Rules, left_out: Counter[str]) -> None:
        self.done: list[str] = []
        self._rules, self.left_out = rules, left_out
        self._text: list[str] = []
        self._size = 0
        self._skipped, self._depth = "", 0  # the outermost element that is left out; elements of its name
        self._choices: list[str] = []  # open choices and apparatus, "chosen" with a reading, and readings
        self._of_source: dict[str, str] = {}  # text that the open choice leaves out, by element
        self._before_choice = 0  # size of the text
        self._n_sentences = 0  # open elements

    def start(self, name: str, attributes: Mapping[str, str | None]) -> None:
        """Begin an element; names are without prefixes."""
        if self._skipped:
            self._depth += name == self._skipped
            if not (self._skipped == "head" and name not in _IN_HEAD):  # HTML need not close it
                return
            self._skipped = ""
        if name == "choice":
            self._of_source, self._before_choice = {}, self._size
        if label := self._left_out_as(name, attributes):
            self.left_out[label] += 1
            self.text(" " * (name in self._rules.words))
            self._skipped, self._depth = name, 1
        elif name in self._rules.lines:
            if attributes.get("break") == "no":  # the word goes on, without its hyphen
                while self._text and not self._text[-1].strip().strip(HYPHENS):
                    self._text.pop()
                self._text[-1:] = [re.sub(f"[{HYPHENS}]$", "", text.rstrip()) for text in self._text[-1:]]
            else:
                self.text("\n")
        elif name in self._rules.words or attributes.get("class") == "ocrx_word":  # of hOCR
            self.text(" ")
        elif self._is_block(name):
            self.end_paragraph()
        if name in _READINGS and not self._skipped:
            if self._choices[-1:] in (["app"], ["choice"]):
                self._choices[-1] = "chosen"
            self._choices.append(name)
        self._n_sentences += name in self._rules.sentences

    def _left_out_as(self, name: str, attributes: Mapping[str, str | None]) -> str | None:  # noqa: ARG002
        """Return the name under which an element is left out; None for one that is kept."""
        is_other = any(name in _LEFT_OUT_OF.get(around, ()) for around in self._choices[-1:])
        return name if is_other or name in self._rules.left_out else None

    def _is_block(self, name: str) -> bool:
        blocks = self._rules.blocks
        if blocks is not None:
            return name in blocks
        return name not in self._rules.inline and not self._n_sentences

    def end(self, name: str) -> None:
        """End an element."""
        if self._skipped:
            self._depth -= name == self._skipped
            # HTML need not close its <rt> and <rp>.
            if self._depth == 0 or (name == "ruby" and self._skipped in _RUBY.split()):
                self._skipped = ""
            return
        if name == "choice" and self._of_source and self._size == self._before_choice:  # without a reading
            kept = next(iter(self._of_source))
            self.text(self._of_source[kept])
            self.left_out[kept] -= 1
        if name in _READINGS and self._choices:
            self._choices.pop()
        self._n_sentences -= name in self._rules.sentences
        if name in self._rules.words:
            self.text(" ")
        elif name not in self._rules.lines and self._is_block(name):
            self.end_paragraph()

    def characters(self, text: str) -> None:
        """Add what stands between elements."""
        self.text(text)

    def text(self, text: str) -> None:
        """Add text to the paragraph."""
        if not self._skipped:
            self._text.append(text)
            self._size += len(text)
            if self._size > _LONGEST_BLOCK:
                self.end_paragraph()
        elif self._skipped in _OF_SOURCE:
            self._of_source[self._skipped] = self._of_source.get(self._skipped, "") + text

    def end_paragraph(self) -> None:
        """End the paragraph, if it has text."""
        if text := "".join(self._text).strip():
            self.done.append(text)
        self._text, self._size = [], 0

    def taken(self) -> list[str]:
        """Return the finished paragraphs, each once."""
        done, self.done = self.done, []
        return done


class _AltoBlocks(_Blocks):
    """Paragraphs of ALTO, whose words are attributes; the first part of a divided word may give the whole."""

    _is_whole = False  # whether the last word was given by its first part

    def start(self, name: str, attributes: Mapping[str, str | None]) -> None:
        """Begin an element."""
        super().start(name, attributes)
        part = attributes.get("SUBS_TYPE")
        if name == "String" and not self._skipped:
            whole = attributes.get("SUBS_CONTENT") if part == "HypPart1" else None
            if not (part == "HypPart2" and self._is_whole):
                self.text(f" {whole or attributes.get('CONTENT') or ''}")
            self._is_whole = whole is not None
        elif name == "HYP" and not self._is_whole:
            self.text(attributes.get("CONTENT") or "")

    def characters(self, text: str) -> None:
        """Leave out what stands between elements."""


class _PageBlocks(_Blocks):
    """Paragraphs of PAGE XML: the first reading of each line, or of a region whose lines have none."""

    def __init__(self, rules: _Rules, left_out: Counter[str]) -> None:
        super().__init__(rules, left_out)
        self._open: list[str] = []
        self._closed = ""  # the element that ends just before
        self._is_first = False  # whether the last reading is such a one

    def start(self, name: str, attributes: Mapping[str, str | None]) -> None:
        """Begin an element."""
        super().start(name, attributes)
        self._open.append(name)
        if name == "TextEquiv":
            is_empty = not any(map(str.strip, self._text))
            is_first = {
                "TextLine": self._text[-1:] in (["\n"], []),
                "TextRegion": is_empty and self._closed != "TextRegion",
            }
            self._is_first = is_first.get(self._open[-2], False)
        self._closed = ""

    def _left_out_as(self, name: str, attributes: Mapping[str, str | None]) -> str | None:
        kind = attributes.get("type")
        is_around = name == "TextRegion" and kind in _AROUND
        return kind if is_around else super()._left_out_as(name, attributes)

    def end(self, name: str) -> None:
        """End an element."""
        self._closed = self._open.pop()
        super().end(self._closed)

    def characters(self, text: str) -> None:
        """Add to the first reading of a line or region."""
        if self._is_first and self._open[-1] == "Unicode":
            self.text(text)


class _AmidText:
    """Finds the elements that stand somewhere between words of the same element.

    Attributes:
        names: their names.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.left_out = Counter[str]()
        self._open: list[bool] = []  # whether text stands directly before each open element
        self._is_after_text, self._last = False, ""  # the element that has just ended, if text was before it

    def start(self, name: str, attributes: Mapping[str, str | None]) -> None:
        """Begin an element."""
        self._open.append(self._is_after_text)
        self._is_after_text, self._last = False, ""

    def end(self, name: str) -> None:
        """End an element."""
        self._last = name if self._open.pop() else ""
        self._is_after_text = False

    def characters(self, text: str) -> None:
        """See what stands between elements."""
        if text.strip():
            self.names |= {self._last} - {""}
            self._is_after_text, self._last = True, ""


# Types of regions that are left out, as notes and running heads (``fw``) of TEI are.
_AROUND = _names("header footer page-number catch-word signature-mark footnote footnote-continued endnote")
_BLOCKS = {"ALTO": _AltoBlocks, "PAGE XML": _PageBlocks}


def xml_pieces(
    content: BinaryIO,
    name: str,
    encoding: str | None,
    kind: str,
    left_out: Counter[str],
    inline: set[str],
    has_verses: bool,
) -> Iterator[str]:
    """Yield the paragraphs of XML.

    Args:
        content: the bytes.
        name: name of the file in errors.
        encoding: encoding of the characters; None for what the file declares.
        kind: `bilm.text.extract.Kind`.
        left_out: counts the elements that are left out by name.
        inline: more elements that are inside a sentence.
        has_verses: a verse of TEI is a paragraph too.

    Raises:
        DataError: the XML is malformed; names file and line.
    """
    rules = _RULES[kind]
    if has_verses and rules.blocks:
        rules = rules._replace(blocks=rules.blocks | {"l"}, words=rules.words - {"l"})
    blocks = _BLOCKS.get(kind, _Blocks)(rules._replace(inline=rules.inline | inline), left_out)
    for _ in _parsed_xml(content, name, encoding, blocks):
        yield from blocks.taken()
    blocks.end_paragraph()
    yield from blocks.taken()


def names_amid_text(content: BinaryIO, name: str, encoding: str | None) -> set[str]:
    """Return the names of the elements that stand somewhere between words of the same element.

    Args:
        content: the bytes of XML.
        name: name of the file in errors.
        encoding: encoding of the characters; None for what the file declares.

    Raises:
        DataError: the XML is malformed; names file and line.
    """
    found = _AmidText()
    for _ in _parsed_xml(content, name, encoding, found):
        pass
    return found.names


def _parsed_xml(
    content: BinaryIO, name: str, encoding: str | None, events: _Blocks | _AmidText
) -> Iterator[None]:
    """Parse XML, and yield after each block of bytes.

    Raises:
        DataError: the XML is malformed; names file and line.
    """
    parser = expat.ParserCreate(encoding)
    parser.buffer_text = True
    open_elements: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        open_elements.append(name.rpartition(":")[2])
        events.start(open_elements[-1], attributes)

    def characters(text: str) -> None:
        if open_elements[-1] not in _OF_ELEMENTS or text.strip():
            events.characters(text)

    parser.StartElementHandler, parser.CharacterDataHandler = start, characters
    parser.EndElementHandler = lambda _: events.end(open_elements.pop())

    def undefined_entity(entity: str, is_parameter: bool) -> None:
        """Take the entities of HTML, which older TEI has; its definitions are in other files."""
        if (text := html5.get(f"{entity};")) is not None:
            events.characters(text)
        elif not is_parameter:
            events.left_out[f"&{entity};"] += 1

    def external_entity(entity: str | None, *_: str | None) -> int:
        """Read no other file."""
        if entity is None:  # a DTD
            parser.ExternalEntityParserCreate(entity).Parse(b"", True)
        else:
            events.left_out[f"&{entity};"] += 1
        return 1

    parser.SkippedEntityHandler, parser.ExternalEntityRefHandler = undefined_entity, external_entity
    # An undefined entity is an error unless there is a DTD elsewhere.
    parser.UseForeignDTD(True)
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_ALWAYS)
    try:
        while block := content.read(_BLOCK_BYTES):
            parser.Parse(block)
            yield
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        if problem.startswith("not well-formed") and encoding is None:
            problem += "; or `encoding` of `bilm prepare` gives that of its characters"
        raise DataError(f"{name}: line {error.lineno}: the XML is malformed ({problem})") from None
    except (LookupError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        remedy = "convert the XML to UTF-8, also in its first line"
        raise DataError(f"{name}: line 1: {error}; {remedy}") from None


def html_pieces(lines: Iterable[str], left_out: Counter[str]) -> Iterator[str]:
    """Yield the paragraphs of HTML.

    Args:
        lines: the lines.
        left_out: counts the elements that are left out by name.
    """
    blocks = _Blocks(_RULES["HTML"], left_out)

    class Parser(HTMLParser):
        parse_marked_section = HTMLParser.parse_bogus_comment  # which is a failed assertion for "<![ "

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            blocks.start(tag.rpartition(":")[2], dict(attrs))

        def handle_endtag(self, tag: str) -> None:
            blocks.end(tag.rpartition(":")[2])

        def handle_data(self, data: str) -> None:
            blocks.characters(data)

    parser = Parser()
    for group in in_groups(lines, len, _BLOCK_BYTES):  # long scripts are searched anew at each call
        parser.feed("\n".join(group) + "\n")
        yield from blocks.taken()
    parser.close()
    blocks.end_paragraph()
    yield from blocks.taken()
