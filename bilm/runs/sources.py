"""The source of a restart: a checkpoint of a run, or dumped weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bilm.errors import ArgumentError, OptionsError, VocabularyError
from bilm.io.json import changes
from bilm.options import Options, SoftmaxBiasInit
from bilm.run_directory.directory import complete_options
from bilm.run_directory.model_source import ModelArguments, RunModel
from bilm.run_directory.state import averages_note, uses_averages
from bilm.runs.reporter import Reporter
from bilm.runs.texts import Text, run_vocabulary_file
from bilm.training.trainer import Trainer
from bilm.vocabulary.vocabulary import Vocabulary, load_vocabulary
from bilm.weights.distribution import Distribution
from bilm.weights.transfer import Remapping, named_weights, set_weights

# What makes another model of it cannot change.
_FIXED = ("lstm", "char_cnn", "bidirectional", "n_tokens_vocab")


class RunSource:
    """A checkpoint of a run directory, ours or bilm-tf's: weights, Adagrad accumulators and step."""

    def __init__(self, found: RunModel) -> None:
        self.path = found.run.path
        self.inputs: tuple[Path, ...] = ()
        self.run = found.run
        self.which = found.which
        self.weights = found.weights

    def changed_options(self, values: Mapping[str, Any]) -> Options:
        """The options with some values replaced."""
        options = complete_options(self.run, self.which, given=values)
        # The tokens are counted; a number in the file speaks of the corpus the run began with.
        options = dataclasses.replace(options, n_train_tokens=None)
        return _changed(options, values, (*_FIXED, "share_embedding_softmax"))

    def vocabulary(self, given: Path | None, argument: str, max_word_length: int | None = None) -> Vocabulary:
        """The vocabulary given by an argument, or the run's copy; see `load_vocabulary`."""
        return load_vocabulary(run_vocabulary_file(self.run, given, argument), max_word_length)

    def check(self, vocabulary: Vocabulary, save_to: Path | None) -> None:
        """Find what is wrong before an hour of reading.

        Raises:
            VocabularyError: the vocabulary is not the run's.
            CheckpointError: the checkpoint does not exist or is damaged.
            OptionsError: without `save_to` later steps would be overwritten, or there are no such weights.
        """
        self.run.check_vocabulary(vocabulary)
        self.checkpoint = self.run.choose(self.which)
        uses_averages(self.checkpoint, self.weights)
        is_newest = self.which == "latest" or self.checkpoint.prefix == self.run.latest().prefix
        if save_to is None and not is_newest:
            raise OptionsError(
                f"`checkpoint` {self.which}: {self.checkpoint.prefix} is not the newest of {self.run.path}, "
                "whose later steps would be overwritten; give `save_to`"
            )

    def has_softmax(self, n_words: int) -> bool:
        """Whether there is a trained softmax, of this number of words."""
        return True

    def load(self, trainer: Trainer, text: Text, remapping: Remapping | None, reporter: Reporter) -> int:
        """Set model and optimizer; the number of steps behind them."""
        checkpoint, weights = self.checkpoint, self.weights
        step = self.run.restore(trainer.model, trainer.optimizer, checkpoint, remapping, weights)
        reporter.say(f"restarting: {checkpoint.prefix}, step {step:,}{averages_note(checkpoint, weights)}")
        return step


class DumpSource:
    """Dumped weights, bilm-tf's, AllenNLP's or ours; the optimizer starts anew, and the softmax often."""

    def __init__(self, found: Distribution) -> None:
        self.found = found
        self.path = found.path
        self.inputs = tuple(found.files)
        self.options = dataclasses.replace(found.options, n_train_tokens=None, n_tokens_vocab=None)
        self.weights = found.arrays()

    def changed_options(self, values: Mapping[str, Any]) -> Options:
        """The options with some values replaced."""
        # Options that go with a dump do not say whether the embedding was the softmax.
        return _changed(self.options, values, _FIXED)

    def vocabulary(self, given: Path | None, argument: str, max_word_length: int | None = None) -> Vocabulary:
        """The vocabulary given by an argument, or the one with the weights; see `load_vocabulary`."""
        if given is not None:
            return load_vocabulary(given, max_word_length)
        found = self.found.vocabulary(max_word_length)
        if found is None:
            raise ArgumentError(f"dumped weights have no vocabulary; give `{argument}`")
        return found

    def check(self, vocabulary: Vocabulary, save_to: Path | None) -> None:
        """Find what is wrong before an hour of reading.

        Raises:
            VocabularyError: it has not a word for each row of the embedding.
        """
        n_rows = len(self.weights.get("encoder/embedding", vocabulary.words))
        if n_rows != vocabulary.size:
            raise VocabularyError(
                f"the vocabulary has {vocabulary.size} words, the embedding in {self.found.source} {n_rows} "
                "rows; give the vocabulary that the model was trained with"
            )

    def has_softmax(self, n_words: int) -> bool:
        """Whether there is a trained softmax, of this number of words."""
        return len(self.weights.get("softmax/b", ())) == n_words

    def load(self, trainer: Trainer, text: Text, remapping: Remapping | None, reporter: Reporter) -> int:
        """Set the model; the number of steps behind it counts from 0."""
        model = trainer.model
        variables, weights = named_weights(model), self.weights
        has_softmax = self.has_softmax(text.vocabulary.size if remapping is None else remapping.n_old)
        if not has_softmax:
            variables, weights = _encoder_only(variables), _encoder_only(weights)
            if model.options.softmax_bias_init is SoftmaxBiasInit.UNIGRAM:
                model.start_softmax_biases(text.counts.word_counts)
        set_weights(
            variables, weights if remapping is None else remapping.weights(weights), self.found.source
        )
        reporter.say(f"starting: {self.found.source}" + ("" if has_softmax else ", with a new softmax"))
        return 0


Source = RunSource | DumpSource


def open_source(model: ModelArguments, save_to: Path | None) -> Source:
    """What the arguments name.

    Raises:
        ArgumentError: they name nothing, or two things, or no place for what is made of a dump.
        BilmError: the model cannot be read.
    """
    found = model.open()
    if isinstance(found, RunModel):
        return RunSource(found)
    if save_to is None:
        raise ArgumentError(f"{found.path} is not a run; give `save_to` for the new run directory")
    return DumpSource(found)


def _changed(options: Options, values: Mapping[str, Any], fixed: tuple[str, ...]) -> Options:
    changed = options.with_values(values)
    before, after = ({key: o.to_json().get(key) for key in fixed} for o in (options, changed))
    if found := changes(before, after):
        raise OptionsError(f"a restart cannot change {', '.join(found)}; train a new run instead")
    return changed


def _encoder_only(by_name: dict) -> dict:
    return {name: value for name, value in by_name.items() if name.startswith("encoder/")}
