"""Fine-tune on another domain: train on text A, continue on text B, and measure the gain on B.

    python examples/domain_adaptation.py --text-a news.txt --text-b reviews.txt \
        --heldout-b reviews-heldout.txt --work-dir adaptation

Shows and runs the commands: a vocabulary of both texts, `bilm train` on A, `bilm restart` on B and, for
comparison, `bilm train` on B alone for the same number of steps. Prints the perplexity of each model on
heldout text of B. The vocabulary is shared, because perplexities under different vocabularies cannot be
compared. Texts are tokenised, one sentence per line; the work directory must be new.
"""

import argparse
import contextlib
import io
import json
import shlex
import sys
from pathlib import Path

import click

from bilm import RunDirectory
from bilm.cli import main as bilm
from bilm.errors import BilmError, DataError


def run(*arguments: object) -> str:
    """Show a command, run it in this process, and return its output."""
    words = [str(argument) for argument in arguments]
    print(f"$ bilm {shlex.join(words)}", flush=True)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        status = bilm.main(words, standalone_mode=False)
    if status:  # stopped
        sys.exit(status)
    return printed.getvalue()


def measure(save_dir: Path, text: Path) -> tuple[int, float]:
    """Measure a perplexity with `bilm test`; return the steps that the model was trained, and it."""
    output = run("test", "--save-dir", save_dir, "--test-prefix", text, "--json")
    step = RunDirectory.open(save_dir).choose("latest").step()
    return step, json.loads(output.splitlines()[-1])["perplexity"]


def build_vocabulary(args: argparse.Namespace) -> Path:
    """Build a vocabulary of both texts."""
    path = args.work_dir / "vocab.txt"
    texts = ("--train-prefix", args.text_a, "--train-prefix", args.text_b)
    run("vocab", "build", *texts, "--outfile", path, "--min-count", args.min_count)
    return path


def train(args: argparse.Namespace, text: Path, vocabulary: Path, save_dir: Path, n_steps: int) -> None:
    """Train a model from scratch."""
    model = ("--options", args.options) if args.options else ("--preset", args.preset)
    size = ("--batch-size", args.batch_size, "--max-steps", n_steps, "--seed", args.seed)
    run(
        *("train", *model, *size),
        *("--train-prefix", text, "--vocab-file", vocabulary, "--save-dir", save_dir),
    )


def fine_tune(args: argparse.Namespace, run_on_a: Path, save_dir: Path) -> None:
    """Continue the run on A in a new directory; the run on A is not changed."""
    steps = ("--max-steps", args.steps_b, "--batch-size", args.batch_size, "--seed", args.seed)
    run("restart", "--save-dir", run_on_a, "--save-to", save_dir, "--train-prefix", args.text_b, *steps)


def compare(args: argparse.Namespace) -> list[tuple[str, float]]:
    """Train the three models and return their perplexities on heldout text of B."""
    on_a, adapted, on_b = (args.work_dir / name for name in ("run-a", "run-a-then-b", "run-b"))
    vocabulary = build_vocabulary(args)
    train(args, args.text_a, vocabulary, on_a, args.steps_a)
    n_a, before = measure(on_a, args.heldout_b)
    fine_tune(args, on_a, adapted)
    n_both, after = measure(adapted, args.heldout_b)
    train(args, args.text_b, vocabulary, on_b, args.steps_b)
    n_b, alone = measure(on_b, args.heldout_b)
    return [
        (f"A, {n_a:,} steps", before),
        (f"A, {n_a:,} steps, then B, {n_both - n_a:,}", after),
        (f"B alone, {n_b:,} steps", alone),
    ]


def main() -> None:
    """Run the comparison and print a Markdown table."""
    parser = argparse.ArgumentParser(description="Fine-tune a biLM on another domain.")
    parser.add_argument("--text-a", type=Path, required=True, help="text to train on first")
    parser.add_argument("--text-b", type=Path, required=True, help="text to continue on")
    parser.add_argument("--heldout-b", type=Path, required=True, help="text to measure on")
    parser.add_argument("--work-dir", type=Path, required=True, help="new directory for all output")
    parser.add_argument("--preset", default="tiny", help="hyper-parameters by name (%(default)s)")
    parser.add_argument("--options", type=Path, help="hyper-parameters from a file, instead of --preset")
    parser.add_argument("--steps-a", type=int, default=1500, help="at most (%(default)s)")
    parser.add_argument("--steps-b", type=int, default=300, help="at most (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=64, help="%(default)s")
    parser.add_argument("--min-count", type=int, default=2, help="rarer words are <UNK> (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="%(default)s")
    args = parser.parse_args()
    for path in (args.text_a, args.text_b, args.heldout_b):
        if not path.exists():
            raise DataError(f"{path}: there is no such text")
    if args.work_dir.exists():
        raise DataError(f"{args.work_dir}: exists; give a new directory")
    args.work_dir.mkdir(parents=True)
    rows = compare(args)
    print("\n| trained on | perplexity of heldout B |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value:.1f} |")


if __name__ == "__main__":
    try:
        main()
    except (BilmError, click.ClickException) as error:
        sys.exit(f"Error: {error.format_message() if isinstance(error, click.ClickException) else error}")
