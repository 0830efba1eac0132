"""The most probable words at places in sentences: next words, substitutes, and the words of gaps."""

import fnmatch
import functools
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bilm.data import packing, stream
from bilm.embedding.scoring import Scorer
from bilm.errors import ArgumentError, OptionsError, checked, require_positive, require_words
from bilm.io import PathLike
from bilm.options.parameters import Context, UnicodeForm
from bilm.run_directory.model_source import ModelArguments
from bilm.vocabulary.vocabulary_file import SPECIAL_TOKENS

_TOKENS = 1 << 12  # read together
_LOGITS = 1 << 23  # maximum number in memory at once
_PRIOR_EXPONENT = 0.75


@dataclass(frozen=True)
class Prediction:
    """The most probable words at a place in a sentence.

    Attributes:
        position: index of the place among the words of the sentence, from 0.
        word: word of the sentence at this place.
        best: words and their probabilities, most probable first; empty if no candidate matches.
    """

    position: int
    word: str
    best: Sequence[tuple[str, float]]


class PredictedSentence(NamedTuple):
    """A sentence of a raw text.

    Attributes:
        words: words of the sentence.
        predictions: the most probable words at its places.
    """

    words: list[str]
    predictions: list[Prediction]


def is_pattern(word: str) -> bool:
    """Return whether a word is a pattern: it has ``?`` or ``*``, which alone are punctuation."""
    return len(word) > 1 and not {"?", "*"}.isdisjoint(word)


def filled(words: Sequence[str], predictions: Iterable[Prediction]) -> list[str]:
    """Return the words of a sentence with the most probable word at each place that has one."""
    best = {prediction.position: prediction.best[0][0] for prediction in predictions if prediction.best}
    return [best.get(position, word) for position, word in enumerate(words)]


