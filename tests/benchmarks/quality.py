"""Quality of training recipes: heldout perplexity against steps, tokens and seconds.

    python -m tests.benchmarks.quality
    python -m tests.benchmarks.quality --recipe auto --recipe bilm-tf --plot curves.svg
    python -m tests.benchmarks.quality --recipe auto --try 'adam: optimizer=adam learning_rate=0.006'

Every recipe trains a `tiny` model from one seed on one text, one after the other. The seconds are those of
the training steps, without validations. The full softmax scores the heldout text, every token once.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

import bilm
from bilm.analysis.curves import curves_picture, load_curves
from bilm.analysis.pictures import save_picture
from bilm.cli.flags import key_and_value
from bilm.data.corpus import find_files
from bilm.options.recipes import RECIPES
from bilm.run_directory.records import METRICS_FILE, Metrics, read_metrics
from bilm.vocabulary.file import write_vocabulary
from tests.benchmarks.text import benchmark_text, words_of

_LEVELS = (300.0, 250.0, 200.0)


def variants(recipes: tuple[str, ...], tries: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Arguments of `bilm.train` by the names in the table."""
    found: dict[str, dict[str, Any]] = {recipe: {"recipe": recipe, "changes": {}} for recipe in recipes}
    for text in tries:
        name, _, changes = text.partition(":")
        values = dict(map(key_and_value, changes.split()))
        found[name.strip()] = {"recipe": values.pop("recipe", "auto"), "changes": values}
    return found


@click.command()
@click.option(
    "--recipe", "recipes", multiple=True, type=click.Choice(RECIPES), help="Repeatable.  [auto, bilm-tf]"
)
@click.option(
    "--try", "tries", multiple=True, metavar="'NAME: KEY=VALUE ...'", help="A recipe changed; repeatable."
)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="For all of them; repeatable.")
@click.option("--batch-size", default=64, show_default=True)
@click.option("--steps", type=int, help="[default: one pass]")
@click.option("--validations", default=8, show_default=True, help="On the way, equally far apart.")
@click.option("--text", type=click.Path(path_type=Path), help="[default: WikiText-2, or else docstrings]")
@click.option("--heldout", type=click.Path(path_type=Path), help="[default: that of the default text]")
@click.option("--plot", type=click.Path(path_type=Path), help="Picture of the curves to write, .svg or .png.")
def main(
    recipes: tuple[str, ...],
    tries: tuple[str, ...],
    changes: tuple[str, ...],
    batch_size: int,
    steps: int | None,
    validations: int,
    text: Path | None,
    heldout: Path | None,
    plot: Path | None,
) -> None:
    """Print a table of the heldout perplexities."""
    chosen = variants(recipes or (() if tries else ("auto", "bilm-tf")), tries)
    common: dict[str, Any] = {"preset": "tiny", "batch_size": batch_size, "n_epochs": 1, "seed": 3}
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        train = find_files([text or benchmark_text(directory)])
        common["heldout_prefix"] = find_files([heldout or benchmark_text(directory, "valid")])
        vocabulary = directory / "vocab.txt"
        write_vocabulary(words_of(train), vocabulary)
        for label, arguments in chosen.items():
            arguments["changes"] = dict(map(key_and_value, changes)) | arguments["changes"]
            files = (train, vocabulary, directory / label)
            if steps is None:
                steps = bilm.train(*files, **common, **arguments, dry_run=True).estimate.n_steps
            when = {"eval_every": max(steps // validations, 1), "max_steps": steps, "save_every": steps}
            bilm.train(*files, **common, **arguments, **when, keep=1)
            report(label, read_metrics(directory / label / METRICS_FILE))
        if plot is not None:
            runs = load_curves([directory / label for label in chosen])
            save_picture(curves_picture(runs, "tokens"), plot)


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
    """The table of one run, and the seconds to some perplexities, between validations by straight lines."""
    seconds = list(seconds_of_validations(metrics))
    click.echo(f"{label}\n  {'steps':>8} {'tokens':>12} {'seconds':>8} {'heldout':>9}")
    for point, after in zip(metrics.heldout, seconds, strict=True):
        click.echo(f"  {point.step:8,} {point.tokens:12,} {after:8,.0f} {point.perplexity:9.2f}")
    falling = -np.minimum.accumulate([point.perplexity for point in metrics.heldout])
    times = [np.interp(-level, falling, seconds, right=np.nan) for level in _LEVELS]
    reached = ", ".join(f"{level:g} in {time:,.0f} s" for level, time in zip(_LEVELS, times, strict=True))
    click.echo(f"  {metrics.heldout[-1].tokens / seconds[-1]:,.0f} tokens/s; {reached}")


if __name__ == "__main__":
    main()
