"""``bilm train``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from bilm.cli import shared
from bilm.cli.jobs import (
    Schedule,
    load_run_vocabulary,
    make_strategy,
    make_trainer,
    read_text,
    run_training,
    steps_per_epoch,
)
from bilm.cli.quiet import import_tensorflow
from bilm.errors import VocabularyError
from bilm.options import PRESETS, Options, SoftmaxBiasInit, load_options


@click.command()
@shared.text_files("train")
@shared.vocab_file(required=True)
@shared.save_dir
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), help="Hyper-parameters by name.  [default: original]"
)
@click.option("--options", "options_file", type=shared.FILE, help="Hyper-parameters from an options.json.")
@shared.training_flags
@shared.overwrite
def train(
    prefixes: tuple[str, ...],
    more: tuple[str, ...],
    vocab_file: Path,
    save_dir: Path,
    preset: str | None,
    options_file: Path | None,
    changes: tuple[str, ...],
    max_steps: int | None,
    save_every: int,
    seed: int,
    shuffle: bool,
    n_gpus: int,
    overwrite: bool,
    **named: Any,  # noqa: ANN401
) -> None:
    """Train a language model from text.

    The default hyper-parameters are those of the published model, which wants a GPU and a large
    corpus; try `--preset tiny` first.
    """
    if preset is not None and options_file is not None:
        raise click.UsageError("--preset and --options exclude each other")
    options = PRESETS[preset or "original"] if options_file is None else load_options(options_file)
    # The tokens are counted; a number in the file speaks of another corpus.
    options = dataclasses.replace(options, n_train_tokens=None)
    options = options.with_values(shared.option_values(changes, named))

    import_tensorflow()
    from bilm.checkpoint import RunDirectory, refuse_existing_run

    refuse_existing_run(save_dir, overwrite)
    vocabulary = load_run_vocabulary(vocab_file, options)
    options = _with_vocabulary(options, vocabulary.size, vocab_file)
    schedule = Schedule(max_steps, save_every, seed, shuffle, n_gpus)
    strategy = make_strategy(n_gpus)
    text = read_text([*prefixes, *more], vocabulary)
    steps_per_epoch(options, text, n_gpus)

    trainer = make_trainer(options, schedule, strategy)
    if options.softmax_bias_init is SoftmaxBiasInit.UNIGRAM:
        trainer.model.start_softmax_biases(text.counts.word_counts)
    recorded = dataclasses.replace(options, n_train_tokens=options.n_train_tokens or text.counts.n_tokens)
    run = RunDirectory.create(save_dir, recorded, vocabulary, overwrite)
    try:
        run_training(run, trainer, text, schedule, first_step=0)
    finally:
        run.discard_unsaved()


def _with_vocabulary(options: Options, size: int, vocab_file: Path) -> Options:
    if options.n_tokens_vocab not in (None, size):
        raise VocabularyError(
            f"{vocab_file}: has {size} words, and the options say n_tokens_vocab {options.n_tokens_vocab}"
        )
    return dataclasses.replace(options, n_tokens_vocab=size)
