"""Build an English corpus from the docstrings of installed packages.

    python examples/docstring_corpus.py OUT_DIR [--shards 8] [--max-tokens N] [--heldout-fraction 0.01]

Parses every Python file of the standard library, TensorFlow, Keras and NumPy (without importing it), extracts
the prose of the docstrings, and writes it tokenised, one sentence per line, without duplicates:

    OUT_DIR/train/part-00.txt ...    the text to train on, in shards
    OUT_DIR/heldout.txt              heldout sentences, in none of the shards

The same installation and arguments give the same bytes.
"""

import argparse
import ast
import dataclasses
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

DEFAULT_SOURCES = ("stdlib", "tensorflow", "keras", "numpy")
MIN_TOKENS, MAX_TOKENS = 3, 200
SKIPPED_DIRECTORIES = {"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"}


class CorpusError(Exception):
    """An error that the user can correct."""


# --- files and docstrings ---------------------------------------------------------------------------


def find_source(source: str) -> list[Path]:
    """List the directories of `source`: ``stdlib``, the name of an installed package, or a directory."""
    if source == "stdlib":
        return [Path(sysconfig.get_path("stdlib"))]
    if os.sep in source or source == ".":
        if not Path(source).is_dir():
            raise CorpusError(f"source {source!r} is not a directory")
        return [Path(source)]
    spec = importlib.util.find_spec(source.partition(".")[0])  # a top-level name is not imported
    if spec is None:
        return []
    return [Path(location) for location in spec.submodule_search_locations or ()]


def find_python_files(roots: Iterable[Path]) -> list[Path]:
    """List the ``.py`` files under `roots` without tests, sorted by path within each root."""
    files: list[Path] = []
    for root in roots:
        below = []
        for directory, subdirectories, names in os.walk(root):
            subdirectories[:] = [name for name in subdirectories if name not in SKIPPED_DIRECTORIES]
            below += [Path(directory, name) for name in names if name.endswith(".py")]
        files += sorted(below, key=lambda path: path.relative_to(root).parts)
    return list(dict.fromkeys(files))


