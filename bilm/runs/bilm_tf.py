"""``train`` and ``test`` with bilm-tf's arguments, for scripts that import them from ``bilm.training``."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bilm.data.lm_datasets import BidirectionalLMDataset, LMDataset
from bilm.errors import ArgumentError, OptionsError, checked
from bilm.io import PathLike
from bilm.io.json_objects import plain
from bilm.options import Options, recipes
from bilm.options.hyper_parameters import dotted
from bilm.run_directory.directory import RunDirectory
from bilm.runs import test as testing
from bilm.runs import train as training
from bilm.runs.reporter import ProgressReporter, TrainingResult
from bilm.runs.settings import FIXED
from bilm.vocabulary.vocabulary import UnicodeCharsVocabulary, Vocabulary

_LOG = logging.getLogger(__name__)


@checked
def train(
    options: Mapping[str, Any],
    data: LMDataset,
    n_gpus: int,
    tf_save_dir: PathLike,
    tf_log_dir: PathLike | None = None,
    restart_ckpt_file: PathLike | None = None,
    **settings: Any,  # noqa: ANN401 - see `bilm.train`
) -> TrainingResult:
    """Train a model like bilm-tf's function: with Adagrad, its softmax start and its dropout masks.

    Args:
        options: hyper-parameters with bilm-tf's keys; keys of bilm may be added. Without ``n_train_tokens``
            the text is counted.
        data: text and vocabulary, whose files are read; ``shuffle_on_load`` shuffles shards and sentences.
        n_gpus: number of GPUs, each with a replica of the model; 1 for a CPU.
        tf_save_dir: run directory to write.
        tf_log_dir: the same; TensorBoard's files are in the run directory.
        restart_ckpt_file: checkpoint to continue from, ``DIRECTORY/model.ckpt-N``, or a directory for its
            newest, with the options that differ from its run's.
        **settings: further arguments of `bilm.train` and `bilm.restart`, such as ``heldout_prefix``.

    Raises:
        ArgumentError: `data` does not fit the options, or is of a subclass.
        BilmError: as `bilm.train` and `bilm.restart`.
    """
    save_dir = Path(tf_save_dir).resolve()
    if tf_log_dir is not None and Path(tf_log_dir).resolve() != save_dir:
        if Path(f"{tf_log_dir}.index").is_file():
            raise ArgumentError(f"`tf_log_dir` is the checkpoint {tf_log_dir}; name it restart_ckpt_file=")
        _LOG.warning("tf_log_dir %s: not used; TensorBoard's files are in %s", tf_log_dir, tf_save_dir)
    arguments = _text(data, "train_prefix", False, options) | {
        "n_gpus": n_gpus,
        "shuffle": data.shuffle_on_load,
        "n_train_tokens": options.get("n_train_tokens"),  # which a run's own options do not set
    }
    if restart_ckpt_file is None:
        arguments["options"] = recipes.OF_BILM_TF | {**options}
        return training.train(save_dir=tf_save_dir, **(arguments | settings))
    source, changes = _checkpoint(restart_ckpt_file, options)
    save_to = None if save_dir == source["save_dir"].resolve() else tf_save_dir
    return training.restart(**(arguments | source | {"save_to": save_to, "changes": changes} | settings))


@checked
def test(options: Mapping[str, Any], ckpt_file: PathLike, data: LMDataset, batch_size: int = 256) -> float:
    """Compute the perplexity of a text like bilm-tf's function, and report it.

    Args:
        options: options of the run of the checkpoint, from `load_options_latest_checkpoint`.
        ckpt_file: checkpoint, ``DIRECTORY/model.ckpt-N``, or a directory for its newest.
        data: text and vocabulary, made with ``test=True``.
        batch_size: rows of a batch.

    Raises:
        ArgumentError: `data` does not fit the options, or is of a subclass.
        BilmError: as `bilm.test`; or the options describe another network than the checkpoint's.
    """
    source, changes = _checkpoint(ckpt_file, options)
    if differ := sorted({key.partition(".")[0] for key in changes} & {*FIXED}):
        raise OptionsError(f"`options`: {', '.join(differ)} differ from those of {ckpt_file}")
    arguments = _text(data, "test_prefix", True, options) | source
    reporter = ProgressReporter()
    result = testing.test(batch_size=batch_size, compat="bilm-tf", reporter=reporter, **arguments)
    reporter.say(f"FINISHED!  AVERAGE PERPLEXITY = {result.perplexity}")
    return result.perplexity


def _text(data: LMDataset, argument: str, is_test: bool, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that name the text and the vocabulary of a dataset."""
    if data.test is not is_test or data.reverse:
        raise ArgumentError(f"`data`: must be made with test={is_test}, and not reversed")
    if data.vocab.filename is None:
        raise ArgumentError("`data`: its vocabulary has no file; make it with load_vocab")
    is_changed = any(map(callable, vars(data).values()))
    if is_changed or type(data) not in _OURS or type(data.vocab) not in _OURS:
        raise ArgumentError(
            "`data`: a class of your own may change how text is read, and bilm reads the files itself; write "
            "the changed text to a file, and give that to BidirectionalLMDataset"
        )
    known, _ = Options.parse(options)
    if known.bidirectional and not isinstance(data, BidirectionalLMDataset):
        raise ArgumentError("`data`: `options` are bidirectional; make it with BidirectionalLMDataset")
    width = known.char_cnn and known.char_cnn.max_characters_per_token
    if width not in (None, data.max_word_length):
        raise ArgumentError(
            f"`data`: its vocabulary has max_word_length {data.max_word_length}, and `options` "
            f"max_characters_per_token {width}; make it with load_vocab(FILE, {width})"
        )
    return {argument: data.filepattern, "vocab_file": data.vocab.filename}


_OURS = (LMDataset, BidirectionalLMDataset, Vocabulary, UnicodeCharsVocabulary)


def _checkpoint(file: PathLike, options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments that name a checkpoint, and the options that differ from its run's."""
    path = Path(file)
    save_dir, checkpoint = (path, None) if path.is_dir() else (path.parent, path.name)
    known = dict(dotted(RunDirectory.open(save_dir).options.to_json()))
    changes = {key: value for key, value in dotted(plain(options)) if known.get(key) != value}
    return {"save_dir": save_dir, "checkpoint": checkpoint}, changes
