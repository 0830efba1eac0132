"""Files that hold text, and their text: plain, XML, HTML, JSON lines, tables, CoNLL-U, wikis, subtitles."""

import codecs
import csv
import enum
import html
import io
import json
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import BinaryIO

from bilm.errors import DataError
from bilm.io import foreign, messages
from bilm.io.lines import Lines, TextFile, decompressed, lines_of
from bilm.io.shards import can_be_read_once, name_of
from bilm.text import markup
from bilm.text.doubts import are_rows, are_tokenised
from bilm.text.pipeline import TextPipeline, paragraphs
from bilm.text.settings import Split, is_encoding

_LOG = logging.getLogger(__name__)

_HEAD_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 16
_LONGEST_LINE = 1 << 24  # characters
_LONGEST_PIECE = 1 << 21  # characters; tokenised, it is still a line that `bilm.io.lines` reads
_OF_NO_TEXT = re.compile("[\0-\x08\x0e-\x1a]")
_MOST_OF_NO_TEXT = 0.05  # share of these characters in a text; 9% of a picture
_BYTE_ORDER_MARKS = {  # the first that fits
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
# Encodings that are read as one with more characters, which files often have.
_READ_AS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "cp950",
    "tis-620": "cp874",
    "iso8859-11": "cp874",
}
_ABOUT = re.compile(
    r"(README|COPYING|COPYRIGHT|NOTICE|CHANGELOG|CITATION|LICEN[CS]E(-[\w.]+)?)(\.\w+)*", re.IGNORECASE
)
_TABLE_NAME = re.compile(r"\.[ct]sv\b[^/]*$", re.IGNORECASE)


class NoTextError(DataError):
    """A file holds no text, or in a form that is not read; the message names it and may have a remedy."""


class Kind(enum.StrEnum):
    """Kind of a file that holds text."""

    PLAIN = "plain text"
    TEI = "TEI"
    ALTO = "ALTO"
    PAGE = "PAGE XML"
    XML = "other XML"
    HTML = "HTML"
    JSON_LINES = "JSON lines"
    TABLE = "table"
    CONLLU = "CoNLL-U"
    WIKI = "wikiextractor"
    SUBTITLES = "subtitles"


ROWS, TOKENISED = "rows of a table", "tokenised"
"""Kinds of text that plain text may turn out to be."""
_REMEDIES = {ROWS: "give the text alone", TOKENISED: "leave out `raw` to keep the words"}

_XML = (Kind.TEI, Kind.ALTO, Kind.PAGE, Kind.XML)
_ROOTS = {  # elements
    "html": Kind.HTML,
    **dict.fromkeys(("TEI", "TEI.2", "teiCorpus"), Kind.TEI),
    "alto": Kind.ALTO,
    "PcGts": Kind.PAGE,
}
_REFUSED = {  # elements
    "FoLiA": "FoLiA; `folia2txt` of FoLiA-tools converts it to text",
    "mets": "METS, a list of the files of a digitised text; give the files that hold the text",
}


