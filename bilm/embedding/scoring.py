"""Probabilities of texts and sentences under the full softmax."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Self

import numpy as np
import tensorflow as tf

from bilm.backend.keras_backend import backend, keras, require_ready
from bilm.data.batcher import words_of_each
from bilm.data.packing import Packing, enough_rows, pack, pack_as_rows_end, stretches
from bilm.data.stream import Sentences, encode_sentences, join_sentences
from bilm.errors import CheckpointError, DataError
from bilm.io import PathLike, in_groups
from bilm.models import language_model
from bilm.models import sentence_encoder as inference
from bilm.models.encoder import States
from bilm.text.pipeline import ModelSteps, TextPipeline
from bilm.training.meter import Perplexities, mean, perplexity
from bilm.vocabulary.vocabulary import Vocabulary
from bilm.weights import distribution, transfer

_TEXT_TOKENS = 1 << 20
_SENTENCES_TOKENS = 1 << 14
_WINDOW_TOKENS = 1 << 13
_CACHED_WORDS = 1 << 16


@dataclass(frozen=True)
class Evaluation:
    """Result of scoring a text.

    Attributes:
        direction_losses: mean negative log-likelihood of each direction, in nats.
        n_tokens: targets scored in each direction.
        known_losses: the same as `direction_losses`, of the targets other than ``<UNK>``.
    """

    direction_losses: tuple[float, ...]
    n_tokens: int
    known_losses: tuple[float, ...]

    @property
    def perplexities(self) -> Perplexities:
        """Perplexities of the model and of each direction."""
        return Perplexities.from_losses(self.direction_losses)

    @property
    def known_perplexity(self) -> float:
        """Perplexity of the targets other than ``<UNK>``, which is one very probable word."""
        return perplexity(mean(self.known_losses))


@dataclass(frozen=True, eq=False)
class SentenceScore:
    """Natural log-probabilities of one sentence; words outside the vocabulary count as ``<UNK>``.

    Attributes:
        words: words of the sentence.
        forward: float32 (words + 1,), each word and ``</S>``, given the words before.
        backward: float32 (words + 1,), ``<S>`` and each word, given the words after; None for a model with
            one direction.
        is_known: bool (words,), true for words in the vocabulary.
    """

    words: Sequence[str]
    forward: np.ndarray
    backward: np.ndarray | None
    is_known: np.ndarray


class Scorer:
    """Scores sentences and texts with a language model.

    Args:
        model: language model with its weights.
        vocabulary: vocabulary of the model; character-level if the model is.
        steps: steps from raw text to sentences of the model.
    """

    def __init__(
        self, model: language_model.LanguageModel, vocabulary: Vocabulary, steps: ModelSteps | None = None
    ) -> None:
        self._steps = steps or ModelSteps()
        self.model, self.vocabulary = model, vocabulary
        self._words = inference.WordVectors(model.encoder, vocabulary, _CACHED_WORDS)
        n, dim, spec = model.options.n_directions, model.options.lstm.projection_dim, keras.KerasTensor
        table, tokens = spec((None, dim), "float32"), spec((n, None, None), "int32")
        places, begins = spec((None,), "int32"), spec((None, None), "bool")
        by_window = [table, tokens, places, begins, model.encoder.state_specs()]
        by_token = [spec((n, None, dim), "float32"), spec((n, None), "int32")]
        self._run = backend.compiled(self._compute_outputs, model.encoder, by_window)
        self._compute_losses = backend.compiled(self._full_losses, model.softmax, by_token)

    @classmethod
    def from_stored(
        cls, stored: distribution.StoredModel, vocab_file: PathLike | None = None, precision: str = "float32"
    ) -> Self:
        """Read a stored model that predicts words.

        Args:
            stored: model to read.
            vocab_file: vocabulary of the model; None for the one stored with it.
            precision: see `bilm.models.language_model.LanguageModel`.

        Raises:
            ArgumentError: there is no vocabulary.
            BilmError: the model has no softmax for this vocabulary, or its weights cannot be read.
        """
        options = stored.predicting_options()
        vocabulary = stored.own_vocabulary(vocab_file, options.n_tokens_vocab)
        model = language_model.LanguageModel(options, precision)
        transfer.set_weights(model.named_weights(), stored.arrays(), stored.source)
        return cls(model, vocabulary, stored.steps)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the model, without compiled functions."""
        return type(self), (self.model, self.vocabulary, self._steps)

    @cached_property
    def pipeline(self) -> TextPipeline:
        """Steps from raw text to sentences, see `bilm.ElmoEmbedder.pipeline`."""
        return self._steps.require()

    def __call__(self, sentences: Iterable[Sequence[str]]) -> Iterator[SentenceScore]:
        """Score sentences in order, each from zero state; empty sentences are scored, too.

        Raises:
            CheckpointError: the losses are not finite.
            DataError: as `in_chunks`.
        """
        for chunk in self.in_chunks(sentences, _SENTENCES_TOKENS):
            encoded = encode_sentences(map(" ".join, chunk), self.vocabulary)
            scores = -self.in_order(encoded, self._losses(encoded, pack(encoded.lengths)))
            for words, start, end in zip(chunk, encoded.starts, encoded.ends, strict=True):
                forward, *backward = scores[:, start:end]
                ids = self.vocabulary.lookup(words)
                yield SentenceScore(words, forward, backward[0] if backward else None, ids >= 0)

    def in_chunks(self, sentences: Iterable[Sequence[str]], least: int) -> Iterator[list[list[str]]]:
        """Yield sentences with at least `least` words together.

        Raises:
            DataError: a sentence is not a list of words, or a word is empty or contains whitespace.
        """
        for chunk in in_groups(words_of_each(sentences), lambda words: len(words) + 2, least):
            for word in chain.from_iterable(chunk):
                if word.split() != [word]:
                    raise DataError(f"{word!r:.80} is not a word: it is empty or has whitespace")
            yield chunk

    def in_order(self, text: Sentences, parts: Iterable[tuple[np.ndarray, Any]]) -> np.ndarray:
        """Put values of tokens, as `outputs` yields them, in the order of the text.

        Word k of the ids has its forward value at k and its backward value at k + 1, because the forward
        values of a sentence end with ``</S>`` and the backward values begin with ``<S>``.

        Returns:
            float32 (directions, ids, ...).
        """
        numbers, values = zip(*parts, strict=True)
        ordered = np.concatenate(values, axis=1)[:, np.argsort(np.concatenate(numbers))]
        in_reverse = np.repeat(text.starts + text.ends - 1, text.lengths) - np.arange(len(text.ids))
        ordered[1:] = ordered[1:, in_reverse]
        return ordered

    def evaluate(
        self,
        parts: Iterable[Sentences],
        on_tokens: Callable[[int], None] = lambda n_tokens: None,
        n_rows: int | None = None,
    ) -> Evaluation:
        """Score every token of a text once, with the current weights.

        The text is read in stretches of consecutive sentences, see `bilm.data.packing.stretches`. The state
        is zero before a stretch and carried within it, so the result depends only on model and text.

        Args:
            parts: blocks of consecutive sentences of the text, in order.
            on_tokens: called with the number of targets scored so far.
            n_rows: number of rows, to score as bilm-tf's test does at unroll 1: in one batch whose rows carry
                their states, see `bilm.data.packing.pack_as_rows_end`, with blank lines as empty sentences.

        Raises:
            DataError: there is nothing to score: the text is empty, or does not fill every row.
            CheckpointError: the losses are not finite.
        """
        self._words.forget()
        n_tokens, n_known = 0, 0
        total, known = np.zeros((2, self.model.options.n_directions))
        least = _TEXT_TOKENS if n_rows is None else math.inf
        for chunk in in_groups(parts, lambda part: len(part.ids), least):
            text = join_sentences(chunk, self.vocabulary)
            lengths = text.lengths
            packing = pack(stretches(lengths)) if n_rows is None else pack_as_rows_end(lengths, n_rows)
            is_target_known = self._pairs(text)[1] != self.vocabulary.unk
            for numbers, losses in self._losses(text, packing, is_one_batch=n_rows is not None):
                is_known = is_target_known[:, numbers]
                total += losses.sum(axis=1, dtype=np.float64)
                known += losses.sum(axis=1, dtype=np.float64, where=is_known)
                n_tokens, n_known = n_tokens + losses.shape[1], n_known + is_known.sum(axis=1)
                on_tokens(n_tokens)
        if not n_tokens:
            problem = "empty" if n_rows is None else "smaller than one batch; give a smaller `batch_size`"
            raise DataError(f"there is nothing to score: the text is {problem}")
        means = (total / n_tokens).tolist(), (known / np.maximum(n_known, 1)).tolist()
        return Evaluation(tuple(means[0]), n_tokens, tuple(means[1]))

    def _pairs(self, text: Sentences) -> np.ndarray:
        return text.pairs(self.vocabulary, self.model.options.n_directions)

    def _losses(
        self, text: Sentences, packing: Packing, is_one_batch: bool = False
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Compute the losses of packed sentences, float32 (directions, tokens); otherwise as `outputs`.

        Raises:
            CheckpointError: the losses are not finite.
        """
        _, targets = self._pairs(text)
        for numbers, outputs in self.outputs(text, packing, is_one_batch):
            losses = self._compute_losses(outputs, targets[:, numbers]).numpy()
            if not np.isfinite(losses).all():
                raise CheckpointError(
                    "the model's losses are not finite: its training diverged; use an earlier checkpoint"
                )
            yield numbers, losses

    def outputs(
        self, text: Sentences, packing: Packing, is_one_batch: bool = False
    ) -> Iterator[tuple[np.ndarray, tf.Tensor]]:
        """Run the LSTM over packed sentences, some steps of all rows at a time.

        Args:
            text: consecutive sentences.
            packing: packing of these sentences, or of stretches of them.
            is_one_batch: carry the state of a row over its whole length, and stop when the shortest row ends.

        Yields:
            Indices of tokens in ``text.ids``, and the outputs of the top layer that predict these tokens,
            float32 (directions, tokens, projection_dim). The backward direction has the tokens of each
            sentence in reverse order.

        Raises:
            ProcessError: TensorFlow is in its version 1 mode, or the process was forked.
        """
        require_ready()
        inputs, _ = self._pairs(text)
        # Longest rows first, so that rows can be dropped as they end.
        order = np.argsort(-packing.row_lengths, kind="stable")
        lengths = packing.row_lengths[order]
        steps, rows = np.divmod(packing.places(np.ones(inputs.shape[1], bool))[0], packing.n_rows)
        rows, sorter = np.argsort(order)[rows], np.argsort(steps)
        n_steps = int(lengths[-1] if is_one_batch else lengths[0])
        n_at_once = max(1, _WINDOW_TOKENS // packing.n_rows)
        states = self.model.zero_states(packing.n_rows)
        for first in range(0, n_steps, n_at_once):
            end = min(first + n_at_once, n_steps)
            numbers = np.sort(sorter[slice(*np.searchsorted(steps, (first, end), sorter=sorter))])
            n_rows = min(packing.n_rows, enough_rows(int((lengths > first).sum())))
            places = ((steps[numbers] - first) * n_rows + rows[numbers]).astype(np.int32)
            types, type_numbers = np.unique(inputs[:, numbers], return_inverse=True)
            tokens = np.zeros((len(inputs), (end - first) * n_rows), np.int32)
            tokens[:, places] = type_numbers.reshape(len(inputs), -1)
            begins = np.zeros((end - first) * n_rows, bool)
            begins[places] = packing.is_first[numbers] & (not is_one_batch)
            table = self._words(text.words_of(types, self.vocabulary))
            by_step = tokens.reshape(len(inputs), -1, n_rows)
            states = tf.nest.map_structure(lambda state: state[:n_rows], states)  # noqa: B023 - called here
            outputs, states = self._run(table, by_step, places, begins.reshape(-1, n_rows), states)
            yield numbers, outputs

    def _compute_outputs(
        self, table: tf.Tensor, tokens: tf.Tensor, places: tf.Tensor, begins: tf.Tensor, states: States
    ) -> tuple[tf.Tensor, States]:
        """Run the LSTM; return the outputs of the top layer at some places, and the final states."""
        layers, states = inference.run_packed(self.model.encoder, table, tokens, states, begins=begins)
        return tf.stack([tf.gather(output, places) for output in layers[-1]]), states

    def _full_losses(self, outputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        losses = [self.model.softmax.full_losses(outputs[k], targets[k]) for k in range(targets.shape[0])]
        return tf.stack(losses)
