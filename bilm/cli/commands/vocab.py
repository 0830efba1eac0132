"""``bilm vocab``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bilm.cli import flags
from bilm.io import PathLike, is_url
from bilm.io.outputs import check_output, refuse_inputs

if TYPE_CHECKING:
    from bilm.ray.cluster import Cluster


@click.group()
def vocab() -> None:
    """Build and check vocabularies."""


@vocab.command(cls=flags.TextCommand)
@flags.text_files("train", url=True)
@click.option("--outfile", type=flags.FILE, required=True, help="Vocabulary to write.")
@click.option(
    "--min-count",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Leave out words that occur less often.",
)
@click.option(
    "--max-size",
    type=click.IntRange(min=4),
    help="Maximum number of words, the special ones included.",
)
@flags.overwrite
@flags.on_ray
def build(
    train_prefix: tuple[str, ...],
    outfile: Path,
    min_count: int,
    max_size: int | None,
    overwrite: bool,
    ray: Cluster | None,
) -> None:
    """Count the words of a text and write them by descending frequency.

    The special words <S>, </S> and <UNK> come first. Words of equal frequency are sorted by code point.
    With --ray several processes count, and the text may be a URL.
    """
    check_output(outfile, overwrite, map(flags.input_place, train_prefix))
    flags.check_texts(ray, *train_prefix)
    from bilm.data.corpus import describe_blank_lines
    from bilm.vocabulary.file import choose_words, write_vocabulary

    if ray is None:
        files: Sequence[PathLike] = flags.input_files(train_prefix)
        refuse_inputs(outfile, files)
        words, n_lines, n_blank = _count(files)
    else:
        from bilm.ray.jobs import count_words, text_files

        files = text_files(train_prefix)
        refuse_inputs(outfile, [file for file in files if not is_url(file)])
        words, n_lines, n_blank = count_words(files, ray)
    counts = choose_words(words, n_lines - n_blank, min_count, max_size)
    write_vocabulary(counts.words, outfile)
    click.echo(
        f"{counts.n_tokens:,} tokens, {counts.n_types:,} types{describe_blank_lines(n_blank)}; "
        f"{len(counts.words):,} words written to {outfile}, covering {counts.coverage:.2%} of the tokens"
    )


def _count(files: Sequence[PathLike]) -> tuple[Counter[str], int, int]:
    """Words with their counts, lines, and those of them that are blank."""
    from bilm.data.corpus import read_sentences

    n_lines = n_blank = 0

    def sentences() -> Iterator[list[str]]:
        nonlocal n_lines, n_blank
        for sentence in chain.from_iterable(read_sentences(file, keep_blank=True) for file in files):
            n_lines += 1
            n_blank += not sentence
            yield sentence

    return Counter(chain.from_iterable(sentences())), n_lines, n_blank


@vocab.command(cls=flags.TextCommand)
@click.argument("vocabulary", type=flags.FILE)
@flags.text_files("train", required=False)
@click.option(
    "--max-characters",
    type=click.IntRange(min=3),
    default=50,
    show_default=True,
    help="Bytes of a word that the model reads, including two word marks.",
)
@click.pass_context
def check(
    context: click.Context,
    vocabulary: Path,
    train_prefix: tuple[str, ...],
    max_characters: int,
) -> None:
    """Report problems in the file VOCABULARY.

    It lists missing, misplaced and repeated words, words longer than the model reads and, with a text,
    the share of unknown words and an order that does not follow the counts. The exit status is 1 if the
    file cannot be used; anything that only makes the model worse is a warning.
    """
    from bilm.data.corpus import read_sentences
    from bilm.vocabulary.file import Severity, check_vocabulary

    files = flags.input_files(train_prefix) if train_prefix else ()
    sentences = chain.from_iterable(map(read_sentences, files)) if files else None
    findings = check_vocabulary(vocabulary, sentences, max_characters)
    for finding in findings:
        place = f"{vocabulary}:{finding.line}" if finding.line else f"{vocabulary}"
        click.echo(f"{finding.severity.value}: {place}: {finding.message}")
    if not findings:
        click.echo(f"{vocabulary}: no problems found")
    context.exit(int(any(finding.severity is Severity.ERROR for finding in findings)))
