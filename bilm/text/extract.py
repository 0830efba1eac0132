"""Files that hold text, and their text: plain, TEI and other XML, HTML, JSON lines, CoNLL-U, wikis."""

import codecs
import enum
import html
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.entities import html5
from html.parser import HTMLParser
from pathlib import Path
from typing import BinaryIO, NamedTuple
from xml.parsers import expat

from bilm.errors import DataError
from bilm.io import foreign, messages
from bilm.io.lines import decompressed
from bilm.io.shards import name_of
from bilm.text.pipeline import paragraphs
from bilm.text.settings import Split, is_encoding

_HEAD_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 24  # characters
_LONGEST_BLOCK = 1 << 20  # characters of an element before it is cut
_MOST_NUL = 0.05
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class Kind(enum.StrEnum):
    """Kind of a file that holds text."""

    PLAIN = "plain text"
    TEI = "TEI"
    XML = "other XML"
    HTML = "HTML"
    JSON_LINES = "JSON lines"
    CONLLU = "CoNLL-U"
    WIKI = "wikiextractor"


@dataclass(eq=False)
class Source:
    """A file that holds text.

    Attributes:
        path: the file.
        kind: what it is.
        encoding: encoding of its characters; XML declares its own.
        n_bytes: bytes of the file.
        left_out: elements of markup that were left out, by name.
    """

    path: Path
    kind: Kind
    encoding: str
    n_bytes: int
    left_out: Counter[str] = field(default_factory=Counter)
    _file: BinaryIO | None = None

    @property
    def n_read(self) -> int:
        """Bytes that have been read."""
        return self._file.tell() if self._file is not None and not self._file.closed else 0

    @property
    def name(self) -> str:
        """The user's name of the file."""
        return name_of(self.path)

    def pieces(self, split: Split, json_field: str) -> Iterator[str]:
        """Yield the text of the file: paragraphs, or lines if they are given sentences.

        Args:
            split: what a line of text is; a line of tokens for CoNLL-U.
            json_field: key of the text in JSON lines.

        Raises:
            DataError: the file cannot be read or is malformed; names file and line.
        """
        with _opened(self.path) as (self._file, content):
            yield from self._pieces(content, split, json_field)

    def _pieces(self, content: BinaryIO, split: Split, json_field: str) -> Iterator[str]:
        if self.kind in (Kind.TEI, Kind.XML):
            yield from _xml_pieces(content, self.name, _Blocks(_RULES[self.kind], self.left_out))
            return
        lines = _lines(content, self.name, self.encoding)
        if self.kind is Kind.HTML:
            yield from _html_pieces(lines, _Blocks(_RULES[self.kind], self.left_out))
        elif self.kind is Kind.CONLLU:
            yield from _conllu_sentences(lines, self.name)
        elif self.kind is Kind.JSON_LINES:
            for text in _json_texts(lines, self.name, json_field):
                yield from filter(str.strip, text.splitlines())
        elif self.kind is Kind.WIKI:
            content_lines = (line for line in lines if not re.match(r"</?doc\b", line))
            yield from filter(str.strip, map(html.unescape, content_lines))
        elif split is Split.SENTENCES:
            yield from paragraphs(lines)
        else:
            yield from filter(str.strip, lines)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file, and its decompressed content; failures, also inside the block, are `DataError`s."""
    with messages.os_errors_as(DataError, name_of(path)), path.open("rb") as file:
        with decompressed(file, name_of(path)) as content:
            yield file, content


# --- recognition --------------------------------------------------------------------------------------


def recognise(path: Path, encoding: str | None = None) -> Source:
    """Recognise the kind of a file by its content.

    Args:
        path: the file, plain or compressed.
        encoding: encoding of its characters if they are not UTF-8; by default what the file declares.

    Raises:
        DataError: the file holds no text, or in a form that is not read; names it, with a remedy.
    """
    name = name_of(path)
    with _opened(path) as (_, content):
        head = content.read(_HEAD_BYTES)
    if (what := foreign.not_text(head, is_plain=False)) is not None:
        raise DataError(f"{name}: is {what}")
    if not head.strip():
        raise DataError(f"{name}: is empty")
    mark = next((mark for mark in _BYTE_ORDER_MARKS if head.startswith(mark)), b"")
    if mark:
        encoding = _BYTE_ORDER_MARKS[mark]
    elif encoding is not None and _is_utf8(path):
        encoding = "utf-8"
    text = head.decode(encoding or "utf-8", "replace")
    kind = _kind(text, name)
    declared = re.search(r"<meta[^>]*charset=[\"']?([\w.:-]+)", text[:2048], re.IGNORECASE)
    if kind is Kind.HTML and encoding is None and declared and is_encoding(declared[1]):
        encoding = declared[1]
    if text.count("\0") > _MOST_NUL * len(text):
        raise DataError(f"{name}: is binary, or text in UTF-16 or UTF-32; `encoding` gives its encoding")
    return Source(path, kind, encoding or "utf-8", path.stat().st_size)


def _is_utf8(path: Path) -> bool:
    """Return whether a file is UTF-8 with characters beyond ASCII, which no other encoding looks like."""
    with _opened(path) as (_, content):
        text = io.TextIOWrapper(content, "utf-8")
        try:
            return not all([block.isascii() for block in iter(lambda: text.read(_BLOCK_BYTES), "")])
        except UnicodeDecodeError:
            return False


def _kind(head: str, name: str) -> Kind:
    """Return the kind of a file from the beginning of its text.

    Raises:
        DataError: it is JSON, but not JSON lines.
    """
    head = head.lstrip("\ufeff \t\r\n")
    if re.match(r"<doc\s+id=", head):
        return Kind.WIKI
    if re.match(r"<(!doctype\s+)?html\b", head, re.IGNORECASE):
        return Kind.HTML
    is_xml = re.search(r"\.(xml|tei)\b", name) and head.startswith("<")
    if is_xml or re.match(
        r"<(\?xml|!doctype|[\w:.-]*TEI\b|[\w:.-]+(\s[^>]*)?\sxmlns\b)", head, re.IGNORECASE
    ):
        root = re.search(
            r"<(?:[\w.-]+:)?([A-Za-z_][\w.-]*)", re.sub(r"(?s)<!--.*?-->|<![A-Z]+[^>]*>", "", head)
        )
        roots = {"html": Kind.HTML, "TEI": Kind.TEI, "TEI.2": Kind.TEI, "teiCorpus": Kind.TEI}
        return roots.get(root[1], Kind.XML) if root else Kind.XML
    first, line_end, _ = head.partition("\n")
    value = _parsed(first)
    if isinstance(value, dict) or (
        not line_end and re.match(r'\{\s*"', first)
    ):  # the rest is not in the head
        return Kind.JSON_LINES
    if isinstance(value, list) or re.match(r"\{\s*(\"|\n)|\[\s*\{", head):
        raise DataError(f"{name}: is JSON, but not an object a line; `jq -c` writes it so, of a list `.[]`")
    rows = (line for line in head.split("\n") if line.strip() and not line.startswith("#"))
    return Kind.CONLLU if _CONLLU_ID.match(next(rows, "")) else Kind.PLAIN


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


# --- forms of lines -----------------------------------------------------------------------------------


def _lines(content: BinaryIO, name: str, encoding: str) -> Iterator[str]:
    """Yield the decoded lines of a file without line ends."""
    n_lines = 0
    text = io.TextIOWrapper(content, "utf-8-sig" if encoding == "utf-8" else encoding)
    try:
        while line := text.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                raise DataError(f"{name}: line {n_lines + 1}: the line has more than 16 million characters")
            yield line.removesuffix("\n")
            n_lines += 1
    except UnicodeError as error:
        place = ""
        if isinstance(error, UnicodeDecodeError):
            before = error.object[: error.start].decode(encoding, "ignore")
            n_lines += len(re.split(r"\r\n|\r|\n", before))
            place = f"line {n_lines}: byte 0x{error.object[error.start]:02x} is "
        raise DataError(
            f"{name}: {place}not {encoding.upper()}; `encoding` gives that of the files that are not UTF-8"
        ) from None


def _json_texts(lines: Iterable[str], name: str, json_field: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        values = _parsed(line)
        place = f"{name}: line {number}"
        if not isinstance(values, dict):
            raise DataError(f"{place}: {line!r:.80} is not a JSON object")
        if json_field not in values:
            keys = ", ".join(values)
            problem = f"no {json_field!r:.80} among the keys ({keys:.80})"
            raise DataError(f"{place}: {problem}; `field` names the text")
        text = values[json_field]
        if not isinstance(text, str | None):
            raise DataError(f"{place}: {json_field} is {text!r:.80}, expected a string")
        yield text or ""


_CONLLU_ID = re.compile(r"(\d+)(?:-(\d+)|\.\d+)?\t(?=(?:[^\t]*\t){8}[^\t]*$)")


def _conllu_sentences(lines: Iterable[str], name: str) -> Iterator[str]:
    """Yield the sentences of CoNLL-U, with multiword tokens as they are spelt, not their parts."""
    words: list[str] = []
    last_covered = 0  # number of the last word inside a multiword token
    for number, line in enumerate(lines, 1):
        if not line.strip():
            if words:
                yield " ".join(words)
            words, last_covered = [], 0
        elif not line.startswith("#"):
            identity = _CONLLU_ID.match(line)
            if identity is None:
                raise DataError(
                    f"{name}: line {number}: {line!r:.80} does not have the ten columns of CoNLL-U"
                )
            first, last = identity.groups()
            is_empty_node = "." in identity[0]
            if not is_empty_node and int(first) > last_covered:
                words.append(line.split("\t", 2)[1])
                last_covered = int(last or 0)
    if words:
        yield " ".join(words)


# --- markup -------------------------------------------------------------------------------------------


class _Rules(NamedTuple):
    """What elements mean for the text around them.

    Attributes:
        left_out: elements whose text is left out.
        blocks: elements that begin and end paragraphs; None for all that are not `inline`.
        inline: elements inside a sentence.
        spaces: elements that stand for white space.
    """

    left_out: frozenset[str]
    blocks: frozenset[str] | None
    inline: frozenset[str] = frozenset()
    spaces: frozenset[str] = frozenset()


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INLINE = _names(
    "a abbr acronym b bdi bdo big cite code data del dfn em emph font foreign hi i img ins kbd label lb mark "
    "milestone name num pb persName placeName q ref rp rt ruby s samp seg small span strike strong sub sup "
    "term time tt u var w wbr"
)
_RULES = {
    Kind.TEI: _Rules(
        _names("teiHeader facsimile sourceDoc standOff front back note noteGrp fw figDesc del surplus"),
        _names(
            "text body group floatingText div div0 div1 div2 div3 div4 div5 div6 div7 p ab head lg sp "
            "speaker stage list item table row cell epigraph opener closer salute signed dateline trailer "
            "argument byline label figure u s entry sense castList castItem docTitle titlePart"
        ),
        spaces=_names("lb pb cb gb milestone l w pc gap"),
    ),
    Kind.XML: _Rules(_names("script style"), None, _INLINE, _names("br lb w")),
    Kind.HTML: _Rules(
        _names("script style nav head template noscript svg math select button iframe textarea"),
        None,
        _INLINE,
        _names("br wbr img"),
    ),
}
_LINE_ENDS = _names("lb pb cb gb br")
_CHOICE = _names("sic orig abbr")  # in a TEI ``choice``, what the source has; the editor's reading is taken


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
        self._has_reading: list[bool] = []  # of each open apparatus
        self._n_choices = 0

    def start(self, name: str, attributes: Mapping[str, str | None]) -> None:
        """Begin an element."""
        name = name.rpartition(":")[2]
        if self._skipped:
            self._depth += name == self._skipped
            if not (self._skipped == "head" and name == "body"):  # HTML need not close it
                return
            self._skipped = ""
        if self._is_left_out(name):
            self.left_out[name] += 1
            self._skipped, self._depth = name, 1
        elif name in self._rules.spaces:
            space = "\n" if name in _LINE_ENDS else " "
            self.text("" if attributes.get("break") == "no" else space)
        elif self._is_block(name):
            self.end_paragraph()
        if name == "app":
            self._has_reading.append(False)
        self._n_choices += name == "choice"

    def _is_left_out(self, name: str) -> bool:
        if name in ("lem", "rdg") and self._has_reading:
            had_one, self._has_reading[-1] = self._has_reading[-1], True
            return had_one
        return name in self._rules.left_out or (self._n_choices > 0 and name in _CHOICE)

    def _is_block(self, name: str) -> bool:
        blocks = self._rules.blocks
        return name in blocks if blocks is not None else name not in self._rules.inline

    def end(self, name: str) -> None:
        """End an element."""
        name = name.rpartition(":")[2]
        if self._skipped:
            self._depth -= name == self._skipped
            if self._depth == 0:
                self._skipped = ""
            return
        if name == "app" and self._has_reading:
            self._has_reading.pop()
        self._n_choices -= name == "choice"
        if name in self._rules.spaces:
            self.text(" " if name in ("w", "pc", "l") else "")
        elif self._is_block(name):
            self.end_paragraph()

    def text(self, text: str) -> None:
        """Add text to the paragraph."""
        if not self._skipped:
            self._text.append(text)
            self._size += len(text)
            if self._size > _LONGEST_BLOCK:
                self.end_paragraph()

    def end_paragraph(self) -> None:
        """End the paragraph, if it has text."""
        if text := "".join(self._text).strip():
            self.done.append(text)
        self._text, self._size = [], 0

    def taken(self) -> list[str]:
        """Return the finished paragraphs, each once."""
        done, self.done = self.done, []
        return done


def _html_pieces(lines: Iterable[str], blocks: _Blocks) -> Iterator[str]:
    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            blocks.start(tag, dict(attrs))

        def handle_endtag(self, tag: str) -> None:
            blocks.end(tag)

        def handle_data(self, data: str) -> None:
            blocks.text(data)

    parser = Parser()
    for line in lines:
        parser.feed(line + "\n")
        yield from blocks.taken()
    parser.close()
    blocks.end_paragraph()
    yield from blocks.taken()


def _xml_pieces(content: BinaryIO, name: str, blocks: _Blocks) -> Iterator[str]:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = blocks.start, blocks.end
    parser.CharacterDataHandler = blocks.text

    def undefined_entity(entity: str, is_parameter: bool) -> None:
        """Take the entities of HTML, which older TEI has; its definitions are in other files."""
        if (text := html5.get(f"{entity};")) is not None:
            blocks.text(text)
        elif not is_parameter:
            blocks.left_out[f"&{entity};"] += 1

    parser.SkippedEntityHandler = undefined_entity
    try:
        while block := content.read(_BLOCK_BYTES):
            parser.Parse(block)
            yield from blocks.taken()
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        raise DataError(f"{name}: line {error.lineno}: the XML is malformed ({problem})") from None
    except (LookupError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{name}: line 1: {error}; convert the XML to UTF-8, also in its first line"
        ) from None
    blocks.end_paragraph()
    yield from blocks.taken()
