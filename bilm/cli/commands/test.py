"""``bilm test``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from bilm.cli import flags
from bilm.cli.flags import MOST_ROWS, Integer
from bilm.cli.process import import_tensorflow
from bilm.cli.terminal import PrintingReporter
from bilm.options import Compat


@click.command(cls=flags.TextCommand)
@flags.text_files("test")
@flags.vocab_file(required=False)
@flags.model
@flags.save_dir
@flags.checkpoint
@flags.weights
@flags.no_xla
@click.option(
    "--batch-size", type=Integer(1, MOST_ROWS), default=256, show_default=True, help="Rows of a batch."
)
@click.option(
    "--compat",
    type=click.Choice(Compat.values()),
    help="Compute bilm-tf's number: blank lines are empty sentences, unfinished last windows dropped.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON at the end.")
def test(
    test_prefix: tuple[str, ...],
    vocab_file: Path | None,
    model: Path | None,
    save_dir: Path | None,
    which: str | None,
    weights: str | None,
    batch_size: int,
    compat: str | None,
    as_json: bool,
) -> None:
    """Print the perplexity of a text under the full softmax, every token scored once.

    The LSTM state is carried from sentence to sentence.
    """
    import_tensorflow()
    from bilm.runs import test

    result = test.test(
        test_prefix,
        save_dir,
        model=model,
        vocab_file=vocab_file,
        checkpoint=which,
        weights=weights,
        batch_size=batch_size,
        compat=compat,
        reporter=PrintingReporter(),
    )
    perplexities = {"forward": result.forward_perplexity, "backward": result.backward_perplexity}
    parts = [f"{name} {value:.4f}" for name, value in perplexities.items() if value is not None]
    click.echo(f"perplexity: {', '.join(parts)}, combined {result.perplexity:.4f} ({result.tokens:,} tokens)")
    if compat is not None:
        click.echo(f"FINISHED!  AVERAGE PERPLEXITY = {result.perplexity}")
    if as_json:
        names = ("perplexity", "forward_perplexity", "backward_perplexity", "tokens", "oov_rate")
        click.echo(json.dumps({name: getattr(result, name) for name in names}))
