"""Training a language model from text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilm.errors import ArgumentError, OptionsError, VocabularyError, require_flags
from bilm.io import PathLike
from bilm.options import PRESETS, Options, SoftmaxBiasInit
from bilm.options.file import load_options
from bilm.options.recipes import AUTO, RECIPES
from bilm.runs.call import TrainingCall
from bilm.runs.loop import train_to_end
from bilm.runs.prepare import Start, interrupted_call, prepare
from bilm.runs.reporter import Reporter
from bilm.runs.results import TrainingResult
from bilm.runs.settings import SettingsArguments
from bilm.runs.texts import Text
from bilm.training.trainer import Trainer
from bilm.vocabulary.vocabulary import load_vocabulary

if TYPE_CHECKING:
    from typing_extensions import Unpack


def train(
    train_prefix: PathLike | Sequence[PathLike],
    vocab_file: PathLike,
    save_dir: PathLike,
    *,
    preset: str | None = None,
    options: Options | PathLike | None = None,
    recipe: str | None = None,
    overwrite: bool = False,
    ray: Any = None,  # noqa: ANN401 - a `bilm.ray.Cluster`, whose package imports this one
    reporter: Reporter | None = None,
    should_stop: Callable[[], bool] | None = None,
    **settings: Unpack[SettingsArguments],
) -> TrainingResult:
    """Train a language model from text, as ``bilm train`` does, whose flags are the arguments.

    Args:
        train_prefix: text, one sentence per line: files, directories or globs; ``-`` for standard input.
        vocab_file: vocabulary, one word per line.
        save_dir: run directory to write.
        preset: hyper-parameters by name: ``"original"`` (the default), ``"small"``, ``"tiny"`` and others.
        options: hyper-parameters instead of a preset's: `bilm.Options`, or an ``options.json``.
        recipe: optimizer, schedule and regularisation by name: ``"one-pass"``, ``"several-passes"``,
            ``"many-passes"``, ``"bilm-tf"``, or ``"auto"``, which chooses by the text and the number of
            passes. The default is ``"auto"`` with a preset, and none with `options`. Other arguments that
            set one of its values win.
        overwrite: replace the run that is there.
        ray: `bilm.ray.Cluster`, to train on the workers of a Ray cluster; None for this process. They must
            have all files under the same paths. Progress and result come back, with absolute paths.
        reporter: receives the progress; None for the logger ``bilm``.
        should_stop: called after each step; if it returns true, the run is saved and the call ends.
        **settings: hyper-parameters that differ: ``n_epochs``, ``batch_size``, ``accumulate``,
            ``n_train_tokens``, ``optimizer``, ``learning_rate``, ``warmup_steps``,
            ``learning_rate_decay``, ``dropout``, ``type_dropout``, ``weight_dropout``, ``weight_decay``,
            ``weight_averaging``, ``precision`` and, in ``changes``, any key of ``options.json`` such as
            ``{"lstm.dim": 512}``; and the fields of
            `bilm.runs.settings.TrainingSettings`: ``heldout_prefix``, ``eval_every`` (steps or
            ``"epoch"``), ``patience``, ``save_every`` (steps, or minutes such as ``"30m"``), ``keep``,
            ``max_steps``, ``max_time`` (seconds), ``resume``, ``dry_run``, ``seed``, ``shuffle``,
            ``shuffle_buffer``, ``n_gpus``, ``jit``, ``log_every``, ``histograms_every``.

    Raises:
        ArgumentError: arguments are unknown or exclude each other.
        BilmError: options, vocabulary or text cannot be used, something would be lost in the directory,
            or the training diverges.

    Example:
        >>> import bilm
        >>> result = bilm.train(
        ...     "corpus.txt", "vocab.txt", "new-run", options="run/options.json", max_steps=2, seed=1
        ... )
        >>> result.outcome == "finished", result.step, str(result.saved)
        (True, 2, 'new-run/model.ckpt-2')
    """
    arguments: dict[str, object] = {
        "train_prefix": train_prefix,
        "vocab_file": vocab_file,
        "save_dir": save_dir,
        "preset": preset,
        "options": options,
        "recipe": recipe,
        "overwrite": overwrite or None,
    }
    require_flags(overwrite=overwrite)
    call = TrainingCall("train", settings, reporter, should_stop, arguments)
    if overwrite and call.settings.resume:
        raise ArgumentError("`overwrite` and `resume` exclude each other")
    if recipe is not None and recipe not in RECIPES:
        raise OptionsError(f"`recipe` is {recipe!r}, not one of {', '.join(RECIPES)}")
    chosen = _options(preset, options).with_values(call.settings.values)
    if ray is not None:
        return ray.train("train", arguments | settings, call.reporter, should_stop)
    directory = Path(save_dir).absolute()  # whatever becomes the current directory meanwhile
    with call:
        call.write_in(directory)
        interrupted = interrupted_call(call, directory)
        cnn = chosen.char_cnn
        vocabulary = load_vocabulary(vocab_file, None if cnn is None else cnn.max_characters_per_token)
        if chosen.n_tokens_vocab not in (None, vocabulary.size):
            raise VocabularyError(
                f"{vocab_file}: has {vocabulary.size} words, but the options say n_tokens_vocab "
                f"{chosen.n_tokens_vocab}"
            )
        start = Start(
            save_dir=directory,
            options=dataclasses.replace(chosen, n_tokens_vocab=vocabulary.size),
            vocabulary=vocabulary,
            inputs=[Path(vocab_file), *([] if isinstance(options, Options | None) else [Path(options)])],
            load=_load,
            overwrite=overwrite,
            recipe=recipe or (AUTO if options is None else None),
            keeps_recipe=recipe is None,
        )
        prepared = prepare(call, start, train_prefix, interrupted)
        return train_to_end(call, prepared).named(Path(save_dir))


def _options(preset: str | None, options: Options | PathLike | None) -> Options:
    """The hyper-parameters of a preset or of a file."""
    if preset is not None and options is not None:
        raise ArgumentError("`preset` and `options` exclude each other")
    if preset is not None and preset not in PRESETS:
        raise OptionsError(f"`preset` is {preset!r}; there are {', '.join(PRESETS)}")
    if options is None:
        options = PRESETS[preset or "original"]
    elif not isinstance(options, Options):
        options = load_options(Path(options))
    # The tokens are counted; a number in the file speaks of another corpus.
    return dataclasses.replace(options, n_train_tokens=None)


def _load(trainer: Trainer, text: Text) -> int:
    """Begin with the counts of the words as biases of the softmax, where the options ask for that."""
    if trainer.options.softmax_bias_init is SoftmaxBiasInit.UNIGRAM:
        trainer.model.start_softmax_biases(text.counts.word_counts)
    return 0
