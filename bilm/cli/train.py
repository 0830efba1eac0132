"""``bilm train``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from bilm.cli import shared
from bilm.cli.quiet import import_tensorflow
from bilm.cli.training_flags import TrainingFlags, training_flags
from bilm.errors import VocabularyError
from bilm.options import PRESETS, Options, SoftmaxBiasInit
from bilm.options.file import load_options


@click.command()
@shared.vocab_file(required=True)
@click.option("--save-dir", type=shared.DIRECTORY, required=True, help="Run directory to write.")
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), show_default="original", help="Hyper-parameters by name."
)
@click.option("--options", "options_file", type=shared.FILE, help="Hyper-parameters from an options.json.")
@training_flags
@shared.overwrite
def train(
    vocab_file: Path,
    save_dir: Path,
    preset: str | None,
    options_file: Path | None,
    overwrite: bool,
    flags: TrainingFlags,
) -> None:
    """Train a language model from text.

    The hyper-parameters are those of --preset or --options, where no flag and no --set gives another.
    The default is the published model, which wants a GPU and a large corpus; try `--preset tiny` first.

    SIGTERM, SIGINT (Ctrl-C), SIGUSR1, SIGHUP and the end of --max-time finish the step, save, and exit
    with status 75; the same command with --resume goes on from there.
    """
    if preset is not None and options_file is not None:
        raise click.UsageError("--preset and --options exclude each other")
    if overwrite and flags.resume:
        raise click.UsageError("--overwrite and --resume exclude each other")
    options = PRESETS[preset or "original"] if options_file is None else load_options(options_file)
    # The tokens are counted; a number in the file speaks of another corpus.
    options = dataclasses.replace(options, n_train_tokens=None).with_values(flags.values)

    import_tensorflow()
    from bilm.cli.jobs import Job
    from bilm.cli.running import begin, begun_settings, interrupted_run, require_room, resume, write_in
    from bilm.cli.texts import load_run_vocabulary

    write_in(save_dir, flags)
    found = interrupted_run(save_dir) if flags.resume else None
    vocabulary = load_run_vocabulary(vocab_file, options)
    options = _with_vocabulary(options, vocabulary.size, vocab_file)
    inputs = [vocab_file] if options_file is None else [vocab_file, options_file]
    checkpoint = None
    if found is not None:
        checkpoint = found.latest()
        found.take_over(checkpoint.step())
    else:
        require_room(save_dir, flags, vocabulary, inputs, overwrite)
    job = Job("train", options, flags, vocabulary, begun=begun_settings(checkpoint, "train"))
    if found is not None and checkpoint is not None:
        found.check_vocabulary(vocabulary)
        resume(job, found, checkpoint)
        return

    trainer = job.make_trainer(job.new_seed())
    if options.softmax_bias_init is SoftmaxBiasInit.UNIGRAM:
        trainer.model.start_softmax_biases(job.text.counts.word_counts)
    begin(job, save_dir, trainer, inputs, overwrite=overwrite)


def _with_vocabulary(options: Options, size: int, vocab_file: Path) -> Options:
    if options.n_tokens_vocab not in (None, size):
        raise VocabularyError(
            f"{vocab_file}: has {size} words, and the options say n_tokens_vocab {options.n_tokens_vocab}"
        )
    return dataclasses.replace(options, n_tokens_vocab=size)
