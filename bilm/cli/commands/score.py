"""``bilm score``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bilm.cli import flags
from bilm.cli.flags import on_ray, open_ray
from bilm.cli.process import import_tensorflow
from bilm.io.messages import json_line, printable
from bilm.vocabulary.file import BOS, EOS

if TYPE_CHECKING:
    from bilm.embedding.scoring import SentenceScore
    from bilm.ray.cluster import Cluster


@click.command()
@click.argument("sentences", type=flags.TEXT_OR_URL)
@flags.model
@flags.save_dir
@flags.checkpoint
@flags.weights
@flags.vocab_file(required=False)
@flags.no_xla
@click.option("--tokens", is_flag=True, help="Print a line per token, not per sentence.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["tsv", "jsonl"]),
    default="tsv",
    show_default=True,
    help="Output format: tab-separated with a header, or JSON lines.",
)
@on_ray
def score(
    sentences: Path | str,
    model: Path | None,
    save_dir: Path | None,
    which: str | None,
    weights: str | None,
    vocab_file: Path | None,
    tokens: bool,
    form: str,
    ray: Cluster | None,
) -> None:
    """Print log-probabilities of SENTENCES, one per line (- for stdin), under the full softmax.

    Logarithms are natural, and each sentence is scored by itself; blank lines are skipped. Forward is the
    sum over the words and </S>, backward over <S> and the words. Words outside the vocabulary count as <UNK>.
    With --ray several processes do the work, and SENTENCES may be a URL.
    """
    cluster = None if ray is None else open_ray(ray, sentences)
    if ray is None:
        flags.refuse_urls(sentences)
    import_tensorflow()
    from bilm.embedding.scoring import Scorer
    from bilm.models.language_model import open_predictor
    from bilm.run_directory.model_source import ModelArguments

    arguments = ModelArguments(model, save_dir, checkpoint=which, weights=weights)
    if cluster is not None:
        from bilm.ray.jobs import score

        results = score([str(sentences)], arguments, vocab_file, cluster=cluster)
        _print(((line, result) for _, line, result in results), tokens, form)
        return
    predictor = open_predictor(arguments.open(takes_files=False), vocab_file)
    scorer = Scorer(predictor.load([])[0], predictor.vocabulary)
    numbers: list[int] = []

    def words() -> Iterator[list[str]]:
        for number, line in enumerate(flags.input_lines(Path(sentences))):
            if sentence := line.split():
                numbers.append(number)
                yield sentence

    _print(((numbers[i], result) for i, result in enumerate(scorer(words()))), tokens, form)


def _print(results: Iterable[tuple[int, SentenceScore]], tokens: bool, form: str) -> None:
    """Print scores, each with the number of its line."""
    records = _token_records if tokens else _sentence_records
    header = True
    for number, result in results:
        for record in records(number, result):
            if form == "jsonl":
                click.echo(json_line(record))
                continue
            if header:
                click.echo("\t".join(record))
                header = False
            click.echo("\t".join(map(_cell, record.values())))


def _sentence_records(number: int, score: SentenceScore) -> Iterator[dict[str, Any]]:
    yield {
        "line": number,
        "words": len(score.words),
        "unknown": int((~score.is_known).sum()),
        "forward": float(score.forward.sum()),
        "backward": None if score.backward is None else float(score.backward.sum()),
        "sentence": " ".join(score.words),
    }


def _token_records(number: int, score: SentenceScore) -> Iterator[dict[str, Any]]:
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
