"""``bilm test``."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click

from bilm.cli import shared
from bilm.cli.numbers import MOST_ROWS, Integer
from bilm.cli.progress import EvaluationProgress
from bilm.cli.quiet import import_tensorflow


@click.command()
@shared.text_files("test")
@shared.vocab_file(required=False)
@shared.save_dir
@shared.checkpoint
@click.option(
    "--batch-size", type=Integer(1, MOST_ROWS), default=256, show_default=True, help="Rows of a batch."
)
@click.option(
    "--compat",
    type=click.Choice(["bilm-tf"]),
    help="Compute the number bilm-tf prints: blank lines are empty sentences, the unfinished tail dropped.",
)
@click.option("--json", "as_json", is_flag=True, help="End with one line of JSON.")
def test(
    prefixes: tuple[str, ...],
    more: tuple[str, ...],
    vocab_file: Path | None,
    save_dir: Path,
    which: str,
    batch_size: int,
    compat: str | None,
    as_json: bool,
) -> None:
    """Print the perplexity of a text under the full softmax, every token scored once."""
    import_tensorflow()
    from bilm.cli.texts import load_run_vocabulary, read_text
    from bilm.run_directory.directory import RunDirectory

    run = RunDirectory.open(save_dir)
    vocabulary = load_run_vocabulary(shared.run_vocabulary_file(run, vocab_file), run.options)
    run.check_vocabulary(vocabulary)
    checkpoint = run.choose(which)
    text = read_text([*prefixes, *more], vocabulary)

    from bilm.models.language_model import LanguageModel
    from bilm.runs.assumed_options import complete_options
    from bilm.training.evaluation import Evaluator

    model = LanguageModel(run.options)
    step = run.restore(model, checkpoint=checkpoint)
    click.echo(f"model: {checkpoint.prefix}, step {step:,}")
    options = run.options  # of which bilm-tf's number needs none that can be missing
    if compat is None:
        options = complete_options(run, which, needed=("unroll_steps",))
    batches = text.batches(dataclasses.replace(options, batch_size=batch_size), compat=compat is not None)
    result = Evaluator(model).evaluate(batches, EvaluationProgress(text.counts.n_tokens))

    names = ("forward", "backward")
    perplexities = dict(zip(names, result.direction_perplexities, strict=False))
    parts = [f"{name} {value:.4f}" for name, value in perplexities.items()]
    click.echo(
        f"perplexity: {', '.join(parts)}, combined {result.perplexity:.4f} ({result.n_tokens:,} tokens)"
    )
    if compat is not None:
        click.echo(f"FINISHED!  AVERAGE PERPLEXITY = {result.perplexity}")
    if as_json:
        record = {
            "perplexity": result.perplexity,
            "forward_perplexity": perplexities["forward"],
            "backward_perplexity": perplexities.get("backward"),
            "tokens": result.n_tokens,
            "oov_rate": text.counts.oov_rate,
        }
        click.echo(json.dumps(record))
