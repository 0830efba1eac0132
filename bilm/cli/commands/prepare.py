"""``bilm prepare``."""

import textwrap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.cli import echo, flags, with_flags
from bilm.errors import OptionsError
from bilm.io.messages import json_line, number_of, printable, size_of
from bilm.io.progress import ProgressLine
from bilm.io.shards import name_files
from bilm.options.parameters import parameters
from bilm.text.settings import Settings

if TYPE_CHECKING:
    from bilm.text.prepare import Preparation

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


_READ_AS = {
    "language": flags.Parsed("CODE", str),
    "form": flags.UNICODE_FORM,
    "encoding": flags.Parsed("NAME", str),
    "field": flags.Parsed("KEY", str),
    "heldout": flags.Parsed("SHARE", _share),
}


@click.command(cls=flags.TextCommand, short_help="Make a corpus of raw text in any language.")
@click.argument("texts", type=flags.TEXT, nargs=-1, required=True, metavar="TEXTS...")
@flags.path("--out", "Directory of the corpus to write.", required=True)
@flags.together(
    *(flags.flag_of(setting, _READ_AS.get(setting.name)) for setting in parameters(Settings).values())
)
@flags.switch("--json", "Print one JSON object.", "as_json")
@flags.overwrite
def prepare(texts: tuple[str, ...], out: Path, as_json: bool, **settings: Any) -> None:  # noqa: ANN401
    """Make a corpus of raw text: sentences to train on, heldout sentences and a vocabulary.

    TEXTS are files, directories with everything below them, or globs (- for stdin): plain text, TEI, ALTO,
    PAGE and other XML, HTML, JSON lines, tables such as CSV, CoNLL-U, subtitles and the output of
    wikiextractor, recognised by their content. Sentences and words are found by Unicode's rules, in any
    language.

    OUT is a directory with `train/`, `heldout.txt` and `vocab.txt` for `bilm train`, and `text.json`, the
    steps from text to sentences.
    """
    from bilm.text.prepare import prepare

    with closing(PreparationProgress()) as progress:
        report = prepare(texts, out, **settings, callback=progress)
    if as_json:
        click.echo(json_line(report.to_json()))
        return
    last = ""
    for title, text in _rows(report):
        echo(printable(f"{'' if title == last else title:<10}  {text}"), indent=12)
        last = title


class PreparationProgress(ProgressLine):
    """Progress line of `bilm prepare`."""

    def __call__(self, n_read: int, n_bytes: int, n_sentences: int) -> None:
        """Show the progress if it is due."""
        if self.is_due():
            read = f"{n_read / max(n_bytes, 1):.0%} of {size_of(n_bytes)}"
            self.show([read, f"{n_sentences:,} sentences"], lambda line: click.echo(line, err=True))


def _rows(report: "Preparation") -> Iterator[tuple[str, str]]:
    """Yield titles and texts of the page about a corpus."""
    for kind, n_files in report.kinds.items():
        yield "read", f"{kind}: {number_of(n_files, 'file')}"
    skipped: dict[str, list[str]] = {}
    for name, reason in report.skipped.items():
        skipped.setdefault(reason, []).append(name)
    for reason, names in skipped.items():
        yield "skipped", f"{name_files(names)}: {'each ' * (len(names) > 1)}{with_flags(reason)}"
    for title, numbers in (("left out", report.left_out), ("removed", report.removed)):
        if numbers:
            yield title, ", ".join(_first([f"{name} {count:,}" for name, count in numbers.items()]))
    steps = report.pipeline
    words = f"words by ICU {steps.icu}"
    rules = {"sentences": f"sentences and {words}", "lines": f"lines as they are, {words}"}
    yield "made", f"normal form {steps.form or 'none'}, language {steps.language}"
    yield "made", rules.get(steps.split, "lines and tokens as they are")
    for title, counted in (("train", report.train), ("heldout", report.heldout)):
        if counted.n_sentences:
            types = f"{counted.n_types:,} types" + ("" if report.are_types_exact else " at least")
            yield title, f"{counted.n_sentences:,} sentences, {counted.n_tokens:,} tokens, {types}"
            yield title, f"longest sentence: {counted.longest:,} tokens, {counted.place}"
    if report.n_repeated:
        remedy = "dropped" if report.settings.unique else "kept; --unique drops them"
        yield "repeated", f"{report.n_repeated:,} sentences that occurred before, {remedy}"
    yield "vocabulary", f"{report.n_words:,} words, {report.coverage:.2%} of the training text"
    if report.heldout.n_sentences:
        held_out = _first(report.heldout_files, 3)
        if number := report.n_in_stretches:
            held_out.append("stretches of " + ("one file" if number == 1 else f"{number:,} files"))
        yield "held out", ", ".join(held_out)
        yield "unknown", f"{report.unknown_share:.2%} of the heldout words"
    if report.unknown:
        yield "unknown", ", ".join(f"{word} {count:,}" for word, count in report.unknown)
    yield from (("warning", with_flags(text)) for text in report.warnings)
    yield from (
        ("as read", textwrap.shorten(sentence, 200, placeholder=" …")) for sentence in report.examples
    )
    yield "written to", str(report.directory)


def _first(texts: "list[str]", n_shown: int = _N_NAMED) -> list[str]:
    n_more = len(texts) - n_shown
    return [*texts[:n_shown], f"and {n_more:,} more"] if n_more > 0 else texts
