"""Quality of training recipes: heldout perplexity against steps, tokens and seconds.

    python -m tests.benchmarks.quality
    python -m tests.benchmarks.quality --set lstm.dim=512

Every recipe trains a `tiny` model from one seed on one text, one after the other. The seconds are those of
the training steps, without validations. The full softmax scores the heldout text, every token once.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import click

import bilm
from bilm.io.run_files import METRICS_FILE
from bilm.io.shards import find_files
from bilm.run_directory.records import Metrics, read_metrics
from bilm.vocabulary.vocabulary_file import vocabulary_text
from tests.benchmarks.text import benchmark_text, set_flag, text_flag, words_of


@click.command()
@click.option("--recipe", "recipes", multiple=True, default=["auto", "bilm-tf"], show_default=True)
@set_flag
@click.option("--batch-size", default=64, show_default=True)
@click.option("--steps", type=int, help="[default: one pass]")
@text_flag
@click.option("--heldout", type=click.Path(path_type=Path), help="[default: that of the default text]")
def main(recipes, changes, batch_size, steps, text, heldout) -> None:
    """Print a table of the heldout perplexities."""
    common = {"preset": "tiny", "batch_size": batch_size, "n_epochs": 1, "seed": 3, "changes": changes}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        train = find_files([text or benchmark_text(directory)])
        common["heldout_prefix"] = find_files([heldout or benchmark_text(directory, "valid")])
        (directory / "vocab.txt").write_bytes(vocabulary_text(words_of(train), "vocab.txt"))
        for recipe in recipes:
            files = (train, directory / "vocab.txt", directory / recipe)
            common["recipe"] = recipe
            n_steps = steps or bilm.train(*files, **common, dry_run=True).estimate.n_steps
            when = {"eval_every": max(n_steps // 8, 1), "max_steps": n_steps, "save_every": n_steps}
            bilm.train(*files, **common, **when, keep=1)
            report(recipe, read_metrics(directory / recipe / METRICS_FILE))


def seconds_of_validations(metrics: Metrics) -> Iterator[float]:
    """The seconds of training before each validation."""
    seconds, tokens, records = 0.0, 0, iter(metrics.train)
    for heldout in metrics.heldout:
        for record in records:
            seconds += (record.tokens - tokens) / record.tokens_per_second
            tokens = record.tokens
            if record.step >= heldout.step:
                break
        yield seconds


def report(label: str, metrics: Metrics) -> None:
    """The table of one run."""
    click.echo(f"{label}\n  {'steps':>8} {'tokens':>12} {'seconds':>8} {'heldout':>9}")
    for point, after in zip(metrics.heldout, seconds_of_validations(metrics), strict=True):
        click.echo(f"  {point.step:8,} {point.tokens:12,} {after:8,.0f} {point.perplexity:9.2f}")


if __name__ == "__main__":
    main()
