"""``bilm prepare``."""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.cli import flags
from bilm.errors import OptionsError
from bilm.io.messages import json_line, printable, size_of
from bilm.io.progress import ProgressLine

if TYPE_CHECKING:
    from bilm.text.prepare import Preparation, Progress

_WIDTH = 80
_MARGIN = 13  # of the second column
_N_NAMED = 10  # files, elements and the like that the page names


def _share(text: str) -> float:
    """Parse ``2%`` or ``0.02``.

    Raises:
        OptionsError: it is neither.
    """
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise OptionsError(f"{text!r:.80} is not a share, such as 2% or 0.02") from None


@click.command(cls=flags.TextCommand, short_help="Make a corpus of raw text in any language.")
@click.argument("texts", type=flags.TEXT, nargs=-1, required=True, metavar="TEXTS...")
@click.option("--out", type=flags.FILE, required=True, help="Directory of the corpus to write.")
@click.option(
    "--language",
    metavar="CODE",
    default="und",
    help="Language, such as en or pt-BR, for abbreviations and ends of sentences; und for none.",
)
@click.option(
    "--form",
    type=click.Choice(["NFC", "NFD", "NFKC", "none"]),
    default="NFC",
    help="Unicode's normal form of the corpus.",
)
@click.option("--keep-lines", is_flag=True, help="Each line is a sentence.")
@click.option("--tokens", is_flag=True, help="Each line is a sentence, its words separated by spaces.")
@click.option(
    "--encoding", metavar="NAME", show_default="UTF-8", help="Encoding of the texts, such as latin-1."
)
@click.option("--field", default="text", metavar="KEY", help="Key of the text in JSON lines.")
@click.option(
    "--heldout",
    type=flags.Parsed("SHARE", _share),
    metavar="SHARE",
    default="2%",
    help="Share of the text to hold out: whole files, or stretches of text if no files have that size.",
)
@click.option("--unique", is_flag=True, help="Drop sentences that occurred before.")
@click.option(
    "--min-count",
    type=flags.POSITIVE,
    default=2,
    help="Leave out words with fewer occurrences from the vocabulary.",
)
@click.option(
    "--max-size",
    type=flags.Integer(min=4),
    default=200_000,
    help="Maximum number of words in the vocabulary, including the special ones.",
)
@click.option("--seed", type=flags.Integer(min=0), default=0, help="Seed of the choice of heldout text.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@flags.overwrite
def prepare(texts: tuple[Path, ...], out: Path, as_json: bool, **settings: Any) -> None:  # noqa: ANN401
    """Make a corpus of raw text: sentences to train on, heldout sentences and a vocabulary.

    TEXTS are files, directories with all below them, or globs (- for stdin): plain text, TEI and other XML,
    HTML, JSON lines, CoNLL-U and the output of wikiextractor, recognised by their content. Sentences and
    words are found by Unicode's rules, in any language.

    OUT is a directory with `train/`, `heldout.txt` and `vocab.txt` for `bilm train`, and `text.json`, the
    steps from text to sentences.
    """
    from bilm.text.prepare import prepare

    progress = PreparationProgress()
    try:
        report = prepare(texts, out, **settings, callback=progress)
    finally:
        progress.end()
    if as_json:
        click.echo(json_line(dataclasses.asdict(report) | {"directory": str(out)}))
        return
    for line in page(report):
        click.echo(printable(line))


class PreparationProgress(ProgressLine):
    """Progress line of `bilm prepare`."""

    def __call__(self, progress: "Progress") -> None:
        """Show the progress if it is due."""
        if self.is_due():
            read = f"{progress.n_read / max(progress.n_bytes, 1):.0%} of {size_of(progress.n_bytes)}"
            self.show([read, f"{progress.n_sentences:,} sentences"], partial(click.echo, err=True))


def page(report: "Preparation") -> Iterator[str]:
    """Yield the lines of a page about a corpus."""
    rows = []
    for kind, counts in report.kinds.items():
        files = counts.first if counts.n_files == 1 else f"{counts.n_files:,} files"
        rows.append(f"{kind}: {files}, {size_of(counts.n_bytes)}")
    yield from _row("read", rows)
    yield from _row("skipped", _shortened(report.skipped))
    yield from _row("left out", _listed(report.left_out))
    yield from _row("removed", _listed(report.removed))
    steps = report.pipeline
    rules = {
        "sentences": f"sentences and words by ICU {steps.icu}",
        "lines": f"lines as they are, words by ICU {steps.icu}",
        "tokens": "lines and tokens as they are",
    }
    form = "normal form as it was" if steps.form == "none" else f"normal form {steps.form}"
    yield from _row("made", [f"{form}, language {steps.language}, {rules[steps.split]}"])
    for name, text in (("train", report.train), ("heldout", report.heldout)):
        if text.n_sentences:
            total = f"{text.n_sentences:,} sentences, {text.n_tokens:,} tokens, {text.n_types:,} types"
            yield from _row(name, [total, f"longest sentence: {text.longest:,} tokens, {text.place}"])
    if report.heldout.n_sentences:
        files = ", ".join(_shortened(report.heldout_files, 3))
        yield from _row("", [f"heldout: {files or 'stretches of all files'}"])
    if report.n_duplicates:
        remedy = "dropped" if report.unique else "kept; --unique drops them"
        yield from _row("repeated", [f"{report.n_duplicates:,} sentences that occurred before, {remedy}"])
    yield from _row("vocabulary", [f"{report.n_words:,} words, {report.coverage:.2%} of the training text"])
    if report.heldout.n_sentences:
        unknown = ", ".join(f"{word} {count:,}" for word, count in report.unknown)
        words = [
            f"{report.unknown_share:.2%} of the heldout words",
            *([f"the commonest: {unknown}"] if unknown else []),
        ]
        yield from _row("unknown", words)
    for warning in report.warnings:
        yield from _row("warning", [warning])
    yield "sentences as the model reads them:"
    yield from (_cut(f"  {sentence}") for sentence in report.examples)
    yield f"written to {report.directory}"


def _row(title: str, texts: "list[str]") -> Iterator[str]:
    """Yield texts in the second column of the page, wrapped at words, below a title in the first."""
    import textwrap

    for text in texts:
        for line in textwrap.wrap(text, _WIDTH - _MARGIN, break_on_hyphens=False):
            yield f"{title:<{_MARGIN}}{line}"
            title = ""


def _listed(counts: Mapping[str, int]) -> list[str]:
    """Return counts as one text, the largest first."""
    largest = sorted(counts.items(), key=lambda item: -item[1])
    texts = _shortened([f"{name} {count:,}" for name, count in largest], _N_NAMED)
    return [", ".join(texts)] if texts else []


def _shortened(texts: "list[str]", n_shown: int = _N_NAMED) -> list[str]:
    n_more = len(texts) - n_shown
    return [*texts[:n_shown], f"and {n_more:,} more"] if n_more > 0 else texts


def _cut(line: str) -> str:
    """Return the beginning of a line that fits the page; letters of Chinese have two columns."""
    from rich.cells import cell_len, set_cell_size

    return line if cell_len(line) <= _WIDTH else set_cell_size(line, _WIDTH - 2).rstrip() + " …"
