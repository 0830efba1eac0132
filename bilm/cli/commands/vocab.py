"""``bilm vocab``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bilm.cli import flags
from bilm.cli.flags import Integer, on_ray, open_ray
from bilm.errors import DataError
from bilm.io import is_url
from bilm.io.outputs import check_output, refuse_inputs

if TYPE_CHECKING:
    from bilm.ray.cluster import Cluster
    from bilm.vocabulary.build import VocabularyCounts


@click.group()
def vocab() -> None:
    """Build and check vocabularies."""


@vocab.command(cls=flags.TextCommand)
@flags.text_files("train", url=True)
@click.option("--outfile", type=flags.FILE, required=True, help="Vocabulary to write.")
@click.option(
    "--min-count",
    type=Integer(min=1),
    default=1,
    show_default=True,
    help="Leave out words that occur less often.",
)
@click.option(
    "--max-size",
    type=Integer(min=4),
    help="Maximum number of words, the special ones included.",
)
@flags.overwrite
@on_ray
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
    check_output(outfile, overwrite, [0] if any(map(flags.is_stdin, train_prefix)) else [])
    if ray is None:
        flags.refuse_urls(*train_prefix)
        counts, n_blank_lines = _count(train_prefix, outfile, min_count, max_size)
    else:
        cluster = open_ray(ray, *train_prefix)
        counts, n_blank_lines = _count_on_ray(cluster, train_prefix, outfile, min_count, max_size)
    from bilm.vocabulary.file import write_vocabulary

    write_vocabulary(counts.words, outfile)
    from bilm.data.corpus import describe_blank_lines

    blank = describe_blank_lines(n_blank_lines)
    click.echo(
        f"{counts.n_tokens:,} tokens, {counts.n_types:,} types{blank}; {len(counts.words):,} words "
        f"written to {outfile}, covering {counts.coverage:.2%} of the tokens"
    )


def _count_on_ray(
    cluster: Cluster, patterns: Sequence[str], outfile: Path, min_count: int, max_size: int | None
) -> tuple[VocabularyCounts, int]:
    from bilm.ray.jobs import count_words, text_files
    from bilm.vocabulary.build import choose_words, require_bounds

    require_bounds(min_count, max_size)
    files = text_files(patterns)
    refuse_inputs(outfile, [file for file in files if not is_url(file)])
    words, n_lines, n_blank = count_words(files, cluster)
    if not words:
        raise DataError(f"no sentences in {', '.join(patterns)}: the corpus is empty")
    return choose_words(words, n_lines - n_blank, min_count, max_size), n_blank


def _count(
    patterns: Sequence[str], outfile: Path, min_count: int, max_size: int | None
) -> tuple[VocabularyCounts, int]:
    from bilm.data.corpus import name_files, read_sentences
    from bilm.vocabulary.build import build_vocabulary

    files = flags.input_files(patterns)
    refuse_inputs(outfile, files)
    n_lines = n_blank_lines = 0

    def sentences() -> Iterator[list[str]]:
        nonlocal n_lines, n_blank_lines
        for file in files:
            for sentence in read_sentences(file, keep_blank=True):
                n_lines += 1
                n_blank_lines += not sentence
                yield sentence
        if n_lines == n_blank_lines:
            raise DataError(f"no sentences in {name_files(files)}: the corpus is empty")

    return build_vocabulary(sentences(), min_count, max_size), n_blank_lines


@vocab.command(cls=flags.TextCommand)
@click.argument("vocabulary", type=flags.FILE)
@flags.text_files("train", required=False)
@click.option(
    "--max-characters",
    type=Integer(min=3),
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
    from bilm.vocabulary.check import Severity, check_vocabulary

    files = flags.input_files(train_prefix) if train_prefix else ()
    sentences = itertools.chain.from_iterable(map(read_sentences, files)) if files else None
    findings = check_vocabulary(vocabulary, sentences, max_characters)
    for finding in findings:
        place = f"{vocabulary}:{finding.line}" if finding.line else f"{vocabulary}"
        click.echo(f"{finding.severity.value}: {place}: {finding.message}")
    if not findings:
        click.echo(f"{vocabulary}: no problems found")
    context.exit(int(any(finding.severity is Severity.ERROR for finding in findings)))
