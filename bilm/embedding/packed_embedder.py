"""Vectors of sentences that are packed into rows and run through the network together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bilm.embedding.packing import number_types, pack, pack_in_turn
from bilm.embedding.word_vectors import WordVectors
from bilm.embedding_files.embedded_text import Layers
from bilm.errors import OptionsError
from bilm.layers.tensorflow_state import Placement
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from bilm.vocabulary.file import BOS, EOS


class PackedEmbedder:
    """What runs one chunk of sentences; graphs are compiled once for each choice of layers.

    Args:
        model: from zero state, or carrying the states of its rows.
        words: vectors of words.
        max_rows: see `bilm.embedding.packing.pack`; for a model that carries the state by default all of
            its rows.
        placement: where the model is.
    """

    def __init__(
        self,
        model: BidirectionalLanguageModel,
        words: WordVectors,
        max_rows: int | None,
        placement: Placement,
    ) -> None:
        self._model, self._words, self._placement = model, words, placement
        self.max_rows = max_rows or (model.max_batch_size if model.stateful else None)
        self._compiled: dict[tuple[Layers, str], Any] = {}

    def with_rows(self, max_rows: int) -> PackedEmbedder:
        """The same with another number of rows; what is compiled is shared."""
        other = PackedEmbedder(self._model, self._words, max_rows, self._placement)
        other._compiled = self._compiled
        return other

    def __call__(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """Vectors of sentences, at least one.

        Returns:
            (layers, words, dim) for all layers, else (words, dim), each.

        Raises:
            OptionsError: there is no such layer.
            ProcessError: the process was forked after the model was made.
        """
        self._model.home.require()
        with self._placement.scope():
            return self._run(self._compile(layers, dtype), sentences)

    def _run(self, run: Any, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:  # noqa: ANN401
        lengths = [len(words) + 2 for words in sentences]
        if self._model.stateful:
            packing = pack_in_turn(lengths, min(len(sentences), self.max_rows or len(sentences)))
        else:
            packing = pack(lengths, self.max_rows)
        types, numbers = number_types([token for words in sentences for token in (BOS, *words, EOS)])
        is_word = packing.is_word
        n_directions = self._model.options.n_directions
        result = run(
            self._words(types),
            numbers[is_word],
            packing.fill(numbers, n_directions),
            packing.places(*[is_word] * n_directions),
            packing.row_lengths if self._model.stateful else packing.begins,
        ).numpy()
        parts = np.split(result, np.cumsum([len(words) for words in sentences])[:-1])
        return [np.ascontiguousarray(np.moveaxis(part, 0, -2)) for part in parts]

    def _compile(self, layers: Layers, dtype: str) -> Any:  # noqa: ANN401
        """The graph that gives these layers, made once."""
        if isinstance(layers, int) and not 0 <= layers < self._model.n_layers:
            raise OptionsError(f"layer {layers}: the model has layers 0 to {self._model.n_layers - 1}")
        if isinstance(layers, str) and layers not in ("all", "top", "average"):
            raise OptionsError(f"layers is {layers!r}; give all, top, average or the number of a layer")
        if (layers, dtype) not in self._compiled:
            n_directions, stateful = self._model.options.n_directions, self._model.stateful

            def run(
                table: tf.Tensor,
                words: tf.Tensor,
                tokens: tf.Tensor,
                places: tf.Tensor,
                begins_or_lengths: tf.Tensor,
            ) -> tf.Tensor:
                rows = {"lengths" if stateful else "begins": begins_or_lengths}
                lstm_layers = self._model.run_packed(table, tokens, places, **rows)
                found = [[tf.gather(table, words)] * n_directions, *lstm_layers]
                return tf.cast(_choose(found, layers), dtype)

            def integers(*shape: int | None) -> tf.TensorSpec:
                return tf.TensorSpec(shape, tf.int32)

            self._compiled[layers, dtype] = tf.function(
                run,
                input_signature=[
                    tf.TensorSpec([None, self._model.options.lstm.projection_dim], tf.float32),
                    integers(None),
                    integers(n_directions, None, None),
                    integers(n_directions, None),
                    integers(None) if stateful else tf.TensorSpec([None, None], tf.bool),
                ],
            )
        return self._compiled[layers, dtype]


def _choose(found: list[list[tf.Tensor]], layers: Layers) -> tf.Tensor:
    """Layers of words, each (words, projection_dim) by direction -> (words, layers, dim) or (words, dim)."""
    if layers == "all":
        flat = tf.concat([part for layer in found for part in layer], axis=1)
        return tf.reshape(flat, [-1, len(found), flat.shape[1] // len(found)])
    if layers == "average":
        found = [[tf.add_n(list(parts)) / len(found) for parts in zip(*found, strict=True)]]
    return tf.concat(found[-1 if isinstance(layers, str) else layers], axis=1)
