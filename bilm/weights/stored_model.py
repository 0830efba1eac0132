"""A model at a path: what a run directory, a folder, a ZIP archive and a pair of files have in common."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bilm.errors import ArgumentError, VocabularyError
from bilm.options import Options
from bilm.vocabulary.vocabulary import Vocabulary, load_vocabulary
from bilm.weights.hdf5_file import Arrays
from bilm.weights.names import WeightName

if TYPE_CHECKING:
    import keras

    from bilm.weights.transfer import Remapping


class StoredModel(abc.ABC):
    """A model that can be read: the checkpoint of a run, or weights and options as they are handed out.

    Attributes:
        path: as it was given.
        options: of the network.
        source: the name of the weights in messages.
        files: files and directories on disk that are read.
        names: of all arrays that there may be.
        n_predicted: words that the softmax predicts; None without a softmax.
        n_words: words that the encoder, or all of a run, depends on; else None.
        step: steps behind the weights; None where they do not say.
        note: ends a line on the weights, such as ``", averaged weights"``.
        fixed: keys of the options that cannot change when its training goes on.

    Raises:
        BilmError: for an attribute that is read when it is needed, and cannot be.
    """

    path: Path
    options: Options
    source: str
    files: list[Path]
    names: Sequence[WeightName]
    n_predicted: int | None
    n_words: int | None
    step: int | None = None
    note = ""
    fixed: tuple[str, ...] = ("lstm", "char_cnn", "bidirectional", "n_tokens_vocab")

    @abc.abstractmethod
    def arrays(self) -> Arrays:
        """The weights by our own names, float32, with the softmax if there is one.

        Raises:
            BilmError: they cannot be read, or do not fit the options.
        """

    @abc.abstractmethod
    def vocabulary(self, max_word_length: int | None = None) -> Vocabulary | None:
        """The vocabulary that is stored with the model; None without one.

        Args:
            max_word_length: as for `load_vocabulary`.

        Raises:
            VocabularyError: it cannot be read or is not valid.
        """

    @abc.abstractmethod
    def predicting_options(self, needed: Collection[str]) -> Options:
        """The options of the whole language model, those for training included.

        Args:
            needed: keys that a run of bilm-tf may lack, and whose assumed value is told.

        Raises:
            WeightsError: there is no softmax.
        """

    def training_options(self, given: Collection[str] = ()) -> Options:
        """The options to go on training with; the vocabulary may be another one.

        Args:
            given: keys that have a value from elsewhere.
        """
        return dataclasses.replace(self.options, n_tokens_vocab=None)

    def require_in_place(self) -> None:
        """Refuse to go on training where the model is.

        Raises:
            ArgumentError: it is not a run.
            OptionsError: later checkpoints of the run would be overwritten.
        """
        raise ArgumentError(f"{self.path} is not a run; give `save_to` for the new run directory")

    def restore_optimizer(  # noqa: B027 - a dump stores none
        self,
        optimizer: keras.optimizers.Optimizer,
        variables: Mapping[str, keras.Variable],
        remapping: Remapping | None = None,
    ) -> None:
        """Set an optimizer to the state that is stored with the model, if there is one.

        Args:
            optimizer: built with the variables.
            variables: of the model, by our own names.
            remapping: to the vocabulary of the model, if that is another one.
        """

    def require_vocabulary(
        self, file: Path | None, argument: str = "vocab_file", with_characters: bool = True
    ) -> Vocabulary:
        """The vocabulary in a file or, without a file, the model's own.

        Args:
            file: given by a call, or None.
            argument: that gives it.
            with_characters: whether the words are needed as the rows of a model with a character CNN.

        Raises:
            ArgumentError: there is neither.
            VocabularyError: it cannot be read or is not valid.
        """
        cnn = self.options.char_cnn if with_characters else None
        width = None if cnn is None else cnn.max_characters_per_token
        vocabulary = self.vocabulary(width) if file is None else load_vocabulary(file, width)
        if vocabulary is None:
            raise ArgumentError(f"{self.path} holds no vocabulary; give `{argument}`")
        return vocabulary

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Refuse a vocabulary that is not the model's.

        Raises:
            VocabularyError: says what differs.
        """
        require_size(vocabulary, self.n_words, self.source)


def require_size(vocabulary: Vocabulary, n_words: int | None, source: str) -> None:
    """Refuse a vocabulary of another size than a model's.

    Args:
        vocabulary: to be used with the model.
        n_words: of the model; None where its arrays do not depend on it.
        source: of the model.

    Raises:
        VocabularyError: says so.
    """
    if n_words is not None and vocabulary.size != n_words:
        raise VocabularyError(
            f"the vocabulary has {vocabulary.size} words, the model in {source} {n_words}; give the "
            "vocabulary that the model was trained with"
        )
