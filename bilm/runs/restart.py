"""Continuing to train a model, on the same text or another."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.errors import ArgumentError, OptionsError, VocabularyError, require_flags
from bilm.io import PathLike
from bilm.io.json import changes
from bilm.options import Freeze, Options, SoftmaxBiasInit
from bilm.run_directory.directory import RunDirectory
from bilm.run_directory.model_source import ModelArguments
from bilm.runs.call import TrainingCall
from bilm.runs.loop import train_to_end
from bilm.runs.prepare import Interrupted, Start, interrupted_call, prepare
from bilm.runs.reporter import Reporter
from bilm.runs.results import TrainingResult
from bilm.runs.settings import SettingsArguments
from bilm.runs.texts import Text
from bilm.training.trainer import Trainer
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.stored_model import StoredModel
from bilm.weights.transfer import Remapping, named_weights, set_weights

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    ray: Any = None,  # noqa: ANN401 - a `bilm.ray.Cluster`, whose package imports this one
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
    arguments: dict[str, object] = {
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
    require_flags(remap_vocab=remap_vocab)
    if remap_vocab and (vocab_file is None or save_to is None):
        raise ArgumentError(
            "`remap_vocab` needs the new `vocab_file`, and `save_to`: a run keeps its vocabulary"
        )
    if old_vocab_file is not None and not remap_vocab:
        raise ArgumentError("`old_vocab_file` needs `remap_vocab`")
    freeze = Freeze(freeze).value
    call = TrainingCall("restart", settings, reporter, should_stop, arguments)
    if ray is not None:
        return ray.train("restart", arguments | settings, call.reporter, should_stop)
    with call:
        source = ModelArguments(model, save_dir, options_file, weight_file, checkpoint, weights).open()
        if save_to is None:
            source.require_in_place()
        directory = (source.path if save_to is None else Path(save_to)).absolute()
        options, n_predicted = _changed_options(source, call.settings.values), source.n_predicted
        call.write_in(directory)
        new_file, old_file = (None if file is None else Path(file) for file in (vocab_file, old_vocab_file))
        vocabulary = old = source.require_vocabulary(new_file)
        if remap_vocab:
            old = source.require_vocabulary(old_file, "old_vocab_file", with_characters=False)
        _check_vocabulary(source, old, remap_vocab)
        options = dataclasses.replace(options, n_tokens_vocab=vocabulary.size)
        _check_freeze(freeze, options, n_predicted == old.size)

        def load(trainer: Trainer, text: Text) -> int:
            remapping = None
            if remap_vocab:
                remapping = Remapping.of(old.words, vocabulary.words, text.counts.word_counts)
                call.reporter.say(
                    f"vocabulary: {remapping.n_kept:,} words kept, {remapping.n_new:,} new, "
                    f"{remapping.n_dropped:,} dropped"
                )
            return _load(source, trainer, text, old.size, remapping, call.reporter)

        start = Start(
            save_dir=directory,
            options=options,
            vocabulary=vocabulary,
            inputs=[*(file for file in (new_file, old_file) if file), *source.files],
            load=load,
            run=RunDirectory(directory, source.options) if save_to is None else None,
            freeze=None if freeze == "none" else freeze,
        )
        prepared = prepare(call, start, train_prefix, _interrupted(call, source, directory, save_to is None))
        shown = source.path if save_to is None else Path(save_to)
        return train_to_end(call, prepared).named(shown)


def _interrupted(
    call: TrainingCall, source: StoredModel, directory: Path, in_place: bool
) -> Interrupted | None:
    """The restart that is to be resumed; in the directory of its source it has begun with a checkpoint."""
    interrupted = interrupted_call(call, directory)
    return None if in_place and interrupted is not None and not interrupted.settings else interrupted


def _changed_options(source: StoredModel, values: Mapping[str, Any]) -> Options:
    """The options of the source with some values replaced.

    Raises:
        OptionsError: the network would be another one.
    """
    # The tokens are counted; a number in the file speaks of the corpus the run began with.
    before = dataclasses.replace(source.training_options(values), n_train_tokens=None)
    after = before.with_values(values)
    old, new = ({key: options.to_json().get(key) for key in source.fixed} for options in (before, after))
    if changed := changes(old, new):
        raise OptionsError(f"a restart cannot change {', '.join(changed)}; train a new run instead")
    return after


def _check_vocabulary(source: StoredModel, vocabulary: Vocabulary, are_remapped: bool) -> None:
    """Find a wrong vocabulary before an hour of reading.

    Raises:
        VocabularyError: the vocabulary is not the model's.
    """
    try:
        source.check_vocabulary(vocabulary)
    except VocabularyError as error:
        hint = (
            "is it `old_vocab_file`?" if are_remapped else "`remap_vocab` carries the model over to another"
        )
        raise VocabularyError(f"{error}; {hint}") from error


def _check_freeze(freeze: str, options: Options, has_softmax: bool) -> None:
    if freeze != "none" and options.share_embedding_softmax:
        raise OptionsError(
            f"`freeze` {freeze}: the softmax of this model is its word embedding (share_embedding_softmax), "
            "which cannot be both trained and frozen"
        )
    if freeze == "softmax" and not has_softmax:
        raise OptionsError("`freeze` softmax: there is no trained softmax for this vocabulary to freeze")


def _load(
    source: StoredModel,
    trainer: Trainer,
    text: Text,
    n_old: int,
    remapping: Remapping | None,
    reporter: Reporter,
) -> int:
    """Set model and optimizer; the number of steps behind them."""
    model = trainer.model
    variables, arrays = named_weights(model), source.arrays()
    has_softmax = source.n_predicted == n_old
    if not has_softmax:
        variables, arrays = _encoder_only(variables), _encoder_only(arrays)
        if model.options.softmax_bias_init is SoftmaxBiasInit.UNIGRAM:
            model.start_softmax_biases(text.counts.word_counts)
    set_weights(variables, arrays if remapping is None else remapping.weights(arrays), source.source)
    del arrays
    source.restore_optimizer(trainer.optimizer, named_weights(model), remapping)
    step = source.step or 0
    what = "starting" if source.step is None else "restarting"
    reporter.say(
        f"{what}: {source.source}"
        + ("" if source.step is None else f", step {step:,}{source.note}")
        + ("" if has_softmax else ", with a new softmax")
    )
    return step


def _encoder_only(by_name: dict) -> dict:
    return {name: value for name, value in by_name.items() if name.startswith("encoder/")}
