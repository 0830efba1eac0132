"""``bilm restart``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bilm.cli import shared
from bilm.cli.quiet import import_tensorflow
from bilm.cli.training_flags import TrainingFlags, training_flags
from bilm.errors import OptionsError, VocabularyError
from bilm.options import Options

if TYPE_CHECKING:
    from bilm.cli.sources import Source
    from bilm.cli.texts import Text
    from bilm.run_directory.directory import RunDirectory
    from bilm.vocabulary.vocabulary import Vocabulary
    from bilm.weights.files import CheckpointFile
    from bilm.weights.vocabulary_transfer import Remapping


@click.command()
@shared.vocab_file(required=False)
@shared.dump_or_run
@click.option("--save-to", type=shared.DIRECTORY, help="New run directory; the old one stays as it is.")
@click.option("--remap-vocab", is_flag=True, help="Take the model to the words of --vocab-file.")
@click.option(
    "--old-vocab-file",
    type=shared.FILE,
    show_default="the run's copy",
    help="With --remap-vocab: the vocabulary that the model has had.",
)
@click.option(
    "--freeze",
    type=click.Choice(["encoder", "softmax", "none"]),
    default="none",
    show_default=True,
    help="Part of the model that is not to learn.",
)
@training_flags
def restart(
    vocab_file: Path | None,
    save_dir: Path | None,
    which: str | None,
    weight_file: Path | None,
    options_file: Path | None,
    save_to: Path | None,
    remap_vocab: bool,
    old_vocab_file: Path | None,
    freeze: str,
    flags: TrainingFlags,
) -> None:
    """Go on training a model, on the same text or another.

    Starts from a checkpoint of a run, ours or bilm-tf's, with its weights, Adagrad accumulators and
    step; the run's options hold unless a flag says otherwise. Dumped weights come without these, and
    often without a softmax, which is then learned from nothing.

    A text in other words than the model's has a vocabulary of its own: --remap-vocab carries the
    model over to it, into the new run directory --save-to. Words of both vocabularies keep what was
    learned of them.
    """
    if remap_vocab and (vocab_file is None or save_to is None):
        raise click.UsageError(
            "--remap-vocab needs the new --vocab-file, and --save-to: a run keeps the vocabulary it has"
        )
    if old_vocab_file is not None and not remap_vocab:
        raise click.UsageError("--old-vocab-file goes with --remap-vocab")

    import_tensorflow()
    from bilm.cli.jobs import Job
    from bilm.cli.running import begin, begun_settings, go_on, require_room, resume, write_in
    from bilm.cli.sources import RunSource, open_source
    from bilm.cli.texts import load_run_vocabulary
    from bilm.vocabulary.vocabulary import load_vocabulary

    source = open_source(save_dir, which, weight_file, options_file, save_to)
    options = source.changed_options(flags.values)
    write_in(save_to or source.path, flags)
    vocabulary = load_run_vocabulary(source.vocabulary_file(vocab_file, "--vocab-file"), options)
    old = vocabulary
    if remap_vocab:
        old = load_vocabulary(source.vocabulary_file(old_vocab_file, "--old-vocab-file"))
    try:
        source.check(old, save_to)
    except VocabularyError as error:
        hint = "is it --old-vocab-file?" if remap_vocab else "--remap-vocab takes the model to another"
        raise VocabularyError(f"{error}; {hint}") from error
    options = dataclasses.replace(options, n_tokens_vocab=vocabulary.size)
    _check_freeze(freeze, options, source.has_softmax(old.size))
    begun = _interrupted(save_to, source) if flags.resume else None
    given = (vocab_file, old_vocab_file, weight_file, options_file)
    inputs = [file for file in given if file is not None]
    if begun is not None:
        begun[0].take_over(begun[1].step())
    elif save_to is not None:
        require_room(save_to, flags, vocabulary, inputs, overwrite=False)
    elif isinstance(source, RunSource):
        source.run.take_over(source.checkpoint.step())

    settings = begun_settings(None if begun is None else begun[1], "restart")
    job = Job("restart", options, flags, vocabulary, None if freeze == "none" else freeze, settings)
    if begun is not None:
        begun[0].check_vocabulary(vocabulary)
        resume(job, *begun)
        return
    trainer = job.make_trainer(job.new_seed())
    step = source.load(trainer, job.text, _remapping(old, job.text) if remap_vocab else None)
    if save_to is not None:
        begin(job, save_to, trainer, inputs, step)
    elif isinstance(source, RunSource):
        go_on(job, source.run, trainer, step)


def _check_freeze(freeze: str, options: Options, has_softmax: bool) -> None:
    if freeze != "none" and options.share_embedding_softmax:
        raise OptionsError(
            f"--freeze {freeze}: the softmax of this model is its word embedding (share_embedding_softmax), "
            "which cannot learn and stay as it is"
        )
    if freeze == "softmax" and not has_softmax:
        raise OptionsError("--freeze softmax: there is no softmax of this vocabulary yet that could stay")


def _remapping(old: Vocabulary, text: Text) -> Remapping:
    from bilm.weights.vocabulary_transfer import Remapping

    found = Remapping.of(old.words, text.vocabulary.words, text.counts.word_counts)
    click.echo(f"vocabulary: {found.n_kept:,} words kept, {found.n_new:,} new, {found.n_dropped:,} dropped")
    return found


def _interrupted(save_to: Path | None, source: Source) -> tuple[RunDirectory, CheckpointFile] | None:
    """The restart that is to be resumed; None where none was begun."""
    from bilm.cli.running import interrupted_run
    from bilm.cli.sources import RunSource
    from bilm.run_directory.state import read_state

    if save_to is not None:
        run = interrupted_run(save_to)
        return None if run is None else (run, run.latest())
    if not isinstance(source, RunSource):
        return None
    state = read_state(source.checkpoint)
    is_restart = state is not None and state.settings.get("command") == "restart"
    return (source.run, source.checkpoint) if is_restart else None
