"""Vectors of sentences that are packed into rows and run through the network together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bilm.backend.current import backend
from bilm.backend.keras_backend import Tensor, keras
from bilm.backend.placement import Placement
from bilm.backend.spec import Spec
from bilm.embedding.long_rows import LongRows, is_long
from bilm.embedding.packing import Packing, number_types, pack, pack_in_turn
from bilm.embedding.word_vectors import WordVectors
from bilm.embedding_files.chunks import Layers
from bilm.errors import OptionsError, require_positive
from bilm.models.bidirectional_lm import BidirectionalLanguageModel
from bilm.vocabulary.file import BOS, EOS
from bilm.vocabulary.vocabulary import Vocabulary

_BATCH_TOKENS = 16384
_CACHE_BYTES = 1 << 28


@dataclass(frozen=True)
class Limits:
    """How much is worked on together, and remembered; None for the default.

    Attributes:
        batch_size: see `bilm.embedding.packing.pack`; for a model that carries the state by default all of
            its rows.
        batch_tokens: tokens of a chunk, with whole sentences.
        max_cached_words: distinct words whose vectors are remembered.

    Raises:
        OptionsError: one of them is below 1.
    """

    batch_size: int | None = None
    batch_tokens: int | None = None
    max_cached_words: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        require_positive(**{name: number for name, number in vars(self).items() if number is not None})


class PackedEmbedder:
    """A model and what is remembered of its words; graphs are compiled once for each choice of layers.

    It can be copied and pickled; vectors of words are left out then.

    Args:
        model: from zero state, or carrying the states of its rows.
        vocabulary: of a word-level model, else None.
        placement: where the model is.
        limits: see `Limits`.

    Raises:
        OptionsError: `batch_tokens` for a model that carries the state.
    """

    def __init__(
        self,
        model: BidirectionalLanguageModel,
        vocabulary: Vocabulary | None,
        placement: Placement,
        limits: Limits,
    ) -> None:
        if model.stateful and limits.batch_tokens is not None:
            raise OptionsError("batch_tokens: with stateful=True, give batch_size instead")
        self.model, self.vocabulary, self._placement, self._limits = model, vocabulary, placement, limits
        self.max_rows = limits.batch_size or (model.max_batch_size if model.stateful else None)
        self.batch_tokens = limits.batch_tokens or _BATCH_TOKENS
        n_words = limits.max_cached_words or _CACHE_BYTES // (4 * model.options.lstm.projection_dim)
        self._words = WordVectors(model.encoder, vocabulary, n_words)
        self._compiled: dict[tuple[Layers, str], Any] = {}
        self._long: dict[tuple[Layers, str], LongRows] = {}

    def __getstate__(self) -> dict[str, Any]:
        """What it is made of again, for pickle and copy."""
        return {
            "model": self.model.__getstate__(),
            "vocabulary": self.vocabulary,
            "cuda_device": self._placement.cuda_device,
            "limits": self._limits,
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        """Make it again."""
        placement = Placement(saved["cuda_device"])
        model = BidirectionalLanguageModel.__new__(BidirectionalLanguageModel)
        with placement.scope():
            model.__setstate__(saved["model"])
        PackedEmbedder.__init__(self, model, saved["vocabulary"], placement, saved["limits"])

    def copied_to(self, placement: Placement) -> PackedEmbedder:
        """One on another device, with its own copy of the model."""
        other = object.__new__(PackedEmbedder)
        other.__setstate__(self.__getstate__() | {"cuda_device": placement.cuda_device})
        return other

    def with_rows(self, batch_size: int) -> PackedEmbedder:
        """The same with another number of rows; what is compiled and remembered is shared.

        Raises:
            OptionsError: it is below 1, or above that of the rows whose state is carried.
        """
        require_positive(batch_size=batch_size)
        if self.model.stateful and batch_size > self.model.max_batch_size:
            raise OptionsError(
                f"batch_size is {batch_size}, and the state of {self.model.max_batch_size} sentences is "
                "carried; give the embedder a larger batch_size"
            )
        other = object.__new__(PackedEmbedder)
        other.__dict__ |= self.__dict__ | {"max_rows": batch_size}
        return other

    def is_chunk(self, n_sentences: int, n_tokens: int) -> bool:
        """Whether sentences are enough to be embedded together, whatever follows.

        With state carried these are whole batches.
        """
        if self.model.stateful and n_sentences % (self.max_rows or 1):
            return False
        return n_tokens >= self.batch_tokens

    def __call__(
        self, sentences: Sequence[Sequence[str]], layers: Layers = "all", dtype: str = "float32"
    ) -> list[np.ndarray]:
        """Vectors of sentences that are held in memory together.

        Returns:
            (layers, words, dim) for all layers, else (words, dim), each.

        Raises:
            OptionsError: there is no such layer.
            ProcessError: the process was forked after the model was made.
        """
        if not sentences:
            return []
        self.model.home.require()
        with self._placement.scope():
            return self._run(layers, dtype, sentences)

    def _run(self, layers: Layers, dtype: str, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        run = self._compile(layers, dtype)  # which looks at the layers first
        lengths = [len(words) + 2 for words in sentences]
        if self.model.stateful:
            packing = pack_in_turn(lengths, min(len(sentences), self.max_rows or len(sentences)))
        else:
            packing = pack(lengths, self.max_rows)
        types, numbers = number_types([token for words in sentences for token in (BOS, *words, EOS)])
        if backend.FIXED_SHAPES or (not self.model.stateful and is_long(packing, self.batch_tokens)):
            return self._run_long(self._words(types), packing, numbers, layers, dtype)
        is_word = packing.is_word
        n_directions = self.model.options.n_directions
        found = run(
            self._words(types),
            numbers[is_word],
            packing.fill(numbers, n_directions),
            packing.places(*[is_word] * n_directions),
            packing.row_lengths if self.model.stateful else packing.begins,
        )
        result = keras.ops.convert_to_numpy(found)
        parts = np.split(result, np.cumsum([len(words) for words in sentences])[:-1])
        return [np.ascontiguousarray(np.moveaxis(part, 0, -2)) for part in parts]

    def _run_long(
        self, table: np.ndarray, packing: Packing, numbers: np.ndarray, layers: Layers, dtype: str
    ) -> list[np.ndarray]:
        """Vectors of sentences whose rows are run in windows."""
        if (layers, dtype) not in self._long:
            self._long[layers, dtype] = LongRows(self.model.encoder, layers, dtype)
        result = self._long[layers, dtype](table, packing, numbers)
        parts = np.split(result, np.cumsum(packing.lengths - 2)[:-1], axis=1)
        return [np.ascontiguousarray(part if layers == "all" else part[0]) for part in parts]

    def _compile(self, layers: Layers, dtype: str) -> Any:  # noqa: ANN401
        """The graph that gives these layers, made once."""
        if isinstance(layers, int) and not 0 <= layers < self.model.n_layers:
            raise OptionsError(f"layer {layers}: the model has layers 0 to {self.model.n_layers - 1}")
        if isinstance(layers, str) and layers not in ("all", "top", "average"):
            raise OptionsError(f"layers is {layers!r}; give all, top, average or the number of a layer")
        if (layers, dtype) not in self._compiled:
            n_directions, stateful = self.model.options.n_directions, self.model.stateful

            def run(
                table: Tensor, words: Tensor, tokens: Tensor, places: Tensor, begins_or_lengths: Tensor
            ) -> Tensor:
                rows = {"lengths" if stateful else "begins": begins_or_lengths}
                lstm_layers = self.model.run_packed(table, tokens, places, **rows)
                found = [[backend.gather(table, words)] * n_directions, *lstm_layers]
                return keras.ops.cast(_choose(found, layers), dtype)

            specs = [
                Spec((None, self.model.options.lstm.projection_dim), "float32"),
                Spec((None,), "int32"),
                Spec((n_directions, None, None), "int32"),
                Spec((n_directions, None), "int32"),
                Spec((None,), "int32") if stateful else Spec((None, None), "bool"),
            ]
            self._compiled[layers, dtype] = backend.compiled(run, self.model.encoder, specs)
        return self._compiled[layers, dtype]


def _choose(found: list[list[Tensor]], layers: Layers) -> Tensor:
    """Layers of words, each (words, projection_dim) by direction -> (words, layers, dim) or (words, dim)."""
    ops = keras.ops
    if layers == "all":
        flat = ops.concatenate([part for layer in found for part in layer], axis=1)
        return ops.reshape(flat, (-1, len(found), flat.shape[1] // len(found)))
    if layers == "average":
        found = [[ops.mean(ops.stack(parts), axis=0) for parts in zip(*found, strict=True)]]
    return ops.concatenate(found[-1 if isinstance(layers, str) else layers], axis=1)
