"""Quality of training recipes: heldout perplexity against steps, tokens and seconds.

    python -m tests.benchmarks.quality
    python -m tests.benchmarks.quality --recipe auto --recipe bilm-tf --plot curves.svg
    python -m tests.benchmarks.quality --recipe auto --try 'adam: optimizer=adam learning_rate=0.006'

Every recipe trains a model of one shape from one seed on one text, one after the other. The seconds are those
of the training steps, without validations. The full softmax scores the heldout text, every token once.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

import bilm
from bilm.analysis.curves import curves_picture, load_curves
from bilm.analysis.pictures import save_picture
from bilm.cli.flags import key_and_value
from bilm.data.corpus import find_files
from bilm.options import PRESETS
from bilm.options.recipes import RECIPES
from bilm.run_directory.records import METRICS_FILE, Metrics, read_metrics
from bilm.vocabulary.file import write_vocabulary
from tests.benchmarks.text import benchmark_text, words_of

_LEVELS = (300.0, 250.0, 200.0)


class Point(NamedTuple):
    """The heldout perplexity after some training."""

    step: int
    tokens: int
    seconds: float
    perplexity: float


def points(metrics: Metrics) -> Iterator[Point]:
    """The validations of a run."""
    seconds, tokens, records = 0.0, 0, iter(metrics.train)
    for heldout in metrics.heldout:
        for record in records:
            seconds += (record.tokens - tokens) / record.tokens_per_second
            tokens = record.tokens
            if record.step >= heldout.step:
                break
        yield Point(heldout.step, heldout.tokens, seconds, heldout.perplexity)


def reached(found: list[Point], level: float) -> str:
    """The seconds to a perplexity, between two validations by a straight line."""
    before: Point | None = None
    for point in found:
        if point.perplexity <= level:
            if before is None:
                return f"<{point.seconds:,.0f}"
            share = (before.perplexity - level) / (before.perplexity - point.perplexity)
            return f"{before.seconds + share * (point.seconds - before.seconds):,.0f}"
        before = point
    return "-"


def variants(recipes: tuple[str, ...], tries: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Arguments of `bilm.train` by the names in the table."""
    found: dict[str, dict[str, Any]] = {recipe: {"recipe": recipe} for recipe in recipes}
    for text in tries:
        name, _, changes = text.partition(":")
        values = dict(map(key_and_value, changes.split()))
        found[name.strip()] = {"recipe": values.pop("recipe", "auto"), "changes": values}
    return found


@click.command()
@click.option("--preset", type=click.Choice(list(PRESETS)), default="tiny", show_default=True)
@click.option(
    "--recipe", "recipes", multiple=True, type=click.Choice(RECIPES), help="Repeatable.  [auto, bilm-tf]"
)
@click.option(
    "--try", "tries", multiple=True, metavar="'NAME: KEY=VALUE ...'", help="A recipe changed; repeatable."
)
@click.option("--set", "changes", multiple=True, metavar="KEY=VALUE", help="For all of them; repeatable.")
@click.option("--batch-size", default=64, show_default=True)
@click.option("--steps", type=int, help="[default: one pass]")
@click.option("--passes", default=1, show_default=True)
@click.option("--validations", default=8, show_default=True, help="On the way, equally far apart.")
@click.option("--seed", default=3, show_default=True)
@click.option("--text", type=click.Path(path_type=Path), help="[default: WikiText-2, or else docstrings]")
@click.option("--heldout", type=click.Path(path_type=Path), help="[default: that of the default text]")
@click.option("--plot", type=click.Path(path_type=Path), help="Picture of the curves to write, .svg or .png.")
def main(
    preset: str,
    recipes: tuple[str, ...],
    tries: tuple[str, ...],
    changes: tuple[str, ...],
    batch_size: int,
    steps: int | None,
    passes: int,
    validations: int,
    seed: int,
    text: Path | None,
    heldout: Path | None,
    plot: Path | None,
) -> None:
    """Print a table of the heldout perplexities."""
    chosen = variants(recipes or (() if tries else ("auto", "bilm-tf")), tries)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        train = find_files([text or benchmark_text(directory)])
        valid = find_files([heldout or benchmark_text(directory, "valid")])
        vocabulary = directory / "vocab.txt"
        write_vocabulary(words_of(train), vocabulary)
        n_steps = steps
        for label, arguments in chosen.items():
            arguments["changes"] = dict(map(key_and_value, changes)) | arguments.get("changes", {})
            common: dict[str, Any] = {"batch_size": batch_size, "n_epochs": passes, "seed": seed}
            if n_steps is None:
                sizes = {"preset": preset, **common, **arguments, "dry_run": True}
                n_steps = bilm.train(train, vocabulary, directory / label, **sizes).estimate.n_steps
            bilm.train(
                train,
                vocabulary,
                directory / label,
                preset=preset,
                heldout_prefix=valid,
                eval_every=max(n_steps // validations, 1),
                max_steps=n_steps,
                save_every=n_steps,
                keep=1,
                **common,
                **arguments,
            )
            report(label, read_metrics(directory / label / METRICS_FILE))
        if plot is not None:
            runs = load_curves([directory / label for label in chosen])
            save_picture(curves_picture(runs, "tokens"), plot)


def report(label: str, metrics: Metrics) -> None:
    """The table of one run."""
    found = list(points(metrics))
    click.echo(f"{label}\n  {'steps':>8} {'tokens':>12} {'seconds':>8} {'heldout':>9}")
    for point in found:
        click.echo(f"  {point.step:8,} {point.tokens:12,} {point.seconds:8,.0f} {point.perplexity:9.2f}")
    last = found[-1]
    times = ", ".join(f"{level:g} in {reached(found, level)} s" for level in _LEVELS)
    click.echo(f"  {last.tokens / last.seconds:,.0f} tokens/s; {times}")


if __name__ == "__main__":
    main()