def read_docstrings(path: Path) -> list[str]:
    """Read the docstrings of a module, its classes and functions, in the order of the file.

    Raises:
        SyntaxError, ValueError: the file is not valid Python or cannot be decoded.
        OSError: the file cannot be read.
        RecursionError: the code is nested too deeply.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as invalid escapes in strings
        tree = ast.parse(path.read_bytes())
    docstrings = []
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            if docstring:
                docstrings.append(docstring)
        inner = [n for n in ast.iter_child_nodes(node) if isinstance(n, (ast.stmt, ast.excepthandler))]
        pending += reversed(inner)
    return docstrings


# --- from a docstring to paragraphs of prose --------------------------------------------------------

FENCE = re.compile(r"\s*(```|~~~)")
DOCTEST = re.compile(r"\s*>>>")
RULE = re.compile(r"\s*[-=~^*#+_.:|\s]{3,}$")
TABLE_RULE = re.compile(r"\s*(=+\s+=[=\s]*|\+[-=+]+\+)$")
TABLE_ROW = re.compile(r"\s*\|.*\|\s*$|.*\S\s+\|\s+\S.*\s\|\s")
DIRECTIVE = re.compile(r"\s*\.\.\s+(?:([\w-]+)::)?(.*)")
PROSE_DIRECTIVES = {
    *("attention", "caution", "danger", "deprecated", "hint", "important", "note", "rubric", "seealso"),
    *("tip", "versionadded", "versionchanged", "warning"),
}
CODE = re.compile(
    r"""\s*(?:
      import\ [\w., ]+$ | from\ [\w.]+\ import\  | (?:def\ \w+\(|class\ \w+[(:])
    | for\ [\w, ]+\ in\ .*:$ | (?:if|elif|while|with)\ .*[)\]\d'"]:$ | (?:else|try|except\b.*):$
    | return$ | print\( | @\w | \# | \$\  | %\       # statements, comments, prompts
    | [\w.\[\]]+(?:,\ ?[\w.\[\]]+)*\ [-+*/]?=\    # assignments
    | [\w.]+=\S
    | [\w.]+\([^()]*(?:\([^()]*\)[^()]*)*\)(?:\ ?->.*)?$   # calls and signatures
    | [\])}]+,?;?$ | .*\{$ | .*\);$ | \S+;$
    )""",
    re.VERBOSE,
)
FIELD = re.compile(r"^:(?:param|parameter|arg|type|rtype|returns?|raises?|ivar|cvar|var)\b[^:]*:\s*")
TYPE_LINE = re.compile(r"\*{0,2}\w+(?:, \*{0,2}\w+)* : ")
ITEM = re.compile(r"^(?:[-*+•]|\(?\d{1,2}[.)]|\(?[a-z]\))\s+")
ARGUMENT = re.compile(r"\*{0,2}`?\w+`?(?: \([^)]*\))?: +")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def prose_lines(docstring: str) -> Iterator[str]:
    """Yield the lines of a docstring, with "" in place of code, examples, tables and rules."""
    fenced = until_blank = False
    block_indent: int | None = None  # indent of the line that opened the current block
    for line in docstring.expandtabs().splitlines():
        if FENCE.match(line):
            fenced = not fenced
            yield ""
            continue
        if not line.strip():
            until_blank = False
            yield ""
            continue
        if block_indent is not None and _indent(line) <= block_indent:
            block_indent = None
        if fenced or until_blank or block_indent is not None:
            continue
        directive = DIRECTIVE.match(line)
        if DOCTEST.match(line) or TABLE_RULE.match(line):
            until_blank = True
            yield ""
        elif directive and directive[1] in PROSE_DIRECTIVES:
            yield ""
        elif directive:
            block_indent = _indent(line)
            yield ""
        elif RULE.match(line) or TABLE_ROW.match(line) or CODE.match(line):
            yield ""
        else:
            if line.rstrip().endswith("::"):
                block_indent = _indent(line)
                line = line.rstrip()[:-1]
            yield line


def split_paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """Join lines to paragraphs; a list item or an argument starts a new one."""
    paragraph: list[str] = []
    indent = 0  # of the line before
    for line in lines:
        text = line.strip()
        starts = bool(ITEM.match(text) or ARGUMENT.match(text) or FIELD.match(text))
        headed = _indent(line) > indent and bool(paragraph) and paragraph[-1].endswith(":")
        if paragraph and (not text or starts or headed or _indent(line) < indent):
            yield " ".join(paragraph)
            paragraph = []
        if text and not TYPE_LINE.match(text):
            paragraph.append(FIELD.sub("", ITEM.sub("", text, count=1), count=1))
            indent = _indent(line)
    if paragraph:
        yield " ".join(paragraph)


MARKUP: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"!?\[([^\]]*)\]\((?:[^()]|\([^()]*\))*\)"), r"\1"),  # [text](address)
    (re.compile(r"\[[\w#*]+\]_(?!\w)"), ""),  # [1]_
    (re.compile(r"<?\b(?:https?|ftp)://[^\s>)\]]+>?"), ""),
    (re.compile(r"\\+\(.*?\\+\)|\\+\[.*?\\+\]|\$\$.*?\$\$"), ""),
    (re.compile(r":[\w:+-]+:`~?[.!]?([^`<]*?)(?: *<[^`>]*>)?`"), r"`\1`"),  # :func:`name <target>`
    (re.compile(r"(?<![\w*`])(\*{1,2})(?=[^\s*])([^*`]*?[^\s*])\1(?![\w*])"), r"\2"),  # *emphasis*
    (re.compile(r"``?([^`]*)``?_{0,2}"), r"`\1`"),
    (re.compile(r"\s+"), " "),
)


def strip_markup(text: str) -> str:
    """Convert a paragraph to plain text; only single backquotes around code are kept."""
    for pattern, replacement in MARKUP:
        text = pattern.sub(replacement, text)
    return text.strip()


# --- sentences and tokens ---------------------------------------------------------------------------

BOUNDARY = re.compile(r"[.?!][\"')\]`]*(\s+)(?=[\"'(\[`]*[A-Z]|`)")
ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|vs|approx|resp|incl|fig|eq|no|sec|vol|pp?|dr|mr|mrs|ms|prof|st|al)|\b[A-Z])\.$",
    re.IGNORECASE,
)
NUMBERING = re.compile(r"\b(?:no|p)\.$", re.IGNORECASE)  # "no." and "p." abbreviate only before a number

TOKEN = re.compile(
    r"""
      (?:e\.g|i\.e|cf|vs|etc)\.(?!\w)               # abbreviations keep their full stop
    | \d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?(?!\w|[.,]\d|-\w)  # numbers
    | (?<!\S)--?[A-Za-z](?:[\w-]*\w)?              # an option of a command
    | \w+(?:[.-]\w+)*(?:['’](?:t|re|ve|ll|d|m)\b)?  # words, n-dimensional, don't, tf.nn.relu, n_tokens
    | ['’]s\b                                       # possessives
    | \.{2,} | -{2,} | [-=]> | [=!<>+*/-]= | \*\* | << | >>
    | [^\w\s]
    """,
    re.VERBOSE,
)


def split_sentences(paragraph: str) -> list[str]:
    """Split at ``.``, ``?`` or ``!`` before whitespace and a capital or a quoted name."""
    sentences, start = [], 0
    for match in BOUNDARY.finditer(paragraph):
        head = paragraph[start : match.start() + 1]
        abbreviated = ABBREVIATION.search(head)
        if abbreviated and not NUMBERING.search(head):
            continue
        sentences.append(paragraph[start : match.start(1)])
        start = match.end()
    sentences.append(paragraph[start:])
    return [sentence for sentence in map(str.strip, sentences) if sentence]


def tokenize(sentence: str) -> list[str]:
    """Split into words, numbers and punctuation; identifiers such as ``tf.nn.relu`` are one token."""
    return TOKEN.findall(sentence.replace("`", ""))


def is_prose(tokens: Sequence[str]) -> bool:
    """Tell whether a sentence has an acceptable length and consists mostly of words."""
    words = sum(token[0].isalpha() for token in tokens)
    return MIN_TOKENS <= len(tokens) <= MAX_TOKENS and 2 * words >= len(tokens)


def docstring_sentences(docstring: str) -> Iterator[str]:
    """Yield the sentences of a docstring, tokens joined by single spaces."""
    for paragraph in split_paragraphs(prose_lines(docstring)):
        for sentence in split_sentences(strip_markup(paragraph)):
            tokens = tokenize(sentence)
            if is_prose(tokens):
                yield " ".join(tokens)


# --- the corpus -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Corpus:
    """Distinct sentences in order of first appearance, and counts of the input."""

    sentences: dict[str, None] = dataclasses.field(default_factory=dict)
    n_files: int = 0
    n_skipped: int = 0
    n_docstrings: int = 0
    n_sentences_read: int = 0
    n_tokens_read: int = 0

    @property
    def n_tokens(self) -> int:
        """Number of tokens in the distinct sentences."""
        return sum(map(count_tokens, self.sentences))


def count_tokens(sentence: str) -> int:
    """Number of tokens in a line of the corpus."""
    return sentence.count(" ") + 1


def collect(files: Iterable[Path]) -> Corpus:
    """Read the docstrings of `files`; files that are not valid Python are counted and skipped."""
    corpus = Corpus()
    for path in files:
        try:
            docstrings = read_docstrings(path)
        except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
            corpus.n_skipped += 1
            continue
        corpus.n_files += 1
        corpus.n_docstrings += len(docstrings)
        for docstring in docstrings:
            for sentence in docstring_sentences(docstring):
                corpus.n_sentences_read += 1
                corpus.n_tokens_read += count_tokens(sentence)
                corpus.sentences[sentence] = None
    return corpus


def fraction(sentence: str, purpose: str) -> float:
    """Hash the arguments to a number in [0, 1)."""
    digest = hashlib.blake2b(f"{purpose}\n{sentence}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def limit_tokens(sentences: Iterable[str], max_tokens: int) -> list[str]:
    """Draw an even sample of `sentences`, in order, of at most `max_tokens` tokens."""
    kept, n_tokens = set(), 0
    sentences = list(sentences)
    for sentence in sorted(sentences, key=lambda sentence: fraction(sentence, "limit")):
        n_tokens += count_tokens(sentence)
        if n_tokens > max_tokens:
            break
        kept.add(sentence)
    return [sentence for sentence in sentences if sentence in kept]


def split_heldout(sentences: Iterable[str], heldout_fraction: float) -> tuple[list[str], list[str]]:
    """Split into training and heldout sentences; the side of a sentence depends on the sentence alone."""
    train: list[str] = []
    heldout: list[str] = []
    for sentence in sentences:
        (heldout if fraction(sentence, "heldout") < heldout_fraction else train).append(sentence)
    return train, heldout


def check_out_dir(out_dir: Path, overwrite: bool) -> None:
    """Check that the directory is empty or, with `overwrite`, contains only a corpus."""
    if not out_dir.exists():
        return
    if not out_dir.is_dir():
        raise CorpusError(f"{out_dir} exists and is not a directory")
    names = {str(path.relative_to(out_dir)) for path in out_dir.rglob("*")}
    if names and not overwrite:
        raise CorpusError(f"{out_dir} is not empty; give another directory, or --overwrite")
    if not all(re.fullmatch(r"heldout\.txt|train(/part-[0-9]+\.txt)?", name) for name in names):
        raise CorpusError(f"{out_dir} contains more than a corpus; nothing in it was changed")


def write_corpus(out_dir: Path, train: Sequence[str], heldout: Sequence[str], n_shards: int) -> None:
    """Write the corpus to a temporary directory beside `out_dir`, then rename it."""
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    partial = out_dir.with_name(f".{out_dir.name}.partial-{os.getpid()}")
    try:
        (partial / "train").mkdir(parents=True)
        for shard in range(n_shards):
            part = train[shard * len(train) // n_shards : (shard + 1) * len(train) // n_shards]
            _write_lines(partial / "train" / f"part-{shard:02d}.txt", part)
        _write_lines(partial / "heldout.txt", heldout)
        if out_dir.exists():
            shutil.rmtree(out_dir)
        partial.rename(out_dir)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)


def build_corpus(
    out_dir: Path,
    roots: Sequence[Path],
    n_shards: int = 8,
    max_tokens: int | None = None,
    heldout_fraction: float = 0.01,
    overwrite: bool = False,
) -> Corpus:
    """Read the Python files under `roots` and write the corpus to `out_dir`."""
    check_out_dir(out_dir, overwrite)
    corpus = collect(find_python_files(roots))
    if max_tokens is not None:
        corpus.sentences = dict.fromkeys(limit_tokens(corpus.sentences, max_tokens))
    train, heldout = split_heldout(corpus.sentences, heldout_fraction)
    if len(train) < n_shards or not heldout:
        raise CorpusError(
            f"{len(train)} sentences to train on and {len(heldout)} held out are too few for {n_shards} "
            "shards and a heldout file; read more sources, or give fewer --shards"
        )
    write_corpus(out_dir, train, heldout, n_shards)
    return corpus


# --- the command line -------------------------------------------------------------------------------


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, got {text!r}")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a number between 0 and 1, got {text!r}")
    return value


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line; exit with status 2 if it is not valid."""
    parser = argparse.ArgumentParser(description="Build an English corpus from installed docstrings.")
    parser.add_argument("out_dir", type=Path, metavar="OUT_DIR", help="directory to write")
    parser.add_argument("--shards", type=_positive, default=8, help="number of training files (8)")
    parser.add_argument(
        "--max-tokens", type=_positive, help="write an even sample of at most this many tokens"
    )
    parser.add_argument(
        "--heldout-fraction", type=_share, default=0.01, help="share of sentences held out (0.01)"
    )
    parser.add_argument(
        "--source",
        action="append",
        dest="sources",
        help="stdlib, an installed package, or a directory (with a slash); repeatable "
        f"(default: {', '.join(DEFAULT_SOURCES)}, if installed)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace a corpus in OUT_DIR")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build a corpus, print its statistics, and return the exit status."""
    args = parse_arguments(arguments)
    start = time.perf_counter()
    try:
        roots_of = {source: find_source(source) for source in args.sources or DEFAULT_SOURCES}
        missing = [source for source, roots in roots_of.items() if not roots]
        if args.sources and missing:
            raise CorpusError(f"not an installed package: {', '.join(missing)}")
        roots = [root for roots in roots_of.values() for root in roots]
        corpus = build_corpus(
            args.out_dir, roots, args.shards, args.max_tokens, args.heldout_fraction, args.overwrite
        )
    except (CorpusError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    print(f"sources:   {', '.join(source for source in roots_of if source not in missing)}")
    print(f"files:     {corpus.n_files:,} read, {corpus.n_skipped:,} skipped (not valid Python)")
    print(f"found:     {corpus.n_tokens_read:,} tokens in {corpus.n_sentences_read:,} sentences")
    print(f"written:   {corpus.n_tokens:,} tokens in {len(corpus.sentences):,} distinct sentences")
    print(f"directory: {args.out_dir} ({args.shards} shards, heldout.txt)")
    print(f"seconds:   {time.perf_counter() - start:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