@dataclass(eq=False)
class Source:
    """A file that holds text.

    Attributes:
        path: the file.
        kind: what it is.
        encoding: encoding of its characters; None if no other than UTF-8 is declared or given.
        n_bytes: bytes of the file.
        seems: what plain text seems to be instead: rows of a table, or tokenised.
        left_out: elements of markup that were left out, by name.
    """

    path: Path
    kind: Kind
    encoding: str | None
    n_bytes: int
    seems: str | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    _file: BinaryIO = field(default_factory=io.BytesIO)

    @property
    def n_read(self) -> int:
        """Bytes that have been read."""
        return self.n_bytes if self._file.closed else self._file.tell()

    @property
    def name(self) -> str:
        """The user's name of the file."""
        return name_of(self.path)

    def lines(self, split: Split, text_field: str) -> Iterator[str]:
        """Yield the lines of the text, with blank lines between paragraphs; a paragraph of markup is a line.

        Args:
            split: what a line of text is; where it is a sentence, a verse of TEI is a line.
            text_field: key of the text in JSON lines, or the name of its column in a table.

        Raises:
            DataError: the file cannot be read or is malformed; names file and line.
        """
        with _opened(self.path) as (self._file, content):
            yield from self._lines(content, split, text_field)

    def pieces(self, split: Split, text_field: str) -> Iterator[str]:
        """Yield the text of the file: paragraphs, or lines if they are given sentences.

        Args:
            split: what a line of text is; a line of tokens for CoNLL-U.
            text_field: as for `lines`.

        Raises:
            DataError: as `lines`.
        """
        lines = self.lines(split, text_field)
        are_sentences = split is not Split.SENTENCES or self.kind is Kind.CONLLU
        for piece in filter(str.strip, lines) if are_sentences else paragraphs(lines):
            if len(piece) > _LONGEST_PIECE:
                problem = "has more than 2 million characters before a line end or full stop"
                raise DataError(f"{self.name}: the text that begins {piece:.40} {problem}")
            yield piece

    def raw_lines(self, steps: TextPipeline) -> Lines:
        """Return the lines of the text, with blank lines between paragraphs; they can be read again.

        Warns of plain text that seems to be something else.

        Args:
            steps: say what a line is, and the key of the text.

        Raises:
            DataError: the file is CoNLL-U; or, during the iteration, as `lines`.
        """
        if self.kind is Kind.CONLLU:
            raise DataError(
                f"{self.name}: is CoNLL-U, which is tokenised already; convert it with `bilm prepare` and "
                "`heldout` 0, and read the result without `raw`"
            )
        if self.seems is not None:
            _LOG.warning("%s: most lines seem to be %s; %s", self.name, self.seems, _REMEDIES[self.seems])
        return Lines(lambda: self.lines(steps.split, steps.field))

    def _lines(self, content: BinaryIO, split: Split, text_field: str) -> Iterator[str]:
        if self.kind in _XML:
            inline, has_verses = set[str](), split is not Split.SENTENCES
            if self.kind is Kind.XML:
                with _opened(self.path) as (_, again):
                    inline = markup.names_amid_text(again, self.name, self.encoding)
            pieces = markup.xml_pieces(
                content, self.name, self.encoding, self.kind, self.left_out, inline, has_verses
            )
            return _apart(pieces)
        lines = _lines(content, self.name, self.encoding or "utf-8")
        match self.kind:
            case Kind.HTML:
                return _apart(markup.html_pieces(lines, self.left_out))
            case Kind.CONLLU:
                return _conllu_sentences(lines, self.name)
            case Kind.JSON_LINES:
                texts = _json_texts(lines, self.name, text_field)
                return _apart(line for text in texts for line in text.splitlines())
            case Kind.WIKI:
                content_lines = (line for line in lines if not re.match(r"</?doc\b", line))
                return _apart(map(html.unescape, content_lines))
            case Kind.TABLE:
                return (line for cell in _cells(lines, self.name, text_field) for line in (*cell, ""))
            case Kind.SUBTITLES:
                return _spoken_lines(lines)
        return lines


def _apart(pieces: Iterable[str]) -> Iterator[str]:
    """Yield pieces with blank lines between them."""
    return (line for piece in pieces for line in (piece, ""))


def raw_lines(file: TextFile, steps: TextPipeline) -> Iterable[str]:
    """Return the lines of a raw text of any kind, with blank lines between paragraphs.

    Args:
        file: a file that `recognise` knows; a pipe or an open file, which is read once, has plain text.
        steps: say the encoding and the key of the text.

    Raises:
        DataError: as `recognise` and `Source.raw_lines`.
    """
    if not isinstance(file, str | os.PathLike) or can_be_read_once(file):
        return lines_of(file)
    return recognise(Path(file), steps.encoding, steps.field).raw_lines(steps)


