"""Training of a language model from text, and continued training on the same or another text.

What can be wrong with the arguments is told before TensorFlow is loaded.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, Unpack, runtime_checkable

from bilm.errors import ArgumentError, OptionsError, VocabularyError, checked
from bilm.io import PathLike, json_objects
from bilm.options import Options, parameters, recipes
from bilm.options.options_file import choose_options
from bilm.run_directory.model_source import ModelArguments
from bilm.runs.reporter import Reporter, TrainingResult
from bilm.runs.settings import FIXED, Request, TrainingArguments
from bilm.vocabulary.vocabulary import load_vocabulary
from bilm.weights.arrays import check_arrays
from bilm.weights.distribution import StoredModel, require_size


@runtime_checkable
class Cluster(Protocol):
    """A `bilm.ray.Cluster`, whose package imports this one."""

    def train(self, kind: str, arguments: Mapping[str, Any], reporter: Reporter, should_stop: Any) -> Any:  # noqa: ANN401
        """Run a call of `train` or `restart` on the workers."""


@checked
def train(
    train_prefix: PathLike | Iterable[PathLike] | None = None,
    vocab_file: PathLike | None = None,
    save_dir: PathLike | None = None,
    *,
    corpus: PathLike | None = None,
    preset: str | None = None,
    options: Options | Mapping[str, Any] | PathLike | None = None,
    recipe: str | None = None,
    overwrite: bool = False,
    ray: Cluster | None = None,
    reporter: Reporter | None = None,
    should_stop: Callable[[], bool] | None = None,
    **settings: Unpack[TrainingArguments],
) -> TrainingResult:
    """Train a language model from text.

    Args:
        train_prefix: text, one sentence per line: files, directories or globs; ``-`` for standard input.
        vocab_file: vocabulary, one word per line.
        save_dir: run directory to write.
        corpus: directory that `bilm.prepare` wrote, in place of `train_prefix`, `vocab_file` and, if it is
            missing, ``heldout_prefix``; the run keeps its ``text.json``.
        preset: name of a set of hyper-parameters: ``"laptop"`` (the default), ``"original"``, ``"tiny"`` and
            others.
        options: hyper-parameters, instead of a preset: `bilm.Options`, a dictionary with the keys of
            ``options.json``, or a JSON or TOML file with them.
        recipe: optimizer, schedule and regularisation by name: ``"one-pass"``, ``"several-passes"``,
            ``"many-passes"``, ``"bilm-tf"``, or ``"auto"``, which chooses by the size of the text and the
            number of passes. The default is ``"auto"`` with a preset, and no recipe with `options`. Values
            set by other arguments take precedence.
        overwrite: replace an existing run.
        ray: `bilm.ray.Cluster`, to train on its workers. They must see all files under the same paths; the
            paths in the result are absolute.
        reporter: receives the progress; None to show it on standard error. ``bilm.Reporter()`` sends
            messages and validations to the logger ``bilm``.
        should_stop: called again and again, at least after each step; if it returns true, the run is saved
            and the call ends.
        **settings: changes of hyper-parameters: ``n_epochs``, ``batch_size``, ``accumulate``,
            ``n_train_tokens``, ``optimizer``, ``learning_rate``, ``warmup_steps``,
            ``learning_rate_decay``, ``dropout``, ``weight_decay``,
            ``precision`` and, in ``changes``, any key of ``options.json`` such as
            ``{"lstm.dim": 512}``; and the fields of
            `bilm.runs.settings.TrainingSettings`: ``heldout_prefix``, ``eval_every`` (steps or
            ``"epoch"``), ``patience``, ``save_every`` (steps, or minutes such as ``"10m"``), ``keep``,
            ``max_steps``, ``max_time`` (seconds, or a time such as ``"90m"``), ``resume``, ``dry_run``,
            ``seed``, ``shuffle``, ``shuffle_buffer``, ``n_gpus``, ``threads``, ``jit``,
            ``log_every``, ``histograms_every``.

    Raises:
        ArgumentError: arguments are unknown or exclude each other.
        BilmError: options, vocabulary or text cannot be used, something in the directory would be lost,
            or the training diverges.

    Example:
        >>> import bilm
        >>> result = bilm.train(
        ...     "corpus.txt", "vocab.txt", "new-run", options="run/options.json", max_steps=2, seed=1
        ... )
        >>> result.outcome == "finished", result.step, str(result.saved)
        (True, 2, 'new-run/model.ckpt-2')
    """
    if save_dir is None:
        raise ArgumentError("give `save_dir`, the run directory to write")
    request = Request(
        train, locals(), save_dir, recipe=recipes.AUTO if (recipe, options) == (None, None) else recipe
    )
    chosen = choose_options(preset, options).with_values(request.settings.values)
    if ray is not None:
        return ray.train(request.kind, request.arguments, request.reporter, should_stop)
    cnn = chosen.char_cnn
    vocab_file = vocab_file or request.arguments["vocab_file"]
    vocabulary = load_vocabulary(vocab_file, None if cnn is None else cnn.max_characters_per_token)
    if chosen.n_tokens_vocab not in (None, vocabulary.size):
        raise VocabularyError(
            f"{vocab_file}: has {vocabulary.size} words, but the options say n_tokens_vocab "
            f"{chosen.n_tokens_vocab}; leave it out, since the vocabulary decides"
        )
    from bilm.backend import keras_backend  # noqa: F401 - before TensorFlow
    from bilm.runs.prepare import run

    return run(request, dataclasses.replace(chosen, n_tokens_vocab=vocabulary.size), vocabulary)


@checked
def restart(
    train_prefix: PathLike | Iterable[PathLike] | None = None,
    save_dir: PathLike | None = None,
    *,
    corpus: PathLike | None = None,
    model: PathLike | None = None,
    vocab_file: PathLike | None = None,
    checkpoint: PathLike | int | None = None,
    weight_file: PathLike | None = None,
    options_file: PathLike | None = None,
    save_to: PathLike | None = None,
    overwrite: bool = False,
    remap_vocab: bool = False,
    old_vocab_file: PathLike | None = None,
    recipe: str | None = None,
    freeze: str = "none",
    ray: Cluster | None = None,
    reporter: Reporter | None = None,
    should_stop: Callable[[], bool] | None = None,
    **settings: Unpack[TrainingArguments],
) -> TrainingResult:
    """Continue training a model.

    Args:
        train_prefix: text, as in `bilm.train`.
        save_dir: run directory of bilm or bilm-tf.
        corpus: as in `bilm.train`; its vocabulary is used with `remap_vocab`, or for a new softmax.
        model: path of a model, instead of `save_dir` or the two files of dumped weights: a run directory, a
            folder or archive as on vectors.nlpl.eu, or a weight file with its options beside it.
        vocab_file: vocabulary; None for the run's copy, or the one that comes with `model`.
        checkpoint: ``"latest"`` (the default), ``"best"``, a step or a name, see `RunDirectory.choose`.
        weight_file: dumped weights, HDF5, instead of a run.
        options_file: ``options.json`` of the dumped weights.
        save_to: new run directory; the old one is not changed.
        overwrite: replace an existing run in `save_to`.
        remap_vocab: carry the model over to the words of `vocab_file`.
        old_vocab_file: vocabulary that the model was trained with; None for the run's copy.
        recipe: as in `bilm.train`; None for the options of the model.
        freeze: part of the model to freeze: ``"encoder"``, ``"softmax"`` or ``"none"``.
        ray: as in `bilm.train`.
        reporter: as in `bilm.train`.
        should_stop: as in `bilm.train`.
        **settings: as in `bilm.train`.

    Raises:
        ArgumentError: arguments are unknown, missing, or exclude each other.
        BilmError: as `bilm.train`.

    Example:
        >>> import bilm
        >>> result = bilm.restart("heldout.txt", "run", save_to="tuned", max_steps=1, learning_rate=0.05)
        >>> result.step, str(result.saved)
        (13, 'tuned/model.ckpt-13')
    """
    if remap_vocab and vocab_file is None and corpus is None:
        raise ArgumentError("`remap_vocab` needs the new `vocab_file`, or a `corpus`")
    if remap_vocab and save_to is None:
        raise ArgumentError("`remap_vocab` needs `save_to`: a run keeps its vocabulary")
    if old_vocab_file is not None and not remap_vocab:
        raise ArgumentError("`old_vocab_file` needs `remap_vocab`")
    if save_dir is not None and model is not None:
        raise ArgumentError(
            "give one of `model` and `save_dir`, the run to continue; `save_to` is a new run directory"
        )
    if overwrite and save_to is None:
        raise ArgumentError("`overwrite` needs `save_to`: a restart goes on in the directory of its run")
    request = Request(
        *(restart, locals(), save_to or save_dir or model or ""),
        recipe=recipe,
        in_place=save_to is None,
        freeze=None if freeze == "none" else parameters.Freeze(freeze).value,
    )
    if ray is not None:
        return ray.train(request.kind, request.arguments, request.reporter, should_stop)
    from bilm.backend import keras_backend  # noqa: F401 - before TensorFlow
    from bilm.run_directory.directory import RunModel
    from bilm.runs.prepare import run
    from bilm.text.prepare import corpus_arguments

    is_resumed = checkpoint is not None and request.in_place and request.settings.resume
    if is_resumed and RunModel.interrupted(request.path, "restart", in_place=True):
        checkpoint = None  # the interrupted call began with it
    names = ("model", "save_dir", "options_file", "weight_file")
    paths = {name: request.arguments.get(name) for name in names}
    source = ModelArguments(**paths, checkpoint=checkpoint).open()
    if save_to is None and not isinstance(source, RunModel):
        raise ArgumentError(f"{source.path} is not a run; give `save_to` for the new run directory")
    new, n_predicted = _changed_options(source, request), source.n_predicted
    has_no_words = n_predicted is None and new.char_cnn is not None
    if corpus is not None and has_no_words:
        request.arguments.setdefault("vocab_file", corpus_arguments(corpus)["vocab_file"])
    if remap_vocab and has_no_words:
        raise ArgumentError(
            f"`remap_vocab`: {source.source} has no softmax to carry over; leave it out, and a new softmax "
            "is learned for `vocab_file` or the words of the `corpus`"
        )
    vocabulary = old = source.require_vocabulary(vocab_file or request.arguments.get("vocab_file"))
    if remap_vocab:
        old = source.require_vocabulary(old_vocab_file, "old_vocab_file", with_characters=False)
    try:
        source.check_vocabulary(old)  # before the text is read, which may take an hour
        require_size(old, n_predicted, source.source)
    except VocabularyError as error:
        hint = "`remap_vocab` adapts the model to another"
        raise VocabularyError(f"{error}; {'give it as `old_vocab_file`' if remap_vocab else hint}") from error
    if source.step is None:
        check_arrays(source.dumped.shapes, source.names, source.source)
    if (frozen := request.freeze) and new.share_embedding_softmax:
        raise OptionsError(
            f"`freeze` {frozen}: the softmax of this model is its word embedding "
            "(share_embedding_softmax), which cannot be both trained and frozen"
        )
    if frozen == "softmax" and n_predicted is None:
        raise OptionsError("`freeze` softmax: there is no trained softmax for this vocabulary to freeze")
    new = dataclasses.replace(new, n_tokens_vocab=vocabulary.size)
    return run(request, new, vocabulary, source, old if remap_vocab else None)


def _changed_options(source: StoredModel, request: Request) -> Options:
    """Return the options of the source with the values of the request.

    Raises:
        OptionsError: a value would change the network.
    """
    fixed, n_words, stored = FIXED, source.n_predicted, source.options
    if source.step is None:  # dumped weights may have no softmax, or that of the word embedding
        fixed, n_words = (FIXED[:-1] if n_words is None else FIXED), None
        stored = stored if source.n_predicted is None else source.predicting_options()
    if request.in_place:
        fixed += ("unicode_form",)
    # The recorded number of tokens is for the text that the run began with; the new text is counted.
    before = dataclasses.replace(stored, n_tokens_vocab=n_words, n_train_tokens=None)
    after = before.with_values(request.settings.values)
    old, new = ({key: options.to_json().get(key) for key in fixed} for options in (before, after))
    if changed := json_objects.changes(old, new):
        raise OptionsError(f"a restart cannot change {', '.join(changed)}; train a new run instead")
    return after
