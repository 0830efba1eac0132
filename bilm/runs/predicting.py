"""A model that predicts words, with its softmax and its vocabulary: a run, or dumped weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

from bilm.errors import ArgumentError, VocabularyError, WeightsError
from bilm.models.language_model import LanguageModel
from bilm.options import Options
from bilm.run_directory.directory import complete_options
from bilm.run_directory.model_source import ModelArguments, RunModel
from bilm.run_directory.state import averages_note
from bilm.runs.texts import load_run_vocabulary, run_vocabulary_file
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights.distribution import Distribution
from bilm.weights.transfer import named_weights, set_weights


class Predicting(NamedTuple):
    """A model ready to predict.

    Attributes:
        model: with its weights.
        step: steps behind it; None where the weights do not say.
        options: with which a text is read; those that a run of bilm-tf lacks are assumed.
    """

    model: LanguageModel
    step: int | None
    options: Options


class RunPredictor:
    """The model of a run.

    Args:
        found: the run.
        vocab_file: its vocabulary; None for the run's copy.

    Attributes:
        vocabulary: of the model.
        name: of what is read.

    Raises:
        ArgumentError: the run has no vocabulary, and none was given.
        BilmError: the vocabulary is not the run's, or there is no such checkpoint.
    """

    def __init__(self, found: RunModel, vocab_file: Path | None) -> None:
        self._found, run = found, found.run
        self.vocabulary: Vocabulary = load_run_vocabulary(run_vocabulary_file(run, vocab_file), run.options)
        run.check_vocabulary(self.vocabulary)
        self._checkpoint = run.choose(found.which)
        self.name = str(self._checkpoint.prefix)

    @property
    def note(self) -> str:
        """What is to be said of the weights after their name."""
        return averages_note(self._checkpoint, self._found.weights)

    def load(self, is_compatible: bool = False) -> Predicting:
        """Read the weights.

        Args:
            is_compatible: for bilm-tf's number, which needs no options that can be missing.

        Raises:
            BilmError: as `bilm.run_directory.directory.RunDirectory.restore`.
        """
        run, which = self._found.run, self._found.which
        model = LanguageModel(run.options)
        step = run.restore(model, checkpoint=self._checkpoint, weights=self._found.weights)
        options = run.options if is_compatible else complete_options(run, which, needed=("unroll_steps",))
        return Predicting(model, step, options)


class DumpPredictor:
    """The model of dumped weights with their softmax.

    Args:
        found: the weights.
        vocab_file: their vocabulary; None for the one that comes with them.

    Attributes:
        vocabulary: of the model.
        name: of what is read.
        note: nothing.

    Raises:
        ArgumentError: no vocabulary came with them, and none was given.
        BilmError: they have no softmax, or it is that of another vocabulary.
    """

    note = ""

    def __init__(self, found: Distribution, vocab_file: Path | None) -> None:
        self.name = found.source
        self._arrays = found.arrays()
        if "softmax/b" not in self._arrays:
            raise WeightsError(
                f"{self.name}: has no softmax, without which it gives vectors and no probabilities; give the "
                "run that it was dumped from, or dump it with `with_softmax`"
            )
        self._options = dataclasses.replace(
            found.options,
            n_tokens_vocab=len(self._arrays["softmax/b"]),
            share_embedding_softmax="softmax/W" not in self._arrays,
        )
        vocabulary = _vocabulary_of(found, vocab_file)
        if vocabulary.size != self._options.n_tokens_vocab:
            raise VocabularyError(
                f"the vocabulary has {vocabulary.size} words, the softmax in {self.name} "
                f"{self._options.n_tokens_vocab}; give the vocabulary that the model was trained with"
            )
        self.vocabulary = vocabulary

    def load(self, is_compatible: bool = False) -> Predicting:
        """Make the model.

        Args:
            is_compatible: see `RunPredictor.load`; here it makes no difference.

        Raises:
            WeightsError: the weights do not fit each other.
        """
        model = LanguageModel(self._options)
        set_weights(named_weights(model), self._arrays, self.name)
        return Predicting(model, None, self._options)


Predictor = RunPredictor | DumpPredictor


def _vocabulary_of(found: Distribution, vocab_file: Path | None) -> Vocabulary:
    options = found.options
    if vocab_file is not None:
        return load_run_vocabulary(vocab_file, options)
    cnn = options.char_cnn
    vocabulary = found.vocabulary(None if cnn is None else cnn.max_characters_per_token)
    if vocabulary is None:
        raise ArgumentError(f"{found.path} holds no vocabulary; give `vocab_file`")
    return vocabulary


def open_predictor(model: ModelArguments, vocab_file: Path | None) -> Predictor:
    """Find the model of a call that takes `model` or `save_dir`.

    Raises:
        ArgumentError: neither or both are given, or there is no vocabulary.
        BilmError: the model cannot be read, or has no softmax.
    """
    found = model.open(takes_files=False)
    return (
        RunPredictor(found, vocab_file) if isinstance(found, RunModel) else DumpPredictor(found, vocab_file)
    )
