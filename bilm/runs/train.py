"""Training a language model from text."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.errors import ArgumentError, OptionsError, VocabularyError
from bilm.io import PathLike
from bilm.options import PRESETS, Options, SoftmaxBiasInit
from bilm.options.file import load_options
from bilm.runs.call import TrainingCall
from bilm.runs.elsewhere import Elsewhere
from bilm.runs.jobs import Job
from bilm.runs.recipe_request import RecipeRequest
from bilm.runs.reporter import Reporter
from bilm.runs.results import TrainingResult
from bilm.runs.resuming import begun_settings, interrupted_run, resume
from bilm.runs.running import begin
from bilm.runs.settings import SettingsArguments
from bilm.runs.texts import load_run_vocabulary

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
    ray: Elsewhere | None = None,
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
    given: dict[str, object] = {"train_prefix": train_prefix, "vocab_file": vocab_file, "save_dir": save_dir}
    choices = {"preset": preset, "options": options, "recipe": recipe, "overwrite": overwrite or None}
    with TrainingCall("train", settings, reporter, should_stop, given | choices) as call:
        if overwrite and call.settings.resume:
            raise ArgumentError("`overwrite` and `resume` exclude each other")
        chosen = _options(preset, options, call)
        request = RecipeRequest.of(recipe, options is None, call.settings.values)
        if ray is not None:
            return ray.train("train", given | choices | settings, call.reporter, should_stop)
        inputs = [Path(vocab_file), *([] if isinstance(options, Options | None) else [Path(options)])]
        return _train(
            call, train_prefix, Path(vocab_file), Path(save_dir), chosen, request, inputs, overwrite
        )


def _options(preset: str | None, options: Options | PathLike | None, call: TrainingCall) -> Options:
    """The hyper-parameters, with the changes of the call."""
    if preset is not None and options is not None:
        raise ArgumentError("`preset` and `options` exclude each other")
    if preset is not None and preset not in PRESETS:
        raise OptionsError(f"`preset` is {preset!r}; there are {', '.join(PRESETS)}")
    if options is None:
        options = PRESETS[preset or "original"]
    elif not isinstance(options, Options):
        options = load_options(Path(options))
    # The tokens are counted; a number in the file speaks of another corpus.
    return dataclasses.replace(options, n_train_tokens=None).with_values(call.settings.values)


def _train(
    call: TrainingCall,
    train_prefix: PathLike | Sequence[PathLike],
    vocab_file: Path,
    save_dir: Path,
    options: Options,
    recipe: RecipeRequest | None,
    inputs: Sequence[Path],
    overwrite: bool,
) -> TrainingResult:
    call.write_in(save_dir)
    found = interrupted_run(save_dir) if call.settings.resume else None
    vocabulary = load_run_vocabulary(vocab_file, options)
    options = _with_vocabulary(options, vocabulary.size, vocab_file)
    checkpoint = None
    if found is not None:
        checkpoint = found.latest()
        found.take_over(checkpoint.step())
    else:
        call.require_room(save_dir, vocabulary, inputs, overwrite)
    begun = begun_settings(checkpoint, "train")
    job = Job(call, train_prefix, options, vocabulary, begun=begun, recipe=recipe)
    if found is not None and checkpoint is not None:
        return resume(job, found, checkpoint)
    trainer = job.make_trainer(job.new_seed())
    if job.options.softmax_bias_init is SoftmaxBiasInit.UNIGRAM:
        trainer.model.start_softmax_biases(job.text.counts.word_counts)
    return begin(job, save_dir, trainer, inputs, overwrite=overwrite)


def _with_vocabulary(options: Options, size: int, vocab_file: Path) -> Options:
    if options.n_tokens_vocab not in (None, size):
        raise VocabularyError(
            f"{vocab_file}: has {size} words, but the options say n_tokens_vocab {options.n_tokens_vocab}"
        )
    return dataclasses.replace(options, n_tokens_vocab=size)