@contextmanager
def _opened(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Open a file, and its decompressed content; failures, also inside the block, are `DataError`s."""
    with messages.os_errors_as(DataError, name_of(path)), path.open("rb") as file:
        with decompressed(file, name_of(path)) as content:
            yield file, content


# --- recognition --------------------------------------------------------------------------------------


def recognise(path: Path, encoding: str | None = None, text_field: str = "text") -> Source:
    """Recognise the kind of a file by its content.

    Args:
        path: the file, plain or compressed.
        encoding: encoding of its characters if they are not UTF-8 and the file declares no other.
        text_field: key of the text in JSON lines, or the name of its column in a table.

    Raises:
        NoTextError: the file holds no text, or in a form that is not read; names it, with a remedy.
        DataError: the file cannot be read.
    """
    name = name_of(path)
    with _opened(path) as (_, content):
        head = content.read(_HEAD_BYTES)
    if (what := foreign.not_text(head, is_plain=False)) is not None:
        raise NoTextError(f"{name}: is {what}")
    if not head.strip():
        raise NoTextError(f"{name}: is empty")
    mark = next((mark for mark in _BYTE_ORDER_MARKS if head.startswith(mark)), b"")
    if mark:
        encoding = _BYTE_ORDER_MARKS[mark]
    elif encoding is not None:
        encoding = "utf-8" if _is_utf8(path, encoding) else _read_as(encoding)
    text = head.decode(encoding or "utf-8", "replace")
    kind = _kind(text, name, text_field)
    declared = _DECLARED.search(text) if kind in (*_XML, Kind.HTML) and not mark else None
    if declared and is_encoding(declared[1]):
        if codecs.lookup(declared[1]).name != "utf-8":
            encoding = "utf-8" if _is_utf8(path, declared[1]) else _read_as(declared[1])
        elif declared[1].lower() != "utf-8":  # such as Python's utf8, which XML parsers do not know
            encoding = encoding or "utf-8"
    if len(_OF_NO_TEXT.findall(text)) > _MOST_OF_NO_TEXT * len(text):
        remedy = "convert it with iconv, or give `bilm prepare` its `encoding`"
        raise NoTextError(f"{name}: is binary, or text in UTF-16 or UTF-32; {remedy}")
    seems = None
    if kind in (Kind.PLAIN, Kind.WIKI):
        lines = [stripped for line in text.splitlines() if (stripped := line.strip())]
        is_table = _TABLE_NAME.search(name) or are_rows(lines)
        seems = ROWS if is_table else TOKENISED if are_tokenised(lines) else None
    return Source(path, kind, encoding, path.stat().st_size, seems)


def recognise_all(
    files: Sequence[Path], named: Iterable[str], encoding: str | None, text_field: str
) -> tuple[list[Source], dict[str, str]]:
    """Recognise files; one without text is refused if the user named it, otherwise skipped.

    Args:
        files: the files.
        named: names of the files that the user named, rather than a folder.
        encoding: as for `recognise`.
        text_field: as for `recognise`.

    Returns:
        The files that hold text, and the reasons of those that are skipped, by their names.

    Raises:
        DataError: files cannot be read; or a named file, or all files, hold no text.
    """
    sources, skipped, problems = [], dict[str, str](), list[DataError]()
    named = {*map(str, map(Path, named))}
    for file in files:
        name = name_of(file)
        try:
            is_named = name in named or name != str(file)  # as a pipe is, whose copy is read
            if not is_named and _ABOUT.fullmatch(file.name):
                reason = "seems to describe the texts, by its name; give the file itself to read it"
                raise NoTextError(f"{name}: {reason}")
            sources.append(recognise(file, encoding, text_field))
        except NoTextError as error:
            if is_named or len(files) == 1:
                raise
            skipped[name] = str(error).removeprefix(f"{name}: ")
        except DataError as error:
            problems.append(error)
    raise_problems(problems)
    if not sources:
        first = ": ".join(next(iter(skipped.items())))
        raise DataError(f"none of the {len(files):,} files holds text; the first: {first}")
    return sources, skipped


def raise_problems(problems: Sequence[DataError]) -> None:
    """Raise what is wrong with files, all together."""
    if len(problems) > 1:
        raise DataError.listing(f"{len(problems):,} files cannot be read", map(str, problems))
    if problems:
        raise problems[0]


def _read_as(encoding: str) -> str:
    """Return the encoding that is read where another is named."""
    return _READ_AS.get(codecs.lookup(encoding).name, encoding)


def _is_utf8(path: Path, encoding: str) -> bool:
    """Return whether a file is UTF-8 rather than in another encoding.

    UTF-8 beyond ASCII looks like no other encoding. ASCII may be one of seven bits, but not UTF-16.
    """
    with _opened(path) as (_, content):
        text = io.TextIOWrapper(content, "utf-8")
        try:
            blocks = [(block.isascii(), "\0" in block) for block in iter(lambda: text.read(_BLOCK_BYTES), "")]
        except UnicodeDecodeError:
            return False
    is_ascii, has_nul = all(ascii for ascii, _ in blocks), any(nul for _, nul in blocks)
    return not is_ascii or (not has_nul and "a".encode(encoding) != b"a")


_XML_START = re.compile(r"<(\?xml|!doctype|[\w:.-]*TEI\b|[\w:.-]+(\s[^>]*)?\sxmlns\b)", re.IGNORECASE)
_OF_HTML = "head|title|meta|body|div|p|h[1-6]|table|article|section"
# An encoding.
_DECLARED = re.compile(r"(?i)<(?:meta[^>]*charset|\?xml[^>]*encoding)\s*=\s*[\"']?([\w.:-]+)")


def _kind(head: str, name: str, text_field: str) -> Kind:
    """Return the kind of a file from the beginning of its text.

    Raises:
        NoTextError: the form is not read, such as JSON other than JSON lines.
    """
    head = re.sub(r"(?s)^(\s|\ufeff|<!--.*?-->)+", "", head)
    if re.match(r"<doc\s+id=", head):
        return Kind.WIKI
    if re.match(r"<(!doctype\s+)?html\b", head, re.IGNORECASE):
        return Kind.HTML
    is_xml = re.search(r"\.(xml|tei)\b[^/]*$", name) and head.startswith("<")
    if is_xml or _XML_START.match(head):
        elements = re.sub(r"(?s)<!--.*?-->|<![^\[>]*(\[.*?\]\s*)?>", "", head)
        root = "".join(re.findall(r"<(?:[\w.-]+:)?([A-Za-z_][\w.-]*)", elements)[:1])
        if root in _REFUSED:
            raise NoTextError(f"{name}: is {_REFUSED[root]}")
        return _ROOTS.get(root, Kind.XML)
    has_name = re.search(r"\.x?html?\b[^/]*$", name, re.IGNORECASE) and head.startswith("<")
    if has_name or re.match(rf"<({_OF_HTML})\b[^<>]*>", head, re.IGNORECASE):
        return Kind.HTML
    first, line_end, _ = head.partition("\n")
    value = _parsed(first)
    is_cut = not line_end and re.match(r'\{\s*"', first)  # the rest is not in the head
    if isinstance(value, dict) or is_cut:
        return Kind.JSON_LINES
    if (isinstance(value, list) and str in map(type, value)) or re.match(r"\{\s*\"|\[\s*\{", head):
        reason = "is JSON, but not one object per line; convert it with `jq -c . FILE` or `jq -c .[] FILE`"
        raise NoTextError(f"{name}: {reason}")
    if _delimiter(first, text_field, name) is not None:
        return Kind.TABLE
    if re.match(rf"WEBVTT\b|(\d+\s+)?{_TIMES}", head):
        return Kind.SUBTITLES
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
        other = "mac-roman" if encoding in ("cp1252", "cp1254") else "latin-1"  # those of Windows
        remedy = (
            f"give its encoding to `bilm prepare` as `encoding`, such as {other}, or save the file as UTF-8"
        )
        raise DataError(f"{name}: {place}not {encoding.upper()}; {remedy}") from None


def _json_texts(lines: Iterable[str], name: str, key: str) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        values = _parsed(line)
        place = f"{name}: line {number}"
        if not isinstance(values, dict):
            raise DataError(f"{place}: {line!r:.80} is not a JSON object")
        if key not in values:
            keys = ", ".join(values)
            problem = f"no {key!r:.80} among the keys ({keys:.80})"
            raise DataError(f"{place}: {problem}; give that of the text to `bilm prepare` as `field`")
        text = values[key]
        if not isinstance(text, str | None):
            raise DataError(f"{place}: {key} is {text!r:.80}, expected a string")
        is_escaped = {"id", "revid", "url", "title"} <= values.keys()  # by wikiextractor
        yield html.unescape(text or "") if is_escaped else text or ""


def _delimiter(header: str, column: str, name: str) -> str | None:
    """Return the delimiter of a table by its first line, if that names the column; None if it does not."""
    for mark in "\t,;" if re.search(r"\.tsv\b[^/]*$", name, re.IGNORECASE) else ",;\t":
        names = next(csv.reader([header.strip("\r\n").partition("\r")[0]], delimiter=mark), [])
        if column in names and (len(names) > 1 or _TABLE_NAME.search(name)):
            return mark
    return None


def _cells(lines: Iterator[str], name: str, column: str) -> Iterator[Iterable[str]]:
    """Yield the lines of each cell in a column of a table, whose first line names the columns."""
    csv.field_size_limit(_LONGEST_LINE)  # of the process
    numbered = ((n, line) for n, line in enumerate(lines) if _delimiter(line, column, name))
    n_before, header = next(numbered, (0, ""))  # blank lines
    if (delimiter := _delimiter(header, column, name)) is None:
        raise DataError(
            f"{name}: no line names the column {column!r:.80}; give another to `bilm prepare` as `field`"
        )
    rows = csv.reader(chain([header], (f"{line}\n" for line in lines)), delimiter=delimiter, strict=True)
    try:
        columns = next(rows)
        for row in filter(None, rows):
            if len(row) != len(columns):
                problem = f"{len(row)} cells, and the first line has {len(columns)}"
                raise DataError(f"{name}: line {n_before + rows.line_num}: {problem}")
            if delimiter == "\t" and any("\t" in cell for cell in row):
                raise csv.Error("a quotation mark is not closed in its line")
            yield row[columns.index(column)].splitlines()
    except csv.Error as error:
        remedy = 'a cell that begins with a quotation mark must be written as """Yes,"" he said."'
        raise DataError(f"{name}: line {n_before + rows.line_num}: {error}; {remedy}") from None


_TIMES = r"(\d+:)?\d\d:\d\d[,.]\d{3}\s+-->"


def _spoken_lines(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of SubRip's and WebVTT's subtitles, without blank ones, headers, numbers and times."""
    for is_blank, those in groupby(lines, lambda line: not line.strip()):
        block = [*those]
        times = {number for number, line in enumerate(block) if re.match(rf"\s*{_TIMES}", line)}
        if is_blank or (not times and re.match(r"(WEBVTT|NOTE|STYLE|REGION)\b", block[0])):
            continue
        names = {number - 1 for number in times if number == 1 or block[number - 1].strip().isdecimal()}
        for number, line in enumerate(block):
            if number not in times | names:
                yield html.unescape(re.sub(r"</?(?:[a-z\d][^>]*|[BIU]|FONT\b[^>]*)>|\{\\[^}]*\}", "", line))


_CONLLU_ID = re.compile(r"(\d+)(?:-(\d+)|\.\d+)?\t(?=(?:[^\t]*\t){8}[^\t]*$)")


def _conllu_sentences(lines: Iterable[str], name: str) -> Iterator[str]:
    """Yield the sentences of CoNLL-U, with multiword tokens as they are spelt, not their parts."""
    words: list[str] = []
    last_covered = 0  # number of the last word inside a multiword token
    for number, line in enumerate(chain(lines, [""]), 1):
        if not line.strip():
            if words:
                yield " ".join(words)
            words, last_covered = [], 0
        elif not line.startswith("#"):
            if (identity := _CONLLU_ID.match(line)) is None:
                problem = f"{line!r:.80} does not have the ten columns of CoNLL-U"
                raise DataError(f"{name}: line {number}: {problem}")
            first, last = identity.groups()
            if "." not in identity[0] and int(first) > last_covered:  # 8.1 is an empty node
                words.append(line.split("\t", 2)[1])
                last_covered = int(last or 0)
