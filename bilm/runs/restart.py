"""Continuing to train a model, on the same text or another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.errors import ArgumentError, OptionsError, VocabularyError
from bilm.io import PathLike
from bilm.options import Options
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.model_source import ModelArguments
from bilm.run_directory.state import read_state
from bilm.runs.call import TrainingCall
from bilm.runs.elsewhere import Elsewhere
from bilm.runs.jobs import Job
from bilm.runs.reporter import Reporter
from bilm.runs.results import TrainingResult
from bilm.runs.resuming import begun_settings, interrupted_run, resume
from bilm.runs.running import begin, go_on
from bilm.runs.settings import SettingsArguments
from bilm.runs.sources import RunSource, Source, open_source
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.checkpoint_file import CheckpointFile
from bilm.weights.transfer import Remapping

if TYPE_CHECKING:
    from typing_extensions import Unpack

FREEZE = ("encoder", "softmax", "none")
"""What of a model may be frozen."""


def restart(
    train_prefix: PathLike | Sequence[PathLike],
    save_dir: PathLike | None = None,
    *,
    model: PathLike | None = None,
    vocab_file: PathLike | None = None,
    checkpoint: str | int | None = None,
    weights: str | None = None,
    weight_file: PathLike | None = None,
    options_file: PathLike | None = None,
    save_to: PathLike | None = None,
    remap_vocab: bool = False,
    old_vocab_file: PathLike | None = None,
    freeze: str = "none",
    ray: Elsewhere | None = None,
    reporter: Reporter | None = None,
    should_stop: Callable[[], bool] | None = None,
    **settings: Unpack[SettingsArguments],
) -> TrainingResult:
    """Continue training a model, as ``bilm restart`` does, whose flags are the arguments.

    Args:
        train_prefix: text, as in `bilm.train`.
        save_dir: run directory of bilm or bilm-tf.
        model: any model by its path, instead of `save_dir` or of the two files of dumped weights: a folder or
            a ZIP archive as on vectors.nlpl.eu, a run directory, or a file of weights with its options beside
            it.
        vocab_file: vocabulary; None for the run's copy, or the one that comes with `model`.
        checkpoint: ``"latest"`` (the default), ``"best"`` or a step.
        weights: ``"raw"``, or ``"averaged"`` for their averages over the training; None for the averages
            where the run has kept some.
        weight_file: dumped weights instead of a run, HDF5.
        options_file: the ``options.json`` that belongs to them.
        save_to: new run directory; the old one stays as it is.
        remap_vocab: carry the model over to the words of ``vocab_file``.
        old_vocab_file: the vocabulary the model was trained with; None for the run's copy.
        freeze: part of the model to freeze: ``"encoder"``, ``"softmax"`` or ``"none"``.
        ray: as in `bilm.train`.
        reporter: as in `bilm.train`.
        should_stop: as in `bilm.train`.
        **settings: as in `bilm.train`.

    Raises:
        ArgumentError: arguments are unknown, are missing or exclude each other.
        BilmError: as `bilm.train`.

    Example:
        >>> import bilm
        >>> result = bilm.restart("heldout.txt", "run", save_to="tuned", max_steps=1, learning_rate=0.05)
        >>> result.step, str(result.saved)
        (13, 'tuned/model.ckpt-13')
    """
    given: dict[str, object] = {
        "train_prefix": train_prefix,
        "save_dir": save_dir,
        "model": model,
        "vocab_file": vocab_file,
        "checkpoint": checkpoint,
        "weights": weights,
        "weight_file": weight_file,
        "options_file": options_file,
        "save_to": save_to,
        "remap_vocab": remap_vocab or None,
        "old_vocab_file": old_vocab_file,
        "freeze": None if freeze == "none" else freeze,
    }
    if remap_vocab and (vocab_file is None or save_to is None):
        raise ArgumentError(
            "`remap_vocab` needs the new `vocab_file`, and `save_to`: a run keeps its vocabulary"
        )
    if old_vocab_file is not None and not remap_vocab:
        raise ArgumentError("`old_vocab_file` needs `remap_vocab`")
    if freeze not in FREEZE:
        raise OptionsError(f"`freeze` is {freeze!r}, not one of {', '.join(FREEZE)}")
    with TrainingCall("restart", settings, reporter, should_stop, given) as call:
        if ray is not None:
            return ray.train("restart", given | settings, call.reporter, should_stop)
        arguments = ModelArguments(model, save_dir, options_file, weight_file, checkpoint, weights)
        source = open_source(arguments, _path(save_to))
        words = _Words(_path(vocab_file), _path(old_vocab_file), remap_vocab)
        return _Restart(call, source, words, freeze, _path(save_to)).run(train_prefix)


def _path(given: PathLike | None) -> Path | None:
    return None if given is None else Path(given)


@dataclasses.dataclass(frozen=True)
class _Words:
    """Which vocabularies were given."""

    file: Path | None
    old_file: Path | None
    are_remapped: bool


@dataclasses.dataclass(frozen=True)
class _Restart:
    call: TrainingCall
    source: Source
    words: _Words
    freeze: str
    save_to: Path | None

    def run(self, train_prefix: PathLike | Sequence[PathLike]) -> TrainingResult:
        call, source, save_to = self.call, self.source, self.save_to
        options = source.changed_options(call.settings.values)
        call.write_in(save_to or source.path)
        vocabulary, old = self._vocabularies(options)
        options = dataclasses.replace(options, n_tokens_vocab=vocabulary.size)
        _check_freeze(self.freeze, options, source.has_softmax(old.size))
        begun = self._interrupted() if call.settings.resume else None
        inputs = [file for file in (self.words.file, self.words.old_file, *source.inputs) if file is not None]
        if begun is not None:
            begun[0].take_over(begun[1].step())
        elif save_to is not None:
            call.require_room(save_to, vocabulary, inputs, overwrite=False)
        elif isinstance(source, RunSource):
            source.run.take_over(source.checkpoint.step())

        freeze = None if self.freeze == "none" else self.freeze
        settings = begun_settings(None if begun is None else begun[1], "restart")
        job = Job(call, train_prefix, options, vocabulary, freeze, settings)
        if begun is not None:
            return resume(job, *begun)
        trainer = job.make_trainer(job.new_seed())
        remapping = self._remapping(old, job) if self.words.are_remapped else None
        step = source.load(trainer, job.text, remapping, call.reporter)
        if isinstance(source, RunSource) and save_to is None:
            return go_on(job, source.run, trainer, step)
        return begin(job, save_to or source.path, trainer, inputs, step)

    def _vocabularies(self, options: Options) -> tuple[Vocabulary, Vocabulary]:
        """That of the text, and that which the model has had."""
        words, source = self.words, self.source
        cnn = options.char_cnn
        width = None if cnn is None else cnn.max_characters_per_token
        vocabulary = old = source.vocabulary(words.file, "vocab_file", width)
        if words.are_remapped:
            old = source.vocabulary(words.old_file, "old_vocab_file")
        try:
            source.check(old, self.save_to)
        except VocabularyError as error:
            hint = (
                "is it `old_vocab_file`?"
                if words.are_remapped
                else "`remap_vocab` carries the model over to another"
            )
            raise VocabularyError(f"{error}; {hint}") from error
        return vocabulary, old

    def _interrupted(self) -> tuple[RunDirectory, CheckpointFile] | None:
        """The restart that is to be resumed; None where none was begun."""
        if self.save_to is not None:
            run = interrupted_run(self.save_to)
            return None if run is None else (run, run.latest())
        if not isinstance(self.source, RunSource):
            return None
        state = read_state(self.source.checkpoint)
        is_restart = state is not None and state.settings.get("command") == "restart"
        return (self.source.run, self.source.checkpoint) if is_restart else None

    def _remapping(self, old: Vocabulary, job: Job) -> Remapping:
        found = Remapping.of(old.words, job.text.vocabulary.words, job.text.counts.word_counts)
        self.call.reporter.say(
            f"vocabulary: {found.n_kept:,} words kept, {found.n_new:,} new, {found.n_dropped:,} dropped"
        )
        return found


def _check_freeze(freeze: str, options: Options, has_softmax: bool) -> None:
    if freeze != "none" and options.share_embedding_softmax:
        raise OptionsError(
            f"`freeze` {freeze}: the softmax of this model is its word embedding (share_embedding_softmax), "
            "which cannot be both trained and frozen"
        )
    if freeze == "softmax" and not has_softmax:
        raise OptionsError("`freeze` softmax: there is no trained softmax for this vocabulary to freeze")
