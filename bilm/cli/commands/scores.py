"""``bilm test`` and ``bilm score``: perplexity of a text, log-probabilities of its sentences."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.cli import flags
from bilm.cli.process import import_tensorflow
from bilm.cli.terminal import PrintingReporter
from bilm.io.messages import json_line, printable
from bilm.options import Compat

if TYPE_CHECKING:
    from bilm.embedding.scoring import SentenceScore


@click.command(cls=flags.TextCommand)
@flags.text_files("test")
@flags.vocab_file()
@flags.whole_model
@flags.no_xla
@click.option(
    "--batch-size",
    type=click.IntRange(1, flags.MOST_ROWS),
    default=256,
    help="Rows of a batch.",
)
@click.option(
    "--compat",
    type=click.Choice(Compat.values()),
    help="Compute bilm-tf's number: blank lines are empty sentences, unfinished last windows dropped.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON at the end.")
def test(compat: str | None, as_json: bool, **arguments: Any) -> None:  # noqa: ANN401
    """Print the perplexity of a text under the full softmax, every token scored once.

    The LSTM state is carried from sentence to sentence.
    """
    import_tensorflow()
    from bilm.runs import test

    reporter = PrintingReporter()
    try:
        result = test.test(**arguments, compat=compat, reporter=reporter)
    finally:
        reporter.end()
    perplexities = {"forward": result.forward_perplexity, "backward": result.backward_perplexity}
    parts = [f"{name} {value:.4f}" for name, value in perplexities.items() if value is not None]
    click.echo(f"perplexity: {', '.join(parts)}, combined {result.perplexity:.4f} ({result.tokens:,} tokens)")
    if compat is not None:
        click.echo(f"FINISHED!  AVERAGE PERPLEXITY = {result.perplexity}")
    if as_json:
        names = ("perplexity", "forward_perplexity", "backward_perplexity", "tokens", "oov_rate")
        click.echo(json_line({name: getattr(result, name) for name in names}))


@click.command()
@click.argument("sentences", type=flags.TEXT_OR_URL)
@flags.whole_model
@flags.vocab_file()
@flags.no_xla
@click.option("--tokens", is_flag=True, help="Print a line per token, not per sentence.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["tsv", "jsonl"]),
    default="tsv",
    help="Output format: tab-separated with a header, or JSON lines.",
)
@flags.on_ray
def score(
    sentences: str,
    vocab_file: Path | None,
    tokens: bool,
    form: str,
    ray: flags.Cluster | None,
    **model: Any,  # noqa: ANN401
) -> None:
    """Print log-probabilities of SENTENCES, one per line (- for stdin), under the full softmax.

    Logarithms are natural, and each sentence is scored by itself; blank lines are skipped. Forward is the
    sum over the words and </S>, backward over <S> and the words. Words outside the vocabulary count as <UNK>.
    With --ray several processes do the work, and SENTENCES may be a URL.
    """
    flags.check_texts(ray, sentences)
    import_tensorflow()
    from bilm.run_directory.model_source import ModelArguments

    arguments = ModelArguments(**model)
    if ray is None:
        scores = _scores(sentences, arguments, vocab_file)
    else:
        from bilm.ray.jobs import score

        scores = (row[1:] for row in score([sentences], arguments, vocab_file, cluster=ray))
    header = True
    for number, result in scores:
        for record in _token_records(number, result) if tokens else [_sentence_record(number, result)]:
            if form == "jsonl":
                click.echo(json_line(record))
                continue
            if header:
                click.echo("\t".join(record))
                header = False
            click.echo("\t".join(map(_cell, record.values())))


def _scores(
    sentences: str, arguments: flags.ModelArguments, vocab_file: Path | None
) -> Iterator[tuple[int, SentenceScore]]:
    """The score of each sentence, with the number of its line."""
    from bilm.embedding.scoring import Scorer
    from bilm.models.language_model import open_predictor

    predictor = open_predictor(arguments.open(takes_files=False), vocab_file)
    scorer = Scorer(predictor.load([])[0], predictor.vocabulary)
    lines = enumerate(map(str.split, flags.input_lines(sentences)))
    numbered, others = itertools.tee((number, words) for number, words in lines if words)
    return zip((number for number, _ in numbered), scorer(words for _, words in others), strict=True)


def _sentence_record(number: int, score: SentenceScore) -> dict[str, Any]:
    return {
        "line": number,
        "words": len(score.words),
        "unknown": int((~score.is_known).sum()),
        "forward": float(score.forward.sum()),
        "backward": None if score.backward is None else float(score.backward.sum()),
        "sentence": " ".join(score.words),
    }


def _token_records(number: int, score: SentenceScore) -> Iterator[dict[str, Any]]:
    from bilm.vocabulary.file import BOS, EOS

    forward = [None, *map(float, score.forward)]
    backward = [None] * len(forward) if score.backward is None else [*map(float, score.backward), None]
    known = [True, *map(bool, score.is_known), True]
    for i, token in enumerate([BOS, *score.words, EOS]):
        yield {
            "line": number,
            "position": i,
            "token": token,
            "known": known[i],
            "forward": forward[i],
            "backward": backward[i],
        }


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    return f"{value:.6f}" if isinstance(value, float) else printable(str(value))