class WordPredictor(Scorer):
    """Predicts words from the words before them, after them, or both; a call scores sentences.

    From both sides, the probability of a word is

    .. code-block:: text

        p(word | left, right) ~ p(word | left) p(word | right) / p(word)^0.75

    normalised over the vocabulary. If left and right were independent given the word, the exponent would be
    1: each of the two predictions contains the frequency of the word, which counts only once. p(word) follows
    from the word's rank in the vocabulary, which is ordered by frequency, as in the sampled softmax:
    log((k + 2) / (k + 1)) / log(n + 1) for rank k, from 0, of n words.

    Args:
        model: language model with its weights.
        vocabulary: vocabulary of the model; character-level if the model is.
        steps: steps from raw text to sentences of the model.

    Example:
        >>> predictor = WordPredictor.from_model("run")
        >>> [prediction] = next(predictor.predict([["he", "was", "___", "."]], n_best=2, gap="___"))
        >>> prediction.position, len(prediction.best)
        (2, 2)
    """

    @classmethod
    @checked
    def from_model(
        cls, model: PathLike, vocab_file: PathLike | None = None, *, checkpoint: PathLike | int | None = None
    ) -> "WordPredictor":
        """Read a model by its path.

        Args:
            model: run directory, or dumped weights with the softmax.
            vocab_file: vocabulary of the model; None for the one stored with it.
            checkpoint: checkpoint of a run, see `RunDirectory.choose`.

        Raises:
            BilmError: the model does not exist, has no softmax or no vocabulary, or cannot be read.
        """
        return cls.from_stored(ModelArguments(model, checkpoint=checkpoint).open(), vocab_file)

    @checked
    def predict(
        self,
        sentences: Iterable[Sequence[str]],
        n_best: int = 10,
        context: str = "both",
        gap: str | None = None,
        *,
        patterns: bool = False,
        words: Iterable[str] | None = None,
        candidates: Iterable[str] | None = None,
    ) -> Iterator[list[Prediction]]:
        """Find the most probable words at places in sentences.

        A gap is filled with its most probable word before the other gaps of its sentence are predicted, the
        surest gap first. Without gaps, a word of the sentence is never replaced.

        Args:
            sentences: sentences as sequences of words; each is read independently.
            n_best: number of words to find at a place. ``<S>``, ``</S>`` and ``<UNK>`` are left out, and rows
                that are not one word or are repeated; unless there are candidates, they count in the
                normalisation of the probabilities.
            context: words to predict from: ``left``, ``right`` or ``both``, see the class; a model of one
                direction has ``left`` alone.
            gap: word that marks the gaps; None for every word of a sentence.
            patterns: words with ``?``, which stands for one character, or ``*``, for any number, are gaps
                whose candidates match them. A single ``?`` or ``*`` is an ordinary word.
            words: predict at the occurrences of these words, instead of gaps.
            candidates: words to choose from. The model predicts only words of its vocabulary, and leaves out
                others. Probabilities are normalised over the candidates.

        Returns:
            Iterator over the predictions of each sentence, in the order of the places.

        Raises:
            DataError: a sentence is not a list of words, or a word is empty or contains whitespace.
            OptionsError: the model has no backward direction, or an argument is invalid.
        """
        require_positive(n_best=n_best)
        both = [*range(self.model.options.n_directions)]
        directions = {Context.LEFT: both[:1], Context.RIGHT: both[1:], Context.BOTH: both}[Context(context)]
        if not directions:
            raise OptionsError(f"`context` {context}: the model has no backward direction")
        has_gaps = gap is not None or patterns
        if has_gaps and words is not None:
            raise ArgumentError("`words` names words of the text; leave out `gap` and `patterns`")
        in_form = self.vocabulary.in_form
        if gap is not None and gap.split() != [gap]:
            raise ArgumentError(f"`gap` is {gap!r:.80}; it must be one word")
        gap = None if gap is None else in_form([gap])[0]
        chosen = None if words is None else frozenset(in_form(require_words("`words`", words)))
        allowed = None if candidates is None else self._ids_of(require_words("`candidates`", candidates))

        @functools.lru_cache
        def candidates_for(pattern: str) -> np.ndarray:
            matching = self._matching(pattern)
            return matching if allowed is None else np.intersect1d(matching, allowed)

        def places_of(sentence: Sequence[str]) -> dict[int, np.ndarray | None]:
            places: dict[int, np.ndarray | None] = {}
            for position, word in enumerate(sentence):
                if patterns and is_pattern(word):
                    places[position] = candidates_for(word)
                elif word == gap if has_gaps else (chosen is None or word in chosen):
                    places[position] = allowed
            return places

        def of_chunk(read: list[list[str]]) -> Iterator[list[Prediction]]:
            chunk = [*map(in_form, read)]
            open_places = [*map(places_of, chunk)]
            predictions: list[list[Prediction]] = [[] for _ in chunk]
            while waiting := [number for number, places in enumerate(open_places) if places]:
                texts = [filled(chunk[number], predictions[number]) for number in waiting]
                at_places = [open_places[number] for number in waiting]
                best = self._best(texts, at_places, directions, n_best)
                for number, found in zip(waiting, best, strict=True):
                    if has_gaps:  # the others are predicted again, with this gap filled
                        found = [max(found, key=lambda place: place.best[0][1] if place.best else -1)]
                    predictions[number] += found
                    for place in found:
                        del open_places[number][place.position]
            for of_sentence in predictions:
                yield sorted(of_sentence, key=lambda place: place.position)

        return itertools.chain.from_iterable(map(of_chunk, self.in_chunks(sentences, _TOKENS)))

    def predict_text(
        self, text: str, n_best: int = 10, context: str = "both", gap: str | None = None
    ) -> list[PredictedSentence]:
        """Find the most probable words at places in raw text, whose sentences and words are found first.

        Args:
            text: raw text, such as ``"He was ___."``.
            n_best: as for `predict`.
            context: as for `predict`.
            gap: as for `predict`; it may stand beside letters and punctuation.

        Raises:
            ArgumentError: the model has no steps from raw text, see `bilm.ElmoEmbedder.pipeline`.
            OptionsError: as `predict`.
        """
        gap = None if gap is None else self.pipeline.word(gap)
        sentences = [*self.pipeline.sentences(text, gap)]
        predictions = self.predict(sentences, n_best, context, gap)
        return [PredictedSentence(*pair) for pair in zip(sentences, predictions, strict=True)]

    def _best(
        self,
        texts: Sequence[Sequence[str]],
        places: Sequence[Mapping[int, np.ndarray | None]],
        directions: Sequence[int],
        n_best: int,
    ) -> list[list[Prediction]]:
        """Predict words at places of sentences.

        Args:
            texts: the words of each sentence.
            places: candidates by position, for each sentence: their ids, or None for the whole vocabulary.
            directions: numbers of the directions to predict from.
            n_best: see `predict`.
        """
        encoded = stream.encode_sentences(map(" ".join, texts), self.vocabulary)
        outputs = self.in_order(encoded, self.outputs(encoded, packing.pack(encoded.lengths)))
        flat = [
            (start + position, ids)
            for start, of_sentence in zip(encoded.starts, places, strict=True)
            for position, ids in of_sentence.items()
        ]
        best: list[list[tuple[str, float]]] = []
        n_at_once = max(1, _LOGITS // self.vocabulary.size)
        for first in range(0, len(flat), n_at_once):
            indices, allowed = zip(*flat[first : first + n_at_once], strict=True)
            # In the backward direction a word is one place later, because <S> is first.
            own = np.stack([outputs[k, np.array(indices) + k] for k in directions])
            logits = tf.reduce_sum(self.model.softmax(tf.constant(own)), axis=0)
            if len(directions) > 1:
                logits -= _PRIOR_EXPONENT * self._log_prior
            if any(ids is not None for ids in allowed):
                is_allowed = np.zeros(logits.shape, bool)
                for row, ids in zip(is_allowed, allowed, strict=True):
                    row[slice(None) if ids is None else ids] = True
                logits = tf.where(is_allowed, logits, -math.inf)
            log_p = tf.where(self._is_word, tf.nn.log_softmax(logits), -math.inf)
            tops = (values.numpy() for values in tf.math.top_k(log_p, min(n_best, self.vocabulary.size)))
            best += [
                [(self.vocabulary.words[k], math.exp(p)) for p, k in zip(*top, strict=True) if p > -math.inf]
                for top in zip(*tops, strict=True)
            ]
        found = iter(best)
        return [
            [Prediction(position, words[position], next(found)) for position in of_sentence]
            for words, of_sentence in zip(texts, places, strict=True)
        ]

    @functools.cached_property
    def _is_word(self) -> np.ndarray:
        """Ids that can be predicted, bool (words,): of one word, the last one if it is repeated."""
        words = self.vocabulary.words
        is_last = self.vocabulary.lookup(words) == np.arange(len(words))
        are_words = [word not in SPECIAL_TOKENS and word.split() == [word] for word in words]
        return is_last & np.array(are_words)

    @functools.cached_property
    def _log_prior(self) -> np.ndarray:
        """Log-probability of each word by its rank, float32 (words,), but for a constant."""
        rank = np.arange(self.vocabulary.size)
        return np.log(np.log1p(1 / (rank + 1))).astype(np.float32)

    @functools.cached_property
    def _composed(self) -> list[str]:
        """The words of the vocabulary; a letter and its accent are one character."""
        return [*map(UnicodeForm.NFC.of_text, self.vocabulary.words)]

    def _matching(self, pattern: str) -> np.ndarray:
        """Return the ids of the words that match a pattern, ascending."""
        literal = UnicodeForm.NFC.of_text(pattern).replace("[", "[[]")  # which `fnmatch` takes for a set
        matches = re.compile(fnmatch.translate(literal)).match
        ids = np.array([k for k, word in enumerate(self._composed) if matches(word)], np.int32)
        return ids[self._is_word[ids]]

    def _ids_of(self, candidates: Sequence[str]) -> np.ndarray:
        """Return the ids of words to choose from, ascending.

        Raises:
            ArgumentError: none of them can be predicted.
        """
        ids = np.intersect1d(self.vocabulary.lookup(candidates), np.flatnonzero(self._is_word))
        if not len(ids):
            raise ArgumentError(
                "`candidates`: none of them is a word of the vocabulary, and the model predicts only these"
            )
        return ids
